"""Repositories that a shard reads: its clusters', their upstreams, and the whole fleet where that decides."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import DependencyInputs
from reconciler.expand import expand
from reconciler.expand.variants import set_key, variant_key
from reconciler.inventory.inventory import Inventory, RepositoryRole, ReviewedLock
from reconciler.inventory.shard import WHOLE, Shard, shard_of
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.problems import Problem
from reconciler.records.state import RefusedDeletionsRecord, RefusedVariant
from reconciler.run.plan import _asked_shard, named_urls, planned_clusters, wanted
from tests.support.model import NAMESPACE, ModelWorld, blueprint
from tests.support.values import replace

OWN, OTHER = "own", "other"
PLANNED, READ, SKIPPED = RepositoryRole.PLANNED, RepositoryRole.READ, RepositoryRole.SKIPPED


def variant(repository: str, package: str, source: str = "blueprints") -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo=source, package="web"), downstream=Downstream(repo=repository, package=package)
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
        key: replace(view, role=SKIPPED, packages={}) for key, view in views.items() if key.name in skipped
    }
    shard = Shard(shard_of(own, parts), parts)
    part = replace(inventory, repositories=views)
    clusters = planned_clusters(part, shard)
    roles = {key: PLANNED if view.cluster in clusters else READ for key, view in views.items()}
    views = {
        key: view if view.role is SKIPPED else replace(view, role=roles[key]) for key, view in views.items()
    }
    return replace(part, repositories=views), shard


def why(inventory: Inventory) -> str:
    part, shard = share(inventory, OTHER)
    return wanted(expand(part), part, DependencyInputs(), shard)[1]


def named(part: Inventory, shard: Shard) -> set[str]:
    urls = named_urls(part, planned_clusters(part, shard))
    return {key.name for key, view in part.repositories.items() if view.url in urls}


def test_name_that_only_an_existing_package_may_have_is_looked_up(world: ModelWorld) -> None:
    world.variants["c"] = variant(OTHER, "Web")

    assert OTHER in named(*share(world.inventory(), OTHER))


def test_whole_fleet_decides_whether_a_set_names_an_existing_package(world: ModelWorld) -> None:
    world.variants["c"] = variant(OTHER, "Web")
    part, shard = share(world.inventory(), OTHER)
    desired = expand(part)
    variants = [replace(v, set_key=A_SET if v.key.name == "c" else None) for v in desired.variants]

    urls, reason = wanted(replace(desired, variants=tuple(variants)), part, DependencyInputs(), shard)

    assert reason == "a set names packages that cannot be made"
    assert urls == {view.url for view in part.repositories.values()}


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

    assert wanted(desired, part, DependencyInputs(), shard)[1] == expected


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
    desired, parts = expand(part), (Shard(number, shard.parts) for number in range(shard.parts))
    reasons = {wanted(desired, part, DependencyInputs(), one)[1] for one in parts}

    assert reasons == {"", "it proposes the lock"}


def test_whole_fleet_decides_what_a_planned_cluster_depends_on(world: ModelWorld) -> None:
    part, shard = share(world.inventory(), OTHER)
    desired = expand(part)
    own, other = (part.repositories[ObjectName(NAMESPACE, name)].cluster for name in (OWN, OTHER))

    def reason(locked: str, inventory: Inventory = part) -> str:
        dependencies = DependencyInputs(locks={f"locks/{locked}.json": b""})
        return wanted(desired, inventory, dependencies, shard)[1]

    record = next(record for record in part.records.values() if record.repository == OWN)
    needed = replace(record, name="needed", requested_by=("a",))
    assert reason(other) == ""
    assert reason(own) == "packages of its clusters need other packages"
    assert reason(other, replace(part, records={**part.records, needed.key: needed})) == reason(own)


@pytest.mark.parametrize(
    ("package", "limits", "is_alone"),
    [
        ("own/web", {}, True),
        ("own#3", {}, True),
        ("own", {}, True),
        ("gone/web", {}, False),
        (f"{NAMESPACE}/a", {}, False),
        ("shared/web", {}, False),
        ("own/web", {"max_open": 9}, False),
        ("own/web", {"max_new": 9}, False),
    ],
)
def test_repository_of_a_package_is_enough_where_its_name_means_nothing_else_and_no_limit_is_shared(
    world: ModelWorld, package: str, limits: dict[str, int], is_alone: bool
) -> None:
    for name in (NAMESPACE, "shared"):
        world.add_repository(name)
    inventory = world.inventory()
    views = inventory.repositories
    shared = replace(views[ObjectName(NAMESPACE, "shared")], key=ObjectName("team", "shared"), url="host/x")
    policy = inventory.policy
    inventory = replace(
        inventory,
        repositories={**views, shared.key: shared},
        policy=replace(policy, pull_requests=replace(policy.pull_requests, **limits)),
    )

    assert _asked_shard(inventory, package) == (
        Shard(parts=2, only=url(inventory, OWN)) if is_alone else WHOLE
    )
