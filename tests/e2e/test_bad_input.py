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
from tests.support.world import EPOCH, World

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {}\n"
CONFIG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifests: [manifests]
"""
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
    "reconciler.yaml": CONFIG,
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
    """One change to one file (None: the file is removed), and what a plan must say about it."""

    reason: str
    path: str
    old: str
    new: str
    where: str
    code: str
    message: str
    hint: str
    owned: tuple[str, ...]
    exit_code: Exit = Exit.INVALID_INPUT


ROWS = [
    Row(
        "not YAML",
        "manifests/web.yaml",
        "spec:\n",
        "spec: }\n",
        "manifests/web.yaml:6:7",
        "InvalidYAML",
        "",
        "Check quotes, indentation and brackets.",
        WEBS,
    ),
    Row(
        "a duplicate key",
        "manifests/web.yaml",
        "    package: web\n",
        "    package: web\n    package: web\n",
        "manifests/web.yaml:10:5",
        "DuplicateKey",
        "'package'",
        "Keep one of the two.",
        WEBS,
    ),
    Row(
        "an unknown field",
        "manifests/web.yaml",
        "  - objectSelector:",
        "  - objectSelecter:",
        "manifests/web.yaml:12:5",
        "UnknownField",
        "Unknown field spec.targets[0].objectSelecter",
        "Did you mean objectSelector?",
        WEBS,
    ),
    Row(
        "a value of a wrong type",
        "manifests/logs.yaml",
        "    package: logs\n    revision",
        "    package: 7\n    revision",
        "manifests/logs.yaml:9:14",
        "InvalidManifest",
        "must be a string, but is the number 7",
        "Put it in quotes, as it is written: without them it is a number.",
        ("edge-a/logs",),
    ),
    Row(
        "a misspelt annotation of ours on a set",
        "manifests/web.yaml",
        "  name: web\n",
        '  name: web\n  annotations: {reconciler.dev/pause: "true"}\n',
        "manifests/web.yaml:5:17",
        "UnknownAnnotation",
        "reconciler.dev/pause is unknown on a PackageVariantSet",
        "Did you mean reconciler.dev/paused?",
        WEBS,
    ),
    Row(
        "a missing required field of a variant",
        "manifests/logs.yaml",
        "    package: logs\n    revision: 1\n",
        "    revision: 1\n",
        "manifests/logs.yaml:8",
        "ValidationError",
        "missing required field spec.upstream.package",
        "",
        ("edge-a/logs",),
    ),
    Row(
        "a set of a version that nobody serves",
        "manifests/web.yaml",
        "config.porch.kpt.dev/v1alpha2",
        "config.porch.kpt.dev/v1alpha1",
        "manifests/web.yaml:1:13",
        "UnsupportedVersion",
        "PackageVariantSet config.porch.kpt.dev/v1alpha1 is not supported",
        "v1alpha2",
        WEBS,
    ),
    Row(
        "a misspelt API group",
        "manifests/web.yaml",
        "config.porch.kpt.dev/v1alpha2",
        "config.porch.kpt.io/v1alpha2",
        "manifests/web.yaml:1:13",
        "UnknownGroup",
        "Unknown API group config.porch.kpt.io",
        "Use apiVersion: config.porch.kpt.dev/v1alpha2.",
        WEBS,
    ),
    Row(
        "a name twice",
        "manifests/bystander.yaml",
        LOGS.replace("name: logs", "name: bystander").replace("edge-a", "edge-b"),
        LOGS.replace("name: logs", "name: bystander").replace("edge-a", "edge-b") + "---\n" + LOGS,
        "manifests/bystander.yaml:15",
        "DuplicateObject",
        "PackageVariant default/logs is also declared at manifests/logs.yaml:1",
        "Keep one of them.",
        ("edge-a/logs",),
    ),
    Row(
        "an unregistered repository",
        "manifests/logs.yaml",
        "    repo: edge-a",
        "    repo: edge-x",
        "manifests/logs.yaml:12",
        "RepositoryNotFound",
        "edge-x",
        "Register it",
        ("edge-a/logs",),
    ),
    Row(
        "an upstream that does not exist",
        "manifests/logs.yaml",
        "    revision: 1",
        "    revision: 9",
        "manifests/logs.yaml:10",
        "UpstreamNotFound",
        "9",
        "v1",
        ("edge-a/logs",),
    ),
    Row(
        "a CEL expression with a syntax error",
        "manifests/web.yaml",
        "\"'edge-' + target.name\"",
        "\"'edge-' + + target.name\"",
        "manifests/web.yaml:19:30",
        "InvalidExpression",
        "template.downstream.repoExpr",
        "",
        WEBS,
    ),
    Row(
        "two targets with one downstream",
        "manifests/web.yaml",
        "\"'edge-' + target.name\"",
        "\"'edge-a'\"",
        "manifests/web.yaml",
        "DuplicateDownstream",
        "edge-a",
        "",
        WEBS,
    ),
    Row(
        "two manifests with one downstream",
        "manifests/bystander.yaml",
        "    repo: edge-b",
        "    repo: edge-a",
        "manifests/bystander.yaml",
        "DuplicateDownstream",
        "edge-a",
        "",
        ("edge-a/logs", "edge-b/logs"),
    ),
    Row(
        "a repository that cannot be opened",
        "manifests/repositories.yaml",
        "    repo: ../edge-a.git",
        "    repo: ../edge-gone.git",
        "manifests/repositories.yaml:20:11",
        "RepositoryUnavailable",
        "edge-gone",
        "Correct the path",
        (),
        Exit.UNAVAILABLE,
    ),
    Row(
        "a snapshot file that is not JSON",
        "snapshot/clusters.yaml",
        "---\n",
        "--- }\n",
        "snapshot/clusters.yaml",
        "InvalidSnapshot",
        "",
        "Check quotes, indentation and brackets.",
        WEBS,
    ),
    Row(
        "a snapshot that lost an object",
        "snapshot/clusters.yaml",
        CLUSTERS.partition("---\n")[2],
        "",
        "snapshot/snapshot.yaml:10:5",
        "InvalidSnapshot",
        "should have 2 objects, but has 1",
        "Import the snapshot again",
        WEBS,
    ),
]


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
        and f"{place(problem)}:".startswith(f"{row.where}:")
        and row.message in problem["message"]
        and problem["hint"]
        and row.hint in problem["hint"]
    ]


def ops(planned: Mapping[str, Any]) -> dict[str, str]:
    return {change["name"]: change["op"] for change in planned["changes"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.reason)
def test_bad_input_is_named_and_harmless(row: Row, copy: Copy) -> None:
    assert row.old in CONTROL[row.path]
    code, planned = plan(copy({row.path: CONTROL[row.path].replace(row.old, row.new, 1)}))

    said = [(place(p), p["reason"], p["message"], p["hint"]) for p in planned["problems"]]
    assert blamed(row, planned), said
    assert code == row.exit_code
    assert "delete" not in ops(planned).values()
    assert {name: ops(planned).get(name) for name in row.owned} == dict.fromkeys(row.owned, "keep")
    assert ops(planned)["edge-b/logs"] == "keep"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.reason)
def test_its_twin_without_the_fault_says_nothing(row: Row, twin: dict[str, Any]) -> None:
    assert blamed(row, twin) == []


@pytest.fixture(scope="module")
def twin(fleet: World) -> dict[str, Any]:
    code, planned = plan(fleet)
    assert (code, planned["problems"]) == (Exit.DONE, [])
    assert set(ops(planned).values()) == {"keep"}
    return planned


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.reason)
def test_the_others_proceed(row: Row, copy: Copy) -> None:
    """A new variant of another owner is created beside whatever is wrong."""
    broken = {row.path: CONTROL[row.path].replace(row.old, row.new, 1)}
    new = LOGS.replace("name: logs", "name: fresh").replace("edge-a", "edge-b")
    fresh = new.replace("    package: logs\n    revision", "    package: web\n    revision").replace(
        "    package: logs\n", "    package: fresh\n"
    )
    _, planned = plan(copy({**broken, "manifests/fresh.yaml": fresh}))

    assert ops(planned)["edge-b/fresh"] == "create"


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
    code, planned = plan(copy({"reconciler.yaml": CONFIG.replace("[manifests]", "[manifest]")}))

    assert code == Exit.INVALID_INPUT
    assert "delete" not in ops(planned).values()


def test_a_repository_without_configuration_is_told_how_to_begin(copy: Copy) -> None:
    said = copy({"reconciler.yaml": None}).run("plan")

    assert said.code == Exit.INVALID_INPUT
    assert "reconciler.yaml" in said.err
    assert "hint: Run `reconciler init`" in said.err
