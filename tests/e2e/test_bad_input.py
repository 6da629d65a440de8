"""Bad input, row by row: each is named with place, reason and hint, stalls its owner alone, deletes nothing.

Every row is one change to a fleet that is already applied; its twin is the same fleet without it.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.base.errors import Exit
from reconciler.git.working_copy import NewCommit, create_bare
from tests.support.small_world import CONFIGURATION
from tests.support.world import EPOCH, World

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {}\n"
REPOSITORY = """\
---
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: {name}
  namespace: default
spec:
  deployment: {deployment}
  git:
    repo: ../{name}.git
"""
WEB = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: web
  namespace: default
spec:
  upstream:
    repo: blueprints
    package: web
    revision: 1
  targets:
  - objectSelector:
      apiVersion: example.com/v1
      kind: Cluster
      matchLabels:
        tier: edge
    template:
      downstream:
        repoExpr: "'edge-' + target.name"
"""
LOGS = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: logs
  namespace: default
spec:
  upstream:
    repo: blueprints
    package: logs
    revision: 1
  downstream:
    repo: edge-a
    package: logs
"""
CLUSTERS = """\
apiVersion: example.com/v1
kind: Cluster
metadata: {name: a, namespace: default, labels: {tier: edge}}
---
apiVersion: example.com/v1
kind: Cluster
metadata: {name: b, namespace: default, labels: {tier: edge}}
"""
HEADER = """\
apiVersion: reconciler.dev/v1alpha1
kind: Snapshot
metadata:
  name: mgmt
spec:
  time: "2026-01-01T00:00:00Z"
  served:
  - example.com/v1 Cluster
  lists:
  - group: example.com
    kind: Cluster
    namespace: "*"
    count: 2
    complete: true
"""
NAMES = ("blueprints", "edge-a", "edge-b")
CONTROL = {
    "reconciler.yaml": CONFIGURATION,
    "manifests/repositories.yaml": "".join(
        REPOSITORY.format(name=name, deployment=str(name != "blueprints").lower()) for name in NAMES
    ),
    "manifests/web.yaml": WEB,
    "manifests/logs.yaml": LOGS,
    "manifests/bystander.yaml": LOGS.replace("name: logs", "name: bystander").replace("edge-a", "edge-b"),
    "snapshot/clusters.yaml": CLUSTERS,
    "snapshot/snapshot.yaml": HEADER,
}
WEBS = ("edge-a/web", "edge-b/web")


class Row(NamedTuple):
    """One change to one file, and what a plan must say about it: the place, the code and the words."""

    file: str
    old: str
    new: str
    place: str
    code: str
    message: str = ""
    hint: str = ""
    exit_code: Exit = Exit.INVALID_INPUT

    @property
    def path(self) -> str:
        return f"{'' if '/' in self.file else 'manifests/'}{self.file}.yaml"

    @property
    def owned(self) -> tuple[str, ...]:
        """The packages that the file keeps: a snapshot and a set have those of the set."""
        return {"logs": LOG, "bystander": (*LOG, "edge-b/logs"), "repositories": ()}.get(self.file, WEBS)


LOG, YAML = ("edge-a/logs",), "Check quotes, indentation and brackets."
TWIN = LOGS.replace("name: logs", "name: bystander").replace("edge-a", "edge-b")
API, EXPRESSION = "config.porch.kpt.dev/v1alpha2", "\"'edge-' + target.name\""
ALSO, COUNT = "PackageVariant default/logs is also declared at manifests/logs.yaml:1", "should have 2 objects"
MISSING, KIND = "missing required field spec.upstream.package", "must be a string, but is the number 7"
PAUSE, KINDS = (
    "reconciler.dev/pause is unknown on a PackageVariantSet",
    "Put it in quotes, as it is written: ",
)
NO_API = "PackageVariantSet config.porch.kpt.dev/v1alpha1 is not supported"
PAUSED = '  name: web\n  annotations: {reconciler.dev/pause: "true"}\n'
ROWS = {
    "not YAML": Row("web", "spec:\n", "spec: }\n", "6:7", "InvalidYAML", "", YAML),
    "a duplicate key": Row("web", "web\n    rev", "web\n    package: w\n    rev", "10:5", "DuplicateKey",
        "'package'", "Keep one"),
    "an unknown field": Row("web", "Selector:", "Selecter:", "12:5", "UnknownField", "[0].objectSelecter",
        "Did you mean objectSelector?"),
    "a value of a wrong type": Row("logs", "logs\n    rev", "7\n    rev", "9:14", "InvalidManifest", KIND,
        KINDS),
    "a misspelt annotation": Row("web", "  name: web\n", PAUSED, "5:17", "UnknownAnnotation", PAUSE,
        "reconciler.dev/paused?"),
    "a missing field": Row("logs", "    package: logs\n    rev", "    rev", "8", "ValidationError", MISSING),
    "a version that nobody serves": Row("web", API, API[:-1] + "1", "1:13", "UnsupportedVersion", NO_API,
        "v1alpha2"),
    "a misspelt API group": Row("web", "kpt.dev", "kpt.io", "1:13", "UnknownGroup", "config.porch.kpt.io",
        f"Use apiVersion: {API}."),
    "a name twice": Row("bystander", TWIN, f"{TWIN}---\n{LOGS}", "15", "DuplicateObject", ALSO,
        "Keep one of them."),
    "an unregistered repository": Row("logs", "edge-a", "edge-x", "12", "RepositoryNotFound", "edge-x",
        "Register it"),
    "an upstream that is not there": Row("logs", "revision: 1", "revision: 9", "10", "UpstreamNotFound", "9",
        "v1"),
    "a CEL syntax error": Row("web", EXPRESSION, EXPRESSION.replace("+", "+ +"), "19:30", "InvalidExpression",
        "downstream.repoExpr"),
    "two targets with one downstream": Row("web", EXPRESSION, "\"'edge-a'\"", "", "DuplicateDownstream",
        "edge-a"),
    "two manifests with one downstream": Row("bystander", "edge-b", "edge-a", "", "DuplicateDownstream",
        "edge-a"),
    "a repository that cannot be opened": Row("repositories", "../edge-a", "../gone", "20:11",
        "RepositoryUnavailable", "gone", "Correct", Exit.UNAVAILABLE),
    "a directory outside of its repository": Row("repositories", "../edge-a.git\n",
        "../edge-a.git\n    directory: ../y\n", "21:16", "InvalidManifest",
        "'../y' is not a path inside the repository", "from the repository's root"),
    **{
        f"a directory for packages that is a {what}": Row(
            "repositories",
            "../edge-a.git\n",
            f"../edge-a.git\n    directory: {directory}\n",
            "21:16",
            "InvalidManifest",
            f"directory {directory} is a {what} on branch main",
            "Name a directory that holds packages",
        )
        for what, directory in {"package": "web", "file": "README.md"}.items()
    },
    "a revision that no package has": Row("logs", "revision: 1", "revision: 0", "10:15", "ValidationError",
        "not 0", "follow the latest"),
    "a snapshot that is no YAML": Row("snapshot/clusters", "---\n", "--- }\n", "", "InvalidSnapshot", "",
        YAML),
    "a snapshot that lost an object": Row("snapshot/clusters", CLUSTERS.partition("---\n")[2], "", "",
        "InvalidSnapshot", COUNT, "Import the snapshot again"),
}  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The fleet of CONTROL, applied and approved."""
    root = tmp_path_factory.mktemp("fleet") / "world"
    root.mkdir()
    create_bare(
        root / "control.git", [NewCommit("Start", {p: t.encode() for p, t in CONTROL.items()}, EPOCH)]
    )
    packages = {f"{name}/Kptfile": KPTFILE.format(name).encode() for name in ("web", "logs")}
    create_bare(root / "blueprints.git", [NewCommit("One", packages, EPOCH, ("web/v1", "logs/v1"))])
    for name in NAMES[1:]:
        create_bare(root / f"{name}.git", [NewCommit("Start", {"README.md": b"# here\n"}, EPOCH)])
    world = World(root)
    for command in (["apply"], ["approve", "--all"], ["apply"]):
        said = world.run(*command)
        assert said.code == Exit.DONE, said
    return world


