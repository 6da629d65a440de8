"""`index sync --pull-request` proposes newer charts where `package from-chart` made a package."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from reconciler.run import chart_proposals
from reconciler.run.from_chart import ChartReader, PinnedChart
from tests.e2e.test_package_from_chart import index, pack, settings, write_chart
from tests.support.charts import DEPLOYMENT, chart
from tests.support.git import make_repository
from tests.support.registry import Answer, Asked, serve_gate, serve_registry
from tests.support.world import Said, World, build_world, git

REPOSITORY = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata: {name: blueprints}
spec: {type: git, git: {repo: ../blueprints.git, branch: main}}
"""
HEAD = "reconciler/main/chart/apps/web/next"

Publish = Callable[[str], None]
"""Publishes a version of the chart `web`; of every one after 1.0.0 the default is two replicas."""


def build(folder: Path, version: str) -> bytes:
    more = {} if version == "1.0.0" else {"charts__web__values.yaml": "replicas: 2\nimage: nginx\n"}
    return pack(write_chart(folder / version, version, **more), folder / f"{version}.tgz").read_bytes()


@contextmanager
def from_registry(root: Path) -> Iterator[tuple[str, str, Publish]]:
    with serve_registry(root) as registry:
        yield (
            f"oci://{registry.address}/charts/web",
            f"  registries: {{mirrors: {{'{registry.address}': 'http://{registry.address}'}}}}\n",
            lambda version: registry.push_chart("charts/web", version, build(root, version)) and None,
        )


@contextmanager
def from_web(root: Path) -> Iterator[tuple[str, str, Publish]]:
    there: dict[str, bytes] = {}

    def answer(asked: Asked) -> Answer:
        if asked.path == "/stable/index.yaml":
            return Answer(200, index(*there))
        return Answer(200, there[asked.path.removeprefix("/stable/files/web-").removesuffix(".tgz")])

    with serve_gate() as gate:
        gate.plan = answer
        mirror = f"  registries: {{mirrors: {{charts.example.com: 'http://{gate.address}'}}}}\n"
        add = lambda version: there.update({version: build(root, version)})  # noqa: E731
        yield "https://charts.example.com/stable/web", mirror, add


@contextmanager
def from_git(root: Path) -> Iterator[tuple[str, str, Publish]]:
    charts = make_repository(root / "charts.git", {"README.md": "charts"})

    def publish(version: str) -> None:
        files = chart(version=version, deployment=DEPLOYMENT)
        if version != "1.0.0":
            files["charts/web/values.yaml"] = "replicas: 2\nimage: nginx\n"
        charts.commit(files)
        charts.tag(f"web-{version}")

    yield f"file://{root}/charts.git/charts/web", "", publish


def make_world(root: Path, spec: str, address: str, versions: str) -> World:
    """Return a world with a package of the chart in its upstream repository."""
    config = root / "source/config"
    (config / "manifests").mkdir(parents=True)
    text = f"  manifests: [manifests]\n{spec}"
    settings(config, text).write_text(settings(config, text).read_text().replace("name: fleet", "name: main"))
    (config / "manifests/blueprints.yaml").write_text(REPOSITORY)
    world = build_world(root / "source", root / "w")
    make_repository(root / "w/blueprints.git", {"README.md": "blueprints"})
    with world.edit("blueprints", "A package of the chart") as copy:
        line = ["package", "from-chart", address, str(copy / "apps/web"), "--version", versions]
        assert (
            invoke([*line, "--config", str(config / "reconciler.yaml"), "--cache-dir", str(root / "c")]) == 0
        )
        values = copy / "apps/web/values.yaml"
        values.write_text(f"extra: 1\n{values.read_text()}")
    return world


