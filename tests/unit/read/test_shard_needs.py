"""Repositories that a shard reads: its clusters', their upstreams, and the whole fleet where that decides."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import expand
from reconciler.expand.variants import set_key, variant_key
from reconciler.inventory.inventory import Inventory, RepositoryRole, ReviewedLock
from reconciler.inventory.shard import Shard, shard_of
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.problems import Problem
from reconciler.read.shards import (
    assign_roles,
    planned_clusters,
    static_needs,
    variant_needs,
    why_dependencies,
    why_whole_fleet,
)
from reconciler.records.state import RefusedDeletionsRecord, RefusedVariant
from tests.support.model import NAMESPACE, ModelWorld, blueprint
from tests.support.values import replace

OWN, OTHER = "own", "other"


def variant(repository: str, package: str, source: str = "blueprints") -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo=source, package="web"),
        downstream=Downstream(repo=repository, package=package),
    )


@pytest.fixture
def world() -> ModelWorld:
    made = ModelWorld()
    for name in ("blueprints", "rare", OWN, OTHER):
        made.add_repository(name)
    for source in ("blueprints", "rare"):
        made.publish(source, "web", blueprint("web", a_yaml="a: 1\n"), 1)
    made.variants = {"a": variant(OWN, "web"), "b": variant(OTHER, "web", "rare")}
    made.run()
    return made


def url(inventory: Inventory, name: str) -> str:
    return inventory.repositories[ObjectName(NAMESPACE, name)].url


def share(inventory: Inventory, *skipped: str) -> tuple[Inventory, Shard]:
    """Return what the shard of `own` read, without the skipped repositories, and the shard."""
    own, other = (url(inventory, name) for name in (OWN, OTHER))
    parts = next(n for n in range(2, 99) if shard_of(own, n) != shard_of(other, n))
    views = {
        key: replace(view, cluster=view.cluster or key.name) for key, view in inventory.repositories.items()
    }
    views |= {
        key: replace(view, role=RepositoryRole.SKIPPED, packages={})
        for key, view in views.items()
        if key.name in skipped
    }
    shard = Shard(shard_of(own, parts), parts)
    return assign_roles(replace(inventory, repositories=views), shard), shard


def why(inventory: Inventory) -> str:
    part, shard = share(inventory, OTHER)
    return why_whole_fleet(part, expand(part), shard)


def test_upstreams_of_planned_variants_are_needed_and_no_others(world: ModelWorld) -> None:
    inventory = world.inventory()
    part, shard = share(inventory, OTHER, "rare")

    assert url(inventory, OWN) in static_needs(part, shard)
    assert url(inventory, OTHER) not in static_needs(part, shard)
    assert variant_needs(part, expand(part)) == {url(inventory, "blueprints")}
    assert why(inventory) == ""


def test_repositories_of_one_cluster_are_planned_together(world: ModelWorld) -> None:
    inventory = world.inventory()
    views = {
        key: replace(view, cluster="pair") if key.name in {OWN, OTHER} else view
        for key, view in inventory.repositories.items()
    }
    part, shard = share(replace(inventory, repositories=views), "rare")

    assert "pair" in planned_clusters(part, shard)
    assert url(inventory, OTHER) in static_needs(part, shard)
    assert part.repositories[ObjectName(NAMESPACE, OTHER)].role is RepositoryRole.PLANNED


def test_name_that_only_an_existing_package_may_have_is_looked_up(world: ModelWorld) -> None:
    world.variants["c"] = variant(OTHER, "Web")
    inventory = world.inventory()
    part, _ = share(inventory, OTHER)

    assert url(inventory, OTHER) in variant_needs(part, expand(part))


A_SET = ObjectName("default", "s")


def test_whole_fleet_decides_about_moves_and_contested_packages(world: ModelWorld) -> None:
    world.variants["b"] = variant(OTHER, "moved", "rare")
    assert why(world.inventory()) == "a variant has another downstream now"
    world.variants["b"] = variant(OTHER, "web", "rare")
    world.variants["c"] = variant(OTHER, "web", "rare")
    assert why(world.inventory()) == "several owners want one package"


@pytest.mark.parametrize(
    ("owner", "reason", "expected"),
    [
        (set_key(A_SET), Reason.INVALID_NAME, "a set names packages that cannot be made"),
        (set_key(A_SET), Reason.INVALID_EXPRESSION, ""),
        (variant_key(A_SET), Reason.INVALID_NAME, ""),
    ],
)
def test_whole_fleet_decides_which_names_of_a_set_are_wrong(
    world: ModelWorld, owner: ObjectKey, reason: Reason, expected: str
) -> None:
    part, shard = share(world.inventory(), OTHER)
    problem = Problem(Location("manifests/s.yaml", 1), reason, "Wrong").owned_by(owner)
    desired = replace(expand(part), problems=(problem,))

    assert why_whole_fleet(part, desired, shard) == expected


def test_package_left_behind_is_found_without_its_record(world: ModelWorld) -> None:
    world.merge(OWN, world.drafts(OWN)[0])
    world.variants["a"] = variant(OWN, "moved")
    world.lose_state()

    assert why(world.inventory()) == "a variant has another downstream now"


def test_whole_fleet_decides_about_deletions_that_are_refused(world: ModelWorld) -> None:
    del world.variants["b"]
    inventory = world.inventory()
    guard = replace(inventory.policy.deletions, count=0)
    strict = replace(inventory, policy=replace(inventory.policy, deletions=guard))
    waiting = RefusedDeletionsRecord(variants=(RefusedVariant(namespace=NAMESPACE, name="b", of=2),))

    assert why(inventory) == ""
    assert why(strict) == "the deletion guard refuses deletions"
    assert why(replace(inventory, refused=waiting)) == "deletions wait for consent"
    assert why(replace(inventory, refused=None)) == "deletions wait for consent"


def test_whole_fleet_decides_what_deleted_packages_needed(world: ModelWorld) -> None:
    del world.variants["b"]
    inventory = world.inventory()
    record = next(iter(inventory.records.values()))
    needed = replace(record, name="needed", requested_by=("b",))

    assert why(replace(inventory, records={**inventory.records, needed.key: needed})).startswith("packages")


def test_shard_with_the_control_repository_proposes_the_lock(world: ModelWorld) -> None:
    inventory = replace(world.inventory(), reviewed=ReviewedLock())
    part, shard = share(inventory, OTHER)
    reasons = {
        why_whole_fleet(part, expand(part), Shard(number, shard.parts)) for number in range(shard.parts)
    }

    assert reasons == {"", "it proposes the lock"}


def test_whole_fleet_decides_what_a_planned_cluster_depends_on(world: ModelWorld) -> None:
    part, shard = share(world.inventory(), OTHER)
    own, other = (part.repositories[ObjectName(NAMESPACE, name)].cluster for name in (OWN, OTHER))

    assert why_dependencies(part, shard, [], {other}) == ""
    assert why_dependencies(part, shard, [f"locks/{other}.json"], ()) == ""
    for locked, dependent in (([f"locks/{own}.json"], ()), ([], {own}), ([], {""})):
        assert why_dependencies(part, shard, locked, dependent)
