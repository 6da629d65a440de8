"""Where a package may be installed, what is visible from where, and how a user changes a need."""

from typing import Any

import pytest

from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    ClusterState,
    ResolverSettings,
    build_catalogue,
)
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    InstallationType,
    Interface,
    PackageId,
    PackageNeed,
    Requirement,
    Share,
    Sharing,
    version_range,
)
from reconciler.dependencies.solve.alternatives import (
    CandidateLookup,
    RequirementContext,
    locked_alternatives,
    new_slots,
    slot_places,
)
from reconciler.dependencies.solve.problem import Cause, CauseKind, InstanceRequirement
from reconciler.dependencies.versions import parse_loose
from tests.support.dependency_worlds import pin as locked_as
from tests.support.values import replace

DB = PackageId(Ecosystem.CARVEL, "db.io")
LOG = PackageId(Ecosystem.CARVEL, "log.io")
MYSQL = PackageId(Ecosystem.BUNDLE, "r.io/mysql")
THING = Gvk("g.io", "v1", "Thing")
HERE = RequirementContext("shop", ("press",))


def need(package: PackageId = DB, text: str = "") -> PackageNeed:
    dialect = Dialect.PORTER if package is MYSQL else Dialect.CARVEL
    return PackageNeed(package, version_range(dialect, text))


def install(name: str = "mine", namespace: str = "shop", package: PackageId = DB, **fields: Any) -> Install:
    return Install(namespace, name, Dialect.CARVEL, need(package), **fields)


def candidate(package: PackageId, version: str, **fields: Any) -> Candidate:
    return Candidate(package, parse_loose(version), **fields)


# Slots

ONCE = InstallationType.ONE_PER_CLUSTER


def versions(package: PackageId, *once: bool) -> tuple[Candidate, ...]:
    kinds = {True: ONCE, False: InstallationType.ONE_PER_NAMESPACE}
    return tuple(
        candidate(package, f"{number}.0.0", installation=kinds[one]) for number, one in enumerate(once)
    )


EVERY = frozenset({0, 1})


@pytest.mark.parametrize(
    ("share", "slot"),
    [
        (Share(Sharing.EXCLUSIVE), Slot(SlotKind.FOR, "shop", ("press", "db"))),
        (Share(Sharing.NAMESPACE), Slot(SlotKind.SHARED, "shop")),
        (Share(Sharing.GLOBAL), Slot(SlotKind.SHARED)),
        (Share(), Slot(SlotKind.SHARED)),
        (
            Share(Sharing.NAMESPACE, "g", (("a", "b"),), (("inputs", "00"),)),
            Slot(SlotKind.SHARED, "shop", ("g", "a=b", "inputs=00")),
        ),
    ],
)
def test_bundle_has_a_slot_of_its_sharing(share: Share, slot: Slot) -> None:
    wanted = Requirement((need(MYSQL),), alias="db", share=share)

    assert [found for found, _ in new_slots(MYSQL, (), wanted, HERE)] == [slot]
    assert slot_places(Instance(*MYSQL, slot), versions(MYSQL, True, False)) == EVERY


# Look-ups


def lookup(*installs: Install, **fields: Any) -> CandidateLookup:
    published = [candidate(DB, text) for text in ("1.0.0", "2.0.0")]
    return CandidateLookup(
        ClusterInputs(installs, build_catalogue([*published, *fields.pop("more", ())]), **fields)
    )


SLOT = Slot(SlotKind.NAMESPACE, "shop")


def pin(version: str, slot: Slot = SLOT, package: PackageId = DB) -> Resolved:
    return locked_as(Instance(*package, slot), candidate(package, version))


def test_providers_are_known_where_discovery_is_on() -> None:
    more = [candidate(LOG, "1.0.0", provides=(THING,), interfaces=(Interface("io.x"),))] * 2
    on = ResolverSettings(discovery=True)

    assert lookup(more=more).providers == {}
    assert lookup(more=more, choices=on).providers == {THING: [LOG], "io.x": [LOG]}


def test_api_is_ours_if_the_lock_or_a_manifest_brought_it() -> None:
    maker = candidate(LOG, "1.0.0", provides=(THING,))
    owned = ClusterState(owners=((THING.group_kind, LOG),))

    assert not lookup(more=[maker]).is_ours(THING)
    assert lookup(install(package=LOG), more=[maker]).is_ours(THING)
    assert not lookup(install(package=LOG, external=True), more=[maker]).is_ours(THING)
    assert lookup(more=[maker], pins=(pin("1.0.0", package=LOG),)).is_ours(THING)
    assert not lookup(more=[maker], pins=(pin("2.0.0", package=LOG),)).is_ours(THING)
    assert not lookup(presence=owned).is_ours(THING)
    assert lookup(install(package=LOG), presence=owned).is_ours(THING)
    assert lookup(pins=(pin("2.0.0", package=LOG),), presence=owned).is_ours(THING)
    assert not lookup(Install("shop", "x", Dialect.CARVEL, need(LOG, ">=2.0.0")), more=[maker]).is_ours(THING)


@pytest.mark.parametrize(("text", "places"), [("", {0, 2}), (">=2.0.0", {2}), ("=3.0.0", set())])
def test_instance_of_the_lock_serves_in_versions_of_its_slot_that_the_need_allows(text: str, places) -> None:
    more = [candidate(LOG, f"{n}.0.0", installation=ONCE if n == 2 else None) for n in (1, 2, 4)]
    there = lookup(more=more, pins=(pin("1.0.0", package=LOG),))
    parent = Instance(*DB, SLOT)
    requirement = Requirement((need(LOG, text),), install=False)
    demand = InstanceRequirement(parent, requirement, (), Cause(CauseKind.REQUIRES, DB))

    ways = {way.instance: {*way.allowed} for way in locked_alternatives(demand, there)}

    assert ways == ({Instance(*LOG, SLOT): places} if places else {})


@pytest.mark.parametrize(("package", "kind"), [(DB, ""), (PackageId(Ecosystem.XPKG, "x.io/s3"), "Provider")])
def test_locked_version_has_the_kind_of_its_package_and_not_of_its_object(package, kind) -> None:
    assert replace(pin("1.0.0", package=package), kind=kind or "PackageInstall").candidate.kind == kind
