"""Generated variants that no lock needs: released, held for packages on main, or kept (law 4)."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.errors import Location
from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages
from reconciler.dependencies.dialects.carvel import package_id
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockScope, LockUpdate, PackageLock
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind
from reconciler.dependencies.model.instances import Resolution as LockedResolution
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    InterfaceNeed,
    Need,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.versions import parse_strict
from reconciler.inventory.inventory import Inventory, RepositoryView, Source
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.dependency_roots import Leaving, find_leaving
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import a_desired_variant, a_pin, a_record, a_resolved, oid
from tests.support.sets import a_package, registered, repository, world
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


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_generated_variant_is_released_only_if_everything_was_understood(row: Row[bool]) -> None:
    assert TABLE.mistakes(row, is_released) == []


# What packages on main still need

SOURCE = "host/blueprints"
VIEWS = (registered("blueprints"), registered("edge", cluster="prod"), registered("far", cluster="dev"))
DATABASE = Gvk("db.io", "v1", "Database")


def revision(name: str, *needs: Need, tree: str = "", **fields: Any) -> Candidate:
    requires = tuple(Requirement((need,)) for need in needs)
    return Candidate(
        package_id(SOURCE, name), parse_strict("1.0.0"), digest=tree or name, requires=requires, **fields
    )


def need(name: str) -> PackageNeed:
    return PackageNeed(package_id(SOURCE, name), version_range(Dialect.KPT, ""))


def generated(name: str, repository: str = "edge", **fields: Any) -> PackageVariantRecord:
    return a_record(
        name=name,
        path=name,
        url=f"host/{repository}",
        repository=repository,
        requested_by=("default/web",),
        spec={"upstream": {"repo": "blueprints", "package": name}},
        upstream_tree=f"tree of {name}",
        **fields,
    )


def authored(name: str = "web", repository: str = "edge", **fields: Any) -> PackageVariantRecord:
    return replace_record(generated(name, repository), requested_by=(), **fields)


def replace_record(record: PackageVariantRecord, **fields: Any) -> PackageVariantRecord:
    return replace(record, **fields)


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


HELD = "What PackageVariant default/web has on main needs it"
ON_MAIN = KptfileHeader(owner="default/default/web", location="edge/web")


@pytest.mark.parametrize(
    ("what", "is_held"),
    [
        (need("base"), True),
        (need("other"), False),
        (PackageNeed(package_id(SOURCE, "alias"), version_range(Dialect.KPT, "")), True),
        (ApiNeed(DATABASE), True),
        (ApiNeed(DATABASE._replace(version="")), True),
        (ApiNeed(DATABASE._replace(version="v2")), False),
        (ApiNeed(DATABASE._replace(kind="Table")), False),
        (InterfaceNeed("sql", version_range(Dialect.KPT, "")), False),
    ],
    ids=["package", "another", "alias", "API", "any version", "another version", "another API", "interface"],
)
def test_need_is_met_by_a_package_its_further_names_and_its_apis(what: Need, *, is_held: bool) -> None:
    base = revision("base", provides=(Gvk("a.io", "v1", "A"), DATABASE), names=(f"{SOURCE}//alias",))
    revisions = (revision("web", what), revision("web", tree="web at 2"), base)

    decided = leaving(*revisions, records=[generated("base")], variants=(resolved(),))

    assert bool(decided.still_needed) is is_held


def test_need_of_any_alternative_and_of_every_requirement_counts() -> None:
    web = replace(
        revision("web"), requires=(Requirement((need("x"),)), Requirement((need("y"), need("base"))))
    )

    decided = leaving(web, revision("base"), records=[generated("base")], variants=(resolved(),))

    assert decided.still_needed == {ObjectName("default", "base"): HELD}


@pytest.mark.parametrize(
    ("state", "record", "is_held"),
    [
        (a_package(main_tree=oid("b1"), main_header=ON_MAIN), authored(), True),
        (a_package(main_tree=None, main_header=ON_MAIN), authored(), False),
        (a_package(main_tree=oid("b1"), main_header=replace(ON_MAIN, owner="default/default/other")),
            authored(), False),
        (a_package(main_tree=oid("b1"), main_header=ON_MAIN), authored(upstream_tree="tree of something"),
            False),
        (a_package(main_tree=oid("b1"), main_header=ON_MAIN), authored(repository="gone"), False),
        (a_package("other", main_tree=oid("b1"), main_header=ON_MAIN), authored(), False),
        (a_package(main_tree=oid("b1"), main_header=ON_MAIN), generated("web"), False),
    ],
    ids=["on main", "not on main", "of another owner", "unknown revision", "no repository", "another path",
        "generated"],
)  # fmt: skip
def test_variant_that_nobody_declares_any_more_needs_what_it_has_on_main(state, record, is_held) -> None:
    edge = replace(VIEWS[1], packages={state.path: state})
    revisions = (revision("web", need("base")), revision("base"))

    decided = leaving(*revisions, records=[generated("base"), record], views=(VIEWS[0], edge))

    assert decided.still_needed == ({ObjectName("default", "base"): HELD} if is_held else {})
