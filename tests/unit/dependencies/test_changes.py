"""Which versions change between two resolutions, why, and in which clusters."""

from typing import Any

import msgspec
import pytest

from reconciler.dependencies.lock.changes import (
    MoveOp,
    VersionChange,
    cluster_changes,
    object_version_changes,
    resolution_changes,
    version_changes,
)
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockUpdate, next_lock
from reconciler.dependencies.model.instances import (
    ActivationBlocker,
    DesiredState,
    Instance,
    LockedRevision,
    MetNeed,
    OwnershipEntry,
    Resolution,
    Resolved,
    Slot,
    SlotKind,
)
from reconciler.dependencies.model.packages import Ecosystem


def instance(name: str) -> Instance:
    return Instance(ecosystem=Ecosystem.CARVEL, name=name, slot=Slot(SlotKind.CLUSTER))


def package(name: str, version: str = "1.0.0", *by: str, **fields: Any) -> Resolved:
    return Resolved(
        instance=instance(name),
        dialect="carvel",
        version=version,
        by_user="user" in by,
        requested_by=tuple(instance(who) for who in by if who != "user"),
        **{"owner": instance(by[0]) if by and by[0] != "user" else None, **fields},
    )


def asking(
    name: str, constraints: str, *, of: str = "db", dialect: str = "carvel", resolved: str = ""
) -> Resolved:
    """Return a package that asks for versions of another one."""
    need = MetNeed(
        signature="s",
        need="package",
        id=f"carvel:{of}",
        dialect=dialect,
        constraints=constraints,
        resolved=instance(resolved or of),
        via="candidate",
    )
    return package(name, dependencies=(need,))


def changes(old: list[Resolved], new: list[Resolved]) -> list[tuple[str, str, str, str, str]]:
    found = resolution_changes(Resolution(packages=tuple(old)), Resolution(packages=tuple(new)))
    return [(str(c.op), c.instance.partition("@")[0], c.before, c.after, c.why) for c in found]


FITS = "the version that fits best now"

MANY = "; ".join([*(f"carvel:{who}@cluster asks for it" for who in "abc"), "and 2 more"])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([package("db")], [package("db")], []),
        ([package("db")], [], [("remove", "carvel:db", "1.0.0", "", "nothing requires it any more")]),
        ([], [package("db", "1.0.0", "user", "a")],
            [("add", "carvel:db", "", "1.0.0", "a manifest asks for it; carvel:a@cluster asks for it")]),
        ([], [package("db", "1.0.0", "a", "b", "c", "d", "e")], [("add", "carvel:db", "", "1.0.0", MANY)]),
        ([package("db")], [package("db", "2.0.0")], [("change", "carvel:db", "1.0.0", "2.0.0", FITS)]),
        ([package("db")], [package("db", "2.0.0", "user")],
            [("change", "carvel:db", "1.0.0", "2.0.0", "its manifest asks for it")]),
        ([package("db", digest="sha256:1")], [package("db", digest="sha256:2")],
            [("change", "carvel:db", "1.0.0", "1.0.0", "its content changed under the same version")]),
    ],
)  # fmt: skip
def test_change_of_a_version_has_its_cause(old, new, expected) -> None:
    assert changes(old, new) == expected


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("dev", [("change", "carvel:log", "db 1.0.0", "log 1.0.0", "a manifest asks for it")]),
        ("prod", [("remove", "carvel:db", "1.0.0", "", "nothing requires it any more"),
            ("add", "carvel:log", "", "1.0.0", "a manifest asks for it")]),
    ],
)  # fmt: skip
def test_object_that_installs_another_package_is_one_change(namespace, expected) -> None:
    before, after = (
        msgspec.structs.replace(
            package(name, "1.0.0", "user", kind="PackageInstall"),
            instance=Instance(Ecosystem.CARVEL, name, Slot(SlotKind.CLUSTER, space)),
            name="store",
        )
        for name, space in (("db", "dev"), ("log", namespace))
    )

    assert sorted(changes([before], [after])) == sorted(expected)


@pytest.mark.parametrize(
    ("constraints", "dialect", "excludes"),
    [
        (">=2.0.0", "carvel", True),
        (">=1.0.0", "carvel", False),
        ("", "carvel", False),
        (">=v2", "crossplane", True),
        ("v1.0.0", "crossplane", False),
        (f"sha256:{'0' * 64}", "crossplane", True),
        ("no range", "carvel", False),
    ],
)
def test_requirement_that_excludes_the_old_version_is_the_cause(constraints, dialect, excludes) -> None:
    parent = asking("web", constraints, dialect=dialect)

    ((*_, why),) = changes([package("db"), parent], [package("db", "2.0.0"), parent])

    assert why == (f"carvel:web@cluster asks for {constraints}" if excludes else FITS)


def test_changes_of_objects_are_told_by_path_or_by_their_package() -> None:
    new = {"a.yaml": package("db", "2.0.0", "user"), "b.yaml": package("log", "1.0.0", "x")}
    before = {"a.yaml": "1.0.0", "c.yaml": "1.0.0", "same.yaml": "1.0.0"}
    after = {"a.yaml": "2.0.0", "b.yaml": "1.0.0", "same.yaml": "1.0.0"}

    assert object_version_changes(before, after, new, Resolution(), "edge") == (
        VersionChange(
            MoveOp.CHANGE, "carvel:db@cluster", "1.0.0", "2.0.0", "its manifest asks for it", ("edge",)
        ),
        VersionChange(
            MoveOp.ADD, "carvel:log@cluster", "", "1.0.0", "carvel:x@cluster asks for it", ("edge",)
        ),
        VersionChange(MoveOp.REMOVE, "c.yaml", "1.0.0", "", "nothing requires it any more", ("edge",)),
    )


