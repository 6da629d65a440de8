"""What people are told of a locked version that is no candidate any more, and stays."""

import pytest

from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.catalog.index import read_index
from reconciler.dependencies.lock.format import LockUpdate, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.report.locks import dependency_graph, lock_lines
from tests.support.dependency_manifests import install, package, world_of
from tests.support.values import replace

ASK = install("db", "db.io", ">=1.0.0")
KEY = "carvel:db.io@install/prod/db 1.1.0"
BROKEN = package("db.io", "1.1.0", "installationType: twice")


def locked_then(
    text: str, *, incomplete: frozenset[str] = frozenset(), unread: tuple[Location, ...] = ()
) -> LockUpdate:
    """Lock db.io 1.1.0, and decide once more with another catalogue."""
    before = replace(world_of(ASK + package("db.io", "1.0.0") + package("db.io", "1.1.0")), cluster="one")
    files = update_locks(FleetInputs((before,)), read_locks({})).files
    world = replace(world_of(ASK + text), cluster="one")
    return update_locks(FleetInputs((world,), incomplete, unread=unread), read_locks(files))


def told(decision: LockUpdate) -> list[str]:
    return [line.strip() for line in lock_lines(decision) if "unavailable" in line]


@pytest.mark.parametrize(
    ("text", "incomplete", "why"),
    [
        (package("db.io", "1.0.0"), frozenset[str](), "is no longer published"),
        (package("db.io", "1.0.0"), frozenset({"one"}), "cannot be found while some files cannot be read"),
        (package("db.io", "1.0.0"), frozenset({"two"}), "is no longer published"),
        (package("db.io", "1.0.0") + BROKEN, frozenset[str](), "was refused: config/cluster.yaml:"),
        (BROKEN, frozenset({"one"}), "was refused: config/cluster.yaml:"),
    ],
)
def test_locked_version_that_is_no_candidate_says_why(
    text: str, incomplete: frozenset[str], why: str
) -> None:
    decision = locked_then(text, incomplete=incomplete)

    (line,) = told(decision)
    assert line.startswith(f"unavailable: {KEY} {why}")
    assert line.endswith("; it stays")
    assert ("Input should be" in line or "installationType" in line) is why.startswith("was refused")
    (group,) = dependency_graph(decision)
    (note,) = (note for node in group.nodes for note in node.notes)
    assert note.startswith(why.removeprefix("is "))


def test_version_that_a_broken_file_of_the_index_may_have_is_not_called_unpublished() -> None:
    (line,) = told(locked_then(package("db.io", "1.0.0"), unread=(Location("index/db/a.yaml", 3),)))

    assert line == f"unavailable: {KEY} cannot be found while index/db/a.yaml:3 cannot be read; it stays"


def test_refused_version_of_the_index_is_known_by_package_and_version() -> None:
    header = {
        "apiVersion": "reconciler.dev/v1alpha1",
        "kind": "PackageVersion",
        "source": "x.io/aws",
        "version": "v1.0.0",
        "provides": ["nonsense"],
    }
    document = SourcedDocument(header, Source(Location("index/aws/v1.0.0/package.yaml", 1)))

    refused = read_index([document]).refused

    assert {name: [each.version for each in versions] for name, versions in refused.items()} == {
        "x.io/aws": ["v1.0.0"]
    }
