"""Hostile archives through every door: charts in packages, newer charts, layers of images, files of a person.

Each is refused by the names of its member and of the archive, and what comes beside it proceeds.
"""

import gzip
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.e2e.test_index_charts import make_world
from tests.e2e.test_index_sync import CONFIGURATION, HOST, fleet_of, meta
from tests.e2e.test_package_from_chart import index
from tests.support import small_world
from tests.support.archives import Hostile, Member, badly_named, clashing, hostile, tar
from tests.support.charts import DEPLOYMENT, KPTFILE, config, needs_helm
from tests.support.git import make_repository
from tests.support.registry import Answer, Asked, MemoryRegistry, serve_gate
from tests.support.world import Said, World, refs
from tools.bench.process import measure

MOST_MIB = 160
"""The memory of a command, of which half is its code. The bombs have 400 MiB each."""
METADATA = Member("web/Chart.yaml", b"apiVersion: v2\nname: web\nversion: 1.0.0\n")
NEWER = Member("web/Chart.yaml", METADATA.content.replace(b"1.0.0", b"1.1.0"))
TEMPLATE = Member("web/templates/a.yaml", DEPLOYMENT.replace("{{ .Values.replicas }}", "1").encode())
GOOD = gzip.compress(tar(METADATA, TEMPLATE))


def numbered(cases: Mapping[str, Hostile]) -> dict[str, Hostile]:
    """Return cases by names that packages and images may have."""
    return {f"case-{number:02}": case for number, case in enumerate(cases.values())}


def charts(first: Member, more: Mapping[str, Hostile] = {}) -> dict[str, Hostile]:
    return numbered(hostile(TEMPLATE.name, first) | badly_named("web", first) | more)


def missing(cases: Mapping[str, Hostile], said: Said) -> dict[str, str]:
    """Return the cases that are not told on one line with their origin and their fault."""
    lines = f"{said.out}\n{said.err}".splitlines()
    return {
        name: case.why
        for name, case in cases.items()
        if not any(name in line and case.why in line for line in lines)
    }


def packages_of(root: Path, archives: Mapping[str, bytes]) -> World:
    """Return a small world in which the package of each name has an archive as its chart."""
    world = World(root)
    small_world.write_world(root, ("edge-1",))
    pipeline = {"Kptfile": KPTFILE, "chart.yaml": config()}
    upstream = make_repository(
        root / "charts.git",
        {
            f"{name}/{path}": content
            for name, data in archives.items()
            for path, content in {**pipeline, "charts/web.tgz": data}.items()
        },
    )
    with world.edit("control", "Use the charts") as copy:
        text = small_world.repository("charts").replace("deployment: true", "deployment: false")
        (copy / "manifests/repositories/charts.yaml").write_text(text)
        for name in archives:
            upstream.tag(f"{name}/v1")
            variant = small_world.variant("edge-1", name).replace("repo: blueprints", "repo: charts")
            (copy / small_world.manifest("edge-1", name)).write_text(variant)
    return world


def manifests_for(images: Iterable[str]) -> dict[str, str]:
    """Return manifests that need the package of each image."""
    manifest = CONFIGURATION.replace("name: platform", "name: {name}")
    return {
        f"{name}.yaml": manifest.replace("{name}", name).format(image=f"{HOST}/acme/{name}:v1.0.0")
        for name in images
    }


@needs_helm
def test_package_of_a_hostile_chart_is_blocked_and_others_are_proposed(tmp_path: Path) -> None:
    cases = charts(METADATA)
    world = packages_of(tmp_path / "w", {name: case.data for name, case in cases.items()} | {"good": GOOD})

    said = world.run("apply")

    assert (said.code, missing(cases, said)) == (7, {}), said
    assert f"3 to create, {len(cases)} blocked" in said.out
    assert [
        ref for ref in refs(world.root / "edge-1.git") if "drafts/good" in ref or "drafts/case" in ref
    ] == ["refs/heads/drafts/good/packagevariant-1"]