@pytest.mark.parametrize("source", [from_registry, from_web, from_git], ids=lambda source: source.__name__)
def test_newer_chart_is_one_pull_request_and_then_nothing(
    source: Callable[..., object], tmp_path: Path
) -> None:
    with source(tmp_path) as (address, spec, publish):  # type: ignore[attr-defined]
        publish("1.0.0")
        world = make_world(tmp_path, spec, address, "^1")
        with world.edit("blueprints", "A package of a chart that is here") as copy:
            here = write_chart(tmp_path / "here")
            assert invoke(["package", "from-chart", str(here), str(copy / "apps/local")]) == 0
        nothing = world.run("index", "sync", "--pull-request")
        for version in ("1.1.0", "2.0.0"):
            publish(version)

        said = world.run("index", "sync", "--pull-request")
        before = world.all_refs()
        again = world.run("index", "sync", "--pull-request")
        unchanged = world.all_refs() == before
        shown = json.loads(world.run("pr", "show", "blueprints#1", "-o", "json").out)
        changed = git(world.root / "blueprints.git", "diff", "--name-only", "main", HEAD).split()
        values = git(world.root / "blueprints.git", "show", f"{HEAD}:apps/web/values.yaml")
        merged = world.run("pr", "merge", "blueprints#1")
        after = world.run("index", "sync", "--pull-request")

    assert (nothing.code, "chart" in nothing.out) == (0, False), nothing
    step = f"`reconciler package from-chart {address} apps/web --version '^2.0.0'` takes it"
    note = f"apps/web: web 2.0.0 is outside of its range ^1: {step}"
    local = "apps/local: its chart is from a file or a directory, and no newer one is looked for: "
    local += "`reconciler package from-chart ADDRESS apps/local --version RANGE` names one to follow"
    assert (said.code, said.err) == (0, f"note: {local}\nnote: {note}\n"), said
    assert note.replace("`", "") in json.dumps(shown).replace("`", "")
    assert "Update the chart web to 1.1.0" in said.out
    assert (again.code, unchanged, "Pull request #1 waits for a review" in again.out) == (0, True, True), (
        again
    )
    assert "from `1.0.0` to `1.1.0`" in json.dumps(shown)
    assert changed == [
        f"apps/web/{name}"
        for name in ("chart.yaml", "charts/web/Chart.yaml", "charts/web/values.yaml", "values.yaml")
    ]
    assert values.splitlines()[::2] == ["extra: 1", "# replicas: 2"]
    assert merged.code == 0, merged
    assert (after.code, "chart" in after.out) == (0, False), after


def odd_index(urls: object) -> Answer:
    return Answer(200, f"entries: {{web: [{{version: 1.1.0, urls: {urls}}}]}}".encode())


ODD: dict[str, tuple[Callable[[str], Answer], int, str]] = {
    "none": (lambda _: odd_index("[a.tgz]")._replace(body=index("1.0.0")), 0, ""),
    "an address that is none": (lambda _: Answer(302, b"", {"Location": "//["}), 5, "cannot be asked"),
    "a number for addresses": (lambda _: odd_index(5), 5, "Expected `array`, got `int`"),
    "a redirect to this machine": (lambda here: Answer(302, b"", {"Location": f"http://{here}/admin"}), 5,
        "is not encrypted"),
    "an address of this machine": (lambda here: odd_index(f"['http://{here}/admin']"), 3, "is not encrypted"),
    "a bug of ours": (lambda _: Answer(200, index("1.0.0", "1.1.0")), 1, "failed here: IndexError at "),
}  # fmt: skip