Copy = Callable[..., World]


@pytest.fixture
def copy(fleet: World, tmp_path: Path) -> Copy:
    """Return a copy of the applied fleet with one commit that changes files (None removes one)."""

    def make(changes: Mapping[str, str | None]) -> World:
        shutil.copytree(fleet.root, tmp_path / "world")
        world = World(tmp_path / "world")
        with changed(world) as directory:
            for path, text in changes.items():
                if text is None:
                    (directory / path).unlink()
                else:
                    (directory / path).write_text(text)
        return world

    return make


@contextmanager
def changed(world: World) -> Iterator[Path]:
    with world.edit("control", "Break it") as directory:
        yield directory


def plan(world: World, *options: str) -> tuple[int, dict[str, Any]]:
    said = world.run("plan", "--output", "json", *options)
    assert said.out, said.err
    return said.code, json.loads(said.out)


def place(problem: Mapping[str, Any]) -> str:
    location = problem["location"]
    return ":".join(str(part) for part in (location["path"], location["line"], location["column"]) if part)


def blamed(row: Row, planned: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the problems of a plan that say what the row expects."""
    return [
        problem
        for problem in planned["problems"]
        if problem["reason"] == row.code
        and f"{place(problem)}:".startswith(f"{row.path}:{row.place}:" if row.place else "")
        and row.message in problem["message"]
        and problem["hint"]
        and row.hint in problem["hint"]
    ]


def ops(planned: Mapping[str, Any]) -> dict[str, str]:
    return {change["name"]: change["op"] for change in planned["changes"]}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_bad_input_is_named_and_harmless(row: Row, copy: Copy, twin: dict[str, Any]) -> None:
    """A new variant of another owner is created beside whatever is wrong."""
    assert row.old in CONTROL[row.path]
    fresh = TWIN.replace("bystander", "fresh").replace("logs\n    rev", "web\n    rev")
    fresh = fresh.replace("    package: logs\n", "    package: fresh\n")
    broken = {row.path: CONTROL[row.path].replace(row.old, row.new, 1), "manifests/fresh.yaml": fresh}
    code, planned = plan(copy(broken))

    said = [(place(p), p["reason"], p["message"], p["hint"]) for p in planned["problems"]]
    assert blamed(row, planned), said
    assert blamed(row, twin) == []
    assert code == row.exit_code
    assert "delete" not in ops(planned).values()
    assert {name: ops(planned).get(name) for name in row.owned} == dict.fromkeys(row.owned, "keep")
    assert (ops(planned)["edge-b/logs"], ops(planned)["edge-b/fresh"]) == ("keep", "create")


@pytest.fixture(scope="module")
def twin(fleet: World) -> dict[str, Any]:
    code, planned = plan(fleet)
    assert (code, planned["problems"]) == (Exit.DONE, [])
    assert set(ops(planned).values()) == {"keep"}
    return planned


@pytest.mark.parametrize("name", ["edge-a", "blueprints"])
def test_users_of_an_invalid_repository_are_sent_to_its_manifest(copy: Copy, name: str) -> None:
    address = f"../{name}.git\n"
    broken = CONTROL["manifests/repositories.yaml"].replace(address, f"{address}    directory: ../y\n")

    planned = plan(copy({"manifests/repositories.yaml": broken}))[1]

    users = [p for p in planned["problems"] if p["location"]["path"] != "manifests/repositories.yaml"]
    assert len(users) >= 2
    assert not [p["hint"] for p in users if "Register it" in p["hint"]]


COMMANDS = ("plan", "status", "status default/logs", "lock --check", "snapshot kinds")


@pytest.mark.parametrize("command", [*COMMANDS, "explain blueprints/web", "approve blueprints/web"])
@pytest.mark.parametrize(
    ("edit", "reason", "code"),
    [
        (("../blueprints", "../gone"), "RepositoryUnavailable", Exit.UNAVAILABLE),
        (("  git:", "  type: oci\n  git:"), "InvalidManifest", Exit.INVALID_INPUT),
    ],
    ids=["unreachable", "wrong"],
)
def test_users_of_an_unread_repository_stall_for_its_reason(
    copy: Copy, edit: tuple[str, str], reason: str, code: Exit, command: str
) -> None:
    text = CONTROL["manifests/repositories.yaml"]
    world = copy({"manifests/repositories.yaml": text.replace(*edit, 1)})

    asked = world.run(*command.split(), *(["--output", "json"] if command.startswith("status") else []))

    output, others = asked.out + asked.err, {"RepositoryUnavailable", "InvalidManifest"} - {reason}
    assert asked.code == code, output
    assert not [other for other in others if other in output]
    if command.startswith("status"):
        assert f'"reason": "{reason}"' in output
    else:
        assert "manifests/repositories.yaml:" in output
        assert not [path for path in ("manifests/web.yaml:", "manifests/logs.yaml:") if path in output]


def test_an_empty_snapshot_deletes_nothing(copy: Copy) -> None:
    _, planned = plan(copy({"snapshot/clusters.yaml": None, "snapshot/snapshot.yaml": None}))

    assert {ops(planned)[name] for name in WEBS} == {"keep"}
    assert "delete" not in ops(planned).values()


def test_a_snapshot_that_says_that_it_is_empty_is_believed(copy: Copy) -> None:
    """The twin of the empty snapshot: with positive evidence the set may shrink, with consent."""
    header = HEADER.replace("count: 2", "count: 0")
    world = copy({"snapshot/clusters.yaml": None, "snapshot/snapshot.yaml": header})

    code, planned = plan(world)
    assert (code, {ops(planned)[name] for name in WEBS}) == (Exit.REFUSED, {"keep"})

    world.consent()
    code, planned = plan(world)
    assert (code, {ops(planned)[name] for name in WEBS}) == (Exit.DONE, {"delete"})


def test_a_manifest_that_is_gone_deletes_what_it_owned(copy: Copy) -> None:
    """The twin of the one that stopped parsing: the same fleet, and the file is really removed."""
    _, planned = plan(copy({"manifests/web.yaml": None}))

    assert {ops(planned)[name] for name in WEBS} == {"delete"}


def test_a_file_that_is_read_no_more_is_not_gone(copy: Copy) -> None:
    code, planned = plan(copy({"reconciler.yaml": CONFIGURATION.replace("- manifests", "- manifest")}))

    assert code == Exit.INVALID_INPUT
    assert "delete" not in ops(planned).values()


def test_a_repository_without_configuration_is_told_how_to_begin(copy: Copy) -> None:
    said = copy({"reconciler.yaml": None}).run("plan")

    assert said.code == Exit.INVALID_INPUT
    assert "reconciler.yaml" in said.err
    assert "hint: Run `reconciler init`" in said.err