# Changes beside versions


ON, OFF = DesiredState.ACTIVE, DesiredState.INACTIVE
NET = Resolved(
    instance=Instance(ecosystem=Ecosystem.XPKG, name="net", slot=Slot(SlotKind.CLUSTER)),
    dialect="crossplane",
    version="v1",
    kind="Provider",
    name="net",
    by_user=True,
)

APP = msgspec.structs.replace(NET.instance, name="app")


def revision(number: int, state: DesiredState, name: str = "", **fields: Any) -> LockedRevision:
    return LockedRevision(
        package="Provider/net", name=name or f"net-{number}", revision=number, desired_state=state, **fields
    )


def lock_of(
    *revisions: LockedRevision, packages: tuple[Resolved, ...] = (NET,), **fields: Any
) -> ClusterLock:
    resolution = Resolution(packages=packages, **fields)
    return ClusterLock(
        next_lock("any", input_digest="", resolution=resolution, revisions=revisions), resolution
    )


def kinds(**entries: OwnershipEntry) -> ClusterLock:
    return lock_of(custom_resource_definitions=entries)


def held(package: str, controller: str = "net-1") -> OwnershipEntry:
    owner = msgspec.structs.replace(NET.instance, name=package)
    return OwnershipEntry(package=owner, controller=controller, retained=not controller)


WAITS = revision(2, OFF, awaits=ActivationBlocker.PERSON)
FIRST, ASKS = (
    "revision 1 of Provider/net",
    "awaits activation: set desiredState: Active in a ProviderRevision",
)
LIFECYCLE = {
    "nothing": (lock_of(revision(1, ON)), lock_of(revision(1, ON)), ""),
    "activated": (lock_of(revision(1, OFF)), lock_of(revision(1, ON)),
        "revision: activate net-1 Inactive -> Active: revision 1 of Provider/net"),
    "replaced": (lock_of(revision(1, ON)), lock_of(revision(1, OFF), revision(2, ON)),
        "revision: activate net-2 Active: revision 2 of Provider/net, in place of net-1"),
    "rolled back": (lock_of(revision(1, OFF), revision(2, ON)),
        lock_of(revision(2, OFF), revision(3, ON, "net-1")),
        "revision: roll back net-1 Inactive -> Active: revision 3 of Provider/net, in place of net-2"),
    "stopped": (lock_of(revision(1, ON)), lock_of(revision(1, OFF)),
        f"revision: deactivate net-1 Active -> Inactive: {FIRST}; no revision of it runs any more"),
    "waits": (lock_of(revision(1, ON)), lock_of(revision(1, ON), WAITS),
        f"revision: wait net-2 Inactive: revision 2 of Provider/net {ASKS} net-2"),
    "discarded": (lock_of(revision(1, OFF), revision(2, ON)), lock_of(revision(2, ON)),
        "revision: discard net-1 Inactive: revision 1 of Provider/net, beyond the history limit"),
    "handed over": (kinds(**{"a.io": held("net")}), kinds(**{"a.io": held("other", "other-1")}),
        "kind: hand over a.io net -> other: other-1 controls it"),
    "released": (kinds(**{"a.io": held("net")}), kinds(**{"a.io": held("net", "")}),
        "kind: release a.io net: it stays without a controller: its objects may be data"),
    "a composition released": (lock_of(compositions={"a.io": held("net")}),
        lock_of(compositions={"a.io": held("net", "")}),
        "kind: release the composition a.io net: it stays without a controller: composites may use it"),
    "taken": (kinds(**{"a.io": OwnershipEntry(retained=True)}), kinds(**{"a.io": held("net")}),
        "kind: take a.io net: net-1 controls it"),
    "dropped": (kinds(**{"a.io": held("net")}), kinds(), "kind: drop a.io net: no revision has it any more"),
    "out of use": (lock_of(), lock_of(unused=(NET.instance,)),
        "package: retire xpkg:net@cluster: nothing needs it any more; `reconciler lock --prune` removes it"),
    "used in place of another": (lock_of(packages=(asking("app", ">=1"),)),
        lock_of(packages=(asking("app", ">=1", resolved="mine"),)),
        "package: replace carvel:db@cluster: carvel:mine@cluster takes its place for carvel:app@cluster"),
    "used again": (lock_of(unused=(NET.instance,)), lock_of(),
        "package: use xpkg:net@cluster: something needs it again"),
    "of another owner": (lock_of(),
        lock_of(packages=(msgspec.structs.replace(NET, by_user=False, owner=APP),)),
        "package: reassign xpkg:net@cluster a manifest -> xpkg:app@cluster: its owner is another one"),
    "anything else": (lock_of(),
        lock_of(packages=(msgspec.structs.replace(NET, requested_by=(instance("x"),)),)),
        "lock: needs are met otherwise, by the same versions"),
}  # fmt: skip


@pytest.mark.parametrize("case", LIFECYCLE)
def test_everything_that_a_lock_decides_has_a_row(case: str) -> None:
    before, after, want = LIFECYCLE[case]

    found = list(cluster_changes(ClusterUpdate("dev", before, after)))

    assert [move.line for move in found] == ([want] if want else [])


def test_dangerous_changes_come_first() -> None:
    before = lock_of(revision(1, ON), custom_resource_definitions={"a.io": held("net")})
    after = lock_of(revision(1, OFF), revision(2, ON), packages=(msgspec.structs.replace(NET, version="v2"),))

    moves = version_changes(LockUpdate((ClusterUpdate("dev", before, after),)))

    assert [move.op for move in moves] == [MoveOp.DROP, MoveOp.ACTIVATE, MoveOp.CHANGE]
    assert [move.op.is_dangerous for move in moves] == [True, True, False]