def sync_beside(name: str, root: Path, patch: pytest.MonkeyPatch) -> tuple[Said, str, list[Asked]]:
    """Sync two packages, one of an odd repository; return what was said, the other's proposal, and leaks."""
    answer, code, _ = ODD[name]
    with from_web(root) as (address, spec, publish), serve_gate() as gate, serve_gate() as inner:
        gate.plan = lambda _: answer(inner.address)
        publish("1.0.0")
        other = f"odd.example.com: 'http://{gate.address}', charts.example.com: "
        world = make_world(root, spec.replace("charts.example.com: ", other), address, "^1")
        with world.edit("blueprints", "Another package") as copy:
            odd = shutil.copytree(copy / "apps/web", copy / "apps/odd") / "chart.yaml"
            odd.write_text(odd.read_text().replace("https://charts.example.com", "https://odd.example.com"))
        publish("1.1.0")
        newer = chart_proposals.read_newer_chart

        def broken(pinned: PinnedChart, reader: ChartReader) -> object:
            if "odd.example" in pinned.address:
                raise IndexError("deep")
            return newer(pinned, reader)

        if code == 1:
            patch.setattr(chart_proposals, "read_newer_chart", broken)
        said = world.run("index", "sync", "--pull-request")
        difference = git(world.root / "blueprints.git", "diff", "main", HEAD)
        # The archive that a test packs has its times.
        return said, re.sub(r"sha256:[0-9a-f]{64}|index [0-9a-f.]+", "", difference), inner.asked


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch:
        return sync_beside("none", tmp_path_factory.mktemp("undisturbed"), patch)[1]


@pytest.mark.parametrize("name", list(ODD)[1:])
def test_one_odd_repository_of_charts_changes_nothing_about_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: str
) -> None:
    said, proposed, leaks = sync_beside(name, tmp_path, monkeypatch)

    assert (said.code, proposed, leaks) == (ODD[name][1], undisturbed, []), said
    assert ODD[name][2] in said.err
    assert (said.out + said.err).count("Traceback") == (ODD[name][1] == 1)


FLEET = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata: {{name: {name}, labels: {{env: {name}}}}}
spec: {{type: git, deployment: true, git: {{repo: ../{name}.git, branch: main}}}}
"""
SET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {name: web}
spec:
  upstream: {repo: blueprints, package: apps/web, revision: 1} # the web\r
  targets:
  - repositories: [{name: east}, {name: west}]
    template:
      downstream: {package: web}
"""
WAVES = """\
  rollouts:
  - waves:
    - {name: east, selector: {matchLabels: {env: east}}}
    - {name: west, selector: {matchLabels: {env: west}}}
"""


def make_fleet(root: Path, spec: str, address: str) -> World:
    """Return a world in which two clusters have the first revision of the chart, in two waves."""
    world = make_world(root, f"{spec}{WAVES}", address, "^1")
    for name in ("east", "west"):
        make_repository(root / f"w/{name}.git", {"README.md": name})
    git(root / "w/blueprints.git", "tag", "apps/web/v1", "main")
    with world.edit("control", "Two clusters") as copy:
        manifests = copy / "manifests"
        (manifests / "clusters.yaml").write_text("---\n".join(FLEET.format(name=n) for n in ("east", "west")))
        (manifests / "web.yaml").write_bytes(SET.encode())
    for _ in range(2):
        world.run("apply")
        world.run("approve", "--all")
    world.run("apply")
    return world


@pytest.mark.parametrize("person", ["closes it", "raises the manifest", "rolls back"])
def test_revision_that_a_person_decided_about_is_not_proposed_again(person: str, tmp_path: Path) -> None:
    with from_git(tmp_path) as (address, spec, publish):
        publish("1.0.0")
        world = make_fleet(tmp_path, spec, address)
        publish("1.1.0")
        world.run("index", "sync", "--pull-request")
        body = world.run("pr", "show", "blueprints#1").out
        world.run("pr", "merge", "blueprints#1")
        world.run("index", "sync", "--pull-request")
        if person != "raises the manifest":
            world.run("pr", "close" if person == "closes it" else "merge", "control#1")
        if person != "closes it":
            with world.edit("control", "By hand") as copy:
                number = 2 if person == "raises the manifest" else 1
                (copy / "manifests/web.yaml").write_bytes(SET.replace("n: 1", f"n: {number}").encode())
        said = world.run("index", "sync", "--pull-request")
        listed = world.run("pr", "list").out

    assert "as `apps/web/v2`, and proposes that `manifests/web.yaml` use it" in body
    assert "It changes 2 of 2 packages." in body
    assert "| `east/web, west/web` | +7 -7 in 3 files |" in body
    assert (said.code, "opened" in said.out) == (0, False), said
    assert "control#1" not in listed