def test_newer_chart_that_is_hostile_is_not_proposed_and_others_are(tmp_path: Path) -> None:
    cases = charts(NEWER, clashing("web", NEWER))
    newer = {name: case.data for name, case in cases.items()} | {"good": gzip.compress(tar(NEWER))}
    there: dict[str, bytes] = {}

    def answer(asked: Asked) -> Answer:
        repository, _, file = asked.path.removeprefix("/stable/").partition("/")
        if file == "index.yaml":
            return Answer(200, index(*(["1.0.0", "1.1.0"] if there else ["1.0.0"])))
        return Answer(200, there[repository] if "1.1.0" in file else GOOD)

    with serve_gate() as gate:
        gate.plan = answer
        mirror = f"  registries: {{mirrors: {{charts.example.com: 'http://{gate.address}'}}}}\n"
        world = make_world(tmp_path, mirror, "https://charts.example.com/stable/good/web", "^1")
        with world.edit("blueprints", "A package of each chart") as copy:
            for name in newer:
                if name != "good":
                    shutil.copytree(copy / "apps/web", copy / "apps" / name)
                    text = (copy / "apps" / name / "chart.yaml").read_text()
                    (copy / "apps" / name / "chart.yaml").write_text(text.replace("/good/", f"/{name}/"))
        there |= newer

        said = world.run("index", "sync", "--pull-request")

    assert (said.code, missing(cases, said)) == (3, {}), said
    pushed = [ref for ref in refs(world.root / "blueprints.git") if "/chart/" in ref]
    assert pushed == ["refs/heads/reconciler/main/chart/apps/web/next"]
    assert not [name for name in cases if f"apps/{name}\n" in said.out]


def test_image_with_a_hostile_layer_is_left_out_and_others_come_into_the_index(tmp_path: Path) -> None:
    cases = numbered(hostile("package.yaml", Member("README.md")))
    registry = MemoryRegistry()
    for name, case in cases.items():
        registry.push_xpkg(f"acme/{name}", "v1.0.0", case.data)
    registry.push_xpkg("acme/good", "v1.0.0", meta("Provider"))

    with serve_gate() as gate:
        gate.plan = registry
        fleet = fleet_of(tmp_path, (registry, gate), manifests_for([*cases, "good"]))
        said = fleet.run("index", "sync")

    assert (said.code, missing(cases, said)) == (0, {}), said
    assert fleet.versions() == [f"{HOST}/acme/good/v1.0.0"]


BOMBS = {
    *("header x", "header g", "header L", "many headers", "many files"),
    *("large file", "sparse", "sparse of POSIX", "map of holes without an end"),
}


def peak_mib(directory: Path, *arguments: object, code: int) -> float:
    """Return the peak of memory of a command in processes of its own."""
    command = [str(Path(sys.executable).with_name("reconciler")), *map(str, arguments)]
    return measure(command, directory, times=1, warm=False, code=code).peak_mib


@pytest.mark.slow
def test_bombs_take_no_more_memory_than_their_limits(tmp_path: Path) -> None:
    in_charts = numbered({n: case for n, case in hostile(TEMPLATE.name, METADATA).items() if n in BOMBS})
    world = packages_of(tmp_path / "w", {name: case.data for name, case in in_charts.items()})
    planned = peak_mib(tmp_path, "plan", "--control", world.control, "--cache-dir", tmp_path / "c", code=7)
    (tmp_path / "web.tgz").write_bytes(in_charts["case-00"].data)
    made = peak_mib(tmp_path, "package", "from-chart", "web.tgz", "made", code=4)
    in_layers = numbered({n: c for n, c in hostile("package.yaml", Member("a")).items() if n in BOMBS})
    registry = MemoryRegistry()
    for name, case in in_layers.items():
        registry.push_xpkg(f"acme/{name}", "v1.0.0", case.data)
    with serve_gate() as gate:
        gate.plan = registry
        fleet = fleet_of(tmp_path / "synced", (registry, gate), manifests_for(in_layers))
        synced = peak_mib(fleet.copy, "index", "sync", "--cache-dir", tmp_path / "c", code=0)

    assert max(planned, made, synced) < MOST_MIB, (planned, made, synced)
