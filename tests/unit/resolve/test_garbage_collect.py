"""Generated variants that no lock needs: released, held for packages on main, or kept (law 4)."""

from collections.abc import Iterable
from functools import cache

import pytest

from reconciler.base.errors import Location
from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockScope, LockUpdate, PackageLock
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind
from reconciler.dependencies.model.instances import Resolution as LockedResolution
from reconciler.dependencies.model.packages import (
    Candidate,
    Ecosystem,
)
from reconciler.inventory.inventory import Inventory, RepositoryView, Source
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.generated import Leaving, find_leaving
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import a_desired_variant, a_pin, a_record, a_resolved, oid
from tests.support.sets import registered, repository, world
from tests.support.values import replace

BASE = ObjectName("default", "base")
TABLE: DecisionTable[bool] = DecisionTable(
    {
        "made by": ("dependents", "a manifest"),
        "needed": ("no", "yes"),
        "repository": ("of the cluster", "of no cluster", "not registered"),
        "lock of its cluster": ("resolved", "not finished", "none"),
        "lock of another cluster": ("resolved", "not finished"),
        "incomplete": ("nothing", "its cluster", "another cluster", "any cluster"),
    },
    [
        ({"made by": "a manifest"}, False, "it was not generated"),
        ({"needed": "yes"}, False, "a lock needs it"),
        ({"repository": ("of no cluster", "not registered")}, False, "its cluster is not known"),
        ({"lock of its cluster": "not finished"}, False, "its cluster was not resolved completely"),
        ({"incomplete": "its cluster"}, False, "a manifest of its cluster is not understood"),
        ({"incomplete": "any cluster"}, False, "a manifest that may be of any cluster is not understood"),
        ({}, True, "nothing needs it, and everything was understood"),
    ],
)


@cache
def inventory_of(cluster: str, *, registered: bool) -> Inventory:
    return world(views=(repository("edge", cluster=cluster),) if registered else ())


def is_released(case: Case) -> bool:
    record = a_record(
        name=BASE.name, requested_by=("default/web",) if case["made by"] == "dependents" else ()
    )
    where = case["repository"]
    inventory = inventory_of("prod" if where == "of the cluster" else "", registered="not" not in where)
    incomplete = {"its cluster": {"prod"}, "another cluster": {"dev"}, "any cluster": {""}}
    scopes = [ClusterUpdate("dev", None, None, finished=case["lock of another cluster"] == "resolved")]
    if case["lock of its cluster"] != "none":
        scopes.append(ClusterUpdate("prod", None, None, finished=case["lock of its cluster"] == "resolved"))
    leaving = find_leaving(
        replace(inventory, records={BASE: record}),
        PublishedPackages(),
        Resolution(),
        LockUpdate(tuple(scopes)),
        needed=frozenset({BASE} if case["needed"] == "yes" else ()),
        incomplete=frozenset(incomplete.get(case["incomplete"], ())),
    )
    assert not leaving.still_needed
    return BASE in leaving.released


def test_table_of_released_variants_is_complete() -> None:
    TABLE.check_complete()


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_generated_variant_is_released_only_if_everything_was_understood(row: Row[bool]) -> None:
    assert TABLE.mistakes(row, is_released) == []


# What packages on main still need

SOURCE = "host/blueprints"
VIEWS = (
    registered("blueprints"),
    registered("edge", cluster="prod"),
    registered("far", cluster="dev"),
)


def resolved(base: str = "web", pin: str = "web at 2", *, local: bool = True) -> ResolvedVariant:
    """Return a variant whose package on main is of `base`, and that is pinned to another revision now."""
    variant = a_desired_variant(key=ObjectName("default", "web"), source=Source(Location("web.yaml")))
    package = PackageKey(SOURCE, "web")
    return a_resolved(
        variant=variant,
        view=ObjectName("default", "edge"),
        downstream=PackageKey("host/edge", "web"),
        pin=a_pin(package=package, tree=Oid(f"tree of {pin}")),
        base=a_pin(package=package, tree=Oid(f"tree of {base}")),
        local=oid("b1") if local else None,
    )


def leaving(
    *revisions: Candidate,
    records: Iterable[PackageVariantRecord],
    variants: Iterable[ResolvedVariant] = (),
    views: tuple[RepositoryView, ...] = VIEWS,
    unused: Iterable[Candidate] = (),
) -> Leaving:
    trees = {
        PackageTree(PackageKey(SOURCE, c.id.name.rpartition("//")[2]), Oid(f"tree of {c.digest}")): c
        for c in revisions
    }
    instances = tuple(
        Instance(ecosystem=Ecosystem.KPT, name=c.id.name, slot=Slot(SlotKind.CLUSTER)) for c in unused
    )
    lock = PackageLock(scope=LockScope(cluster="prod"), input_digest="", resolution="")
    scope = ClusterUpdate("prod", None, ClusterLock(lock, LockedResolution(unused=instances)))
    return find_leaving(
        replace(
            world(views=views),
            records={ObjectName(record.namespace, record.name): record for record in records},
        ),
        PublishedPackages(tuple(revisions), trees),
        Resolution(variants=tuple(variants)),
        LockUpdate((ClusterUpdate("dev", None, None), scope)),
        needed=frozenset(),
        incomplete=frozenset(),
    )
