"""Which packages of a resolution stay when those that needed them go, on resolutions alone."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from reconciler.dependencies.lock.update import autoremove, leave_dependencies, retain_all
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolution, Resolved, Slot, SlotKind


def instance(
    name: str, kind: str = "namespace", namespace: str = "shop", ecosystem: str = "carvel"
) -> Instance:
    return Instance(ecosystem=ecosystem, name=name, slot=Slot(SlotKind(kind), namespace=namespace))


def package(
    name: str,
    *needs: str,
    by: str = "",
    user: bool = False,
    uninstall: bool = True,
    where: Instance | None = None,
    **fields: Any,
) -> Resolved:
    """Return a package that needs others; `by` are those that requested it, the first is its owner."""
    own = where or instance(name, "install" if user else "namespace")
    requested = tuple(named(parent) for parent in by.split())
    edges = tuple(
        MetNeed(
            signature=need,
            need="package",
            id=need,
            via="candidate",
            uninstall=uninstall,
            resolved=None if need == "nothing" else named(need),
        )
        for need in needs
    )
    return Resolved(
        instance=own,
        dialect="d",
        by_user=user,
        requested_by=() if user else requested,
        owner=None if user else next(iter(requested), None),
        dependencies=edges,
        **{"version": "1", **fields},
    )


def named(name: str) -> Instance:
    """Return the instance of a name; those that begin with `my-` are of users."""
    return instance(name, "install" if name.startswith("my-") else "namespace")


def resolution(*packages: Resolved, unused: str = "") -> Resolution:
    return Resolution(packages=packages, unused=tuple(map(named, unused.split())))


def told(result: Resolution) -> tuple[dict[str, str], list[str]]:
    """Return the packages with their owners, and the unused ones."""
    assert [p.instance for p in result.packages] == sorted(p.instance for p in result.packages)
    owners = {
        p.instance.name: "user" if p.by_user else p.owner.name if p.owner else "" for p in result.packages
    }
    return owners, [own.name for own in result.unused]


SHOP = package("my-shop", "db", user=True)
DB = package("db", "disk", "nothing", by="my-shop")
DISK = package("disk", by="db")
BEFORE = resolution(SHOP, DB, DISK)
USERS_ONLY = {"my-shop": "user"}


RETAINED: list[tuple[str, Resolution]] = [
    ("it has data to keep", resolution(SHOP, msgspec.structs.replace(DB, retain=True), DISK)),
    ("its parent leaves it", resolution(package("my-shop", "db", user=True, uninstall=False), DB, DISK)),
    ("it was retained before", resolution(SHOP, DB, DISK, unused="db")),
]


@pytest.mark.parametrize("before", [row[1] for row in RETAINED], ids=[row[0] for row in RETAINED])
def test_retained_package_stays_with_all_that_it_needs_until_it_is_pruned(before: Resolution) -> None:
    fresh = resolution(package("my-shop", user=True))

    kept = autoremove(fresh, before)

    assert told(kept) == ({"my-shop": "user", "db": "", "disk": "db"}, ["db", "disk"])
    assert {p.instance.name: p.requested_by for p in kept.packages if p.instance in kept.unused} == {
        "db": (),
        "disk": (named("db"),),
    }
    assert told(autoremove(fresh, before, prune=True)) == (USERS_ONLY, [])


def test_every_former_parent_must_allow_that_a_package_goes() -> None:
    second = package("my-blog", "db", user=True, uninstall=False)
    before = resolution(SHOP, second, package("db", by="my-shop my-blog"))

    assert told(autoremove(resolution(), before)) == ({"db": ""}, ["db"])


def test_package_that_a_user_removed_goes_though_it_had_data() -> None:
    before = resolution(package("my-shop", user=True, retain=True))

    assert told(autoremove(resolution(), before)) == ({}, [])


@pytest.mark.parametrize(
    ("user", "generated", "is_replaced"),
    [
        (instance("db", "install"), instance("db"), True),
        (instance("db", "install"), instance("db", "cluster", ""), True),
        (instance("db", "install", "other"), instance("db"), False),
        (instance("db", "install", "other"), instance("db", "cluster", ""), True),
        (instance("db2", "install"), instance("db"), False),
        (instance("db", "install", ecosystem="kpt"), instance("db"), False),
        (instance("db", "install"), instance("db", "for"), False),
        (instance("db", "install"), instance("db", "shared"), False),
    ],
)
def test_manifest_of_a_user_replaces_a_generated_package_in_the_same_place(
    user: Instance, generated: Instance, is_replaced: bool
) -> None:
    mine = package("x", user=True, where=user)
    before = resolution(package("y", where=generated, retain=True))

    left = autoremove(resolution(mine), before)

    assert (generated not in left.unused) is is_replaced
    theirs = msgspec.structs.replace(mine, by_user=False, owner=named("another"))
    assert autoremove(resolution(theirs), before).unused == (generated,)


def test_package_that_a_running_revision_needs_stays_though_nobody_wants_its_parent() -> None:
    fresh = resolution(package("my-shop", user=True))

    kept = autoremove(fresh, BEFORE, needed=frozenset({named("db")}))

    assert told(kept) == ({"my-shop": "user", "db": "my-shop", "disk": "db"}, [])
    running_alone = autoremove(resolution(), BEFORE, needed=frozenset({named("disk")}))
    assert told(running_alone) == ({"disk": "db"}, [])


def test_parents_that_are_gone_are_forgotten() -> None:
    before = resolution(
        SHOP, package("my-blog", "db", user=True), package("db", by="my-blog my-shop", retain=True)
    )
    fresh = resolution(SHOP, before.packages[2])

    (db,) = (p for p in autoremove(fresh, before).packages if p.instance.name == "db")

    assert (db.requested_by, db.owner) == ((named("my-shop"),), named("my-shop"))


def test_package_without_a_requesting_parent_belongs_to_those_that_it_satisfies() -> None:
    old = package("db", by="my-gone")
    users = [package(f"my-{name}", "db", user=True) for name in ("b", "a")]

    (db,) = (p for p in autoremove(resolution(*users, old), resolution()).packages if p.instance.name == "db")

    parents = (named("my-a"), named("my-b"))
    assert (db.requested_by, db.owner) == (parents, parents[0])
    (alone,) = autoremove(resolution(old), resolution()).packages
    assert (alone.requested_by, alone.owner) == (old.requested_by, old.owner)


# Manifests that may only be unreadable, and runs without dependencies


def test_every_locked_package_stays_where_manifests_may_be_unreadable() -> None:
    before = resolution(SHOP, DB, DISK, unused="disk")
    newer = package("db", by="my-shop", version="2")

    kept = retain_all(resolution(newer), before)

    assert told(kept) == ({"my-shop": "user", "db": "my-shop", "disk": "db"}, ["disk"])
    assert [p.version for p in kept.packages if p.instance.name == "db"] == ["2"]
    assert told(retain_all(resolution(DISK), before))[1] == []


def versions(result: Resolution) -> Mapping[str, tuple[str, str | None, list[str]]]:
    return {
        p.instance.name: (p.version, p.resolved_version, [edge.id for edge in p.dependencies])
        for p in result.packages
    }


def test_dependencies_stay_as_locked_and_remember_whose_they_are() -> None:
    fresh = resolution(package("my-shop", "other", user=True, version="2"), package("my-new", "x", user=True))

    left = leave_dependencies(fresh, BEFORE)

    assert versions(left) == {
        "my-shop": ("2", "1", ["db"]),
        "my-new": ("1", None, ["x"]),
        "db": ("1", None, ["disk", "nothing"]),
        "disk": ("1", None, []),
    }
    assert left.unused == ()


def test_dependencies_of_an_earlier_version_are_remembered_until_it_is_back() -> None:
    before = resolution(msgspec.structs.replace(SHOP, version="2", resolved_version="1"), DB, DISK)

    third = leave_dependencies(resolution(package("my-shop", user=True, version="3")), before)
    back = leave_dependencies(resolution(package("my-shop", user=True)), before)

    assert versions(third)["my-shop"] == ("3", "1", ["db"])
    assert versions(back)["my-shop"] == ("1", None, ["db"])


def test_package_that_a_user_removed_goes_unless_a_generated_one_needs_it() -> None:
    before = resolution(
        package("my-a", user=True), package("my-b", user=True), package("db", "my-b", by="my-a")
    )

    left = leave_dependencies(resolution(), before)

    assert set(versions(left)) == {"my-b", "db"}
