"""Resolution: bases by commit, and trees that are needed only where something has to be made."""

import pytest

from reconciler.api.porch import Downstream, InjectionSelector, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.expand import expand
from reconciler.inventory.inventory import Inventory, RepositoryRole
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import ObjectName
from reconciler.resolve.resolution import Resolution
from reconciler.resolve.variants import extend_resolution
from tests.support.model import NAMESPACE, ModelWorld, blueprint, resolve
from tests.support.plan_values import oid
from tests.support.sets import snapshot
from tests.support.values import replace


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    for number in (1, 2):
        world.publish("blueprints", "web", blueprint("web", a_yaml=f"a: {number}\n"), number)
    want(world, 1)
    return world


def want(world: ModelWorld, revision: int) -> None:
    world.variants["web"] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=revision),
        downstream=Downstream(repo="edge", package="web"),
    )


def resolved(world: ModelWorld, inventory: Inventory | None = None) -> Resolution:
    inventory = inventory or world.inventory()
    return resolve(inventory, expand(inventory))


def test_a_first_creation_reads_the_upstream_alone(world: ModelWorld) -> None:
    resolution = resolved(world)

    (one,) = resolution.variants
    assert dict(resolution.needs.trees) == {"git.example/blueprints": {one.pin.tree}}


def test_what_a_record_vouches_for_reads_nothing(world: ModelWorld) -> None:
    world.run()
    assert dict(resolved(world).needs.trees) == {}

    world.merge("edge", world.drafts("edge")[0])
    world.run()

    assert dict(resolved(world).needs.trees) == {}


def test_without_a_record_everything_is_read_again(world: ModelWorld) -> None:
    world.run()
    world.lose_state()

    assert set(resolved(world).needs.trees) == {"git.example/blueprints"}


def test_an_update_reads_base_upstream_and_local(world: ModelWorld) -> None:
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    want(world, 2)

    resolution = resolved(world)

    (one,) = resolution.variants
    assert one.base is not None
    assert one.base.ref == "web/v1"
    assert dict(resolution.needs.trees) == {
        "git.example/blueprints": {one.base.tree, one.pin.tree},
        "git.example/edge": {one.local},
    }


@pytest.mark.parametrize("role", RepositoryRole)
def test_variant_that_another_shard_plans_is_not_resolved(world: ModelWorld, role: RepositoryRole) -> None:
    inventory = world.inventory()
    key = ObjectName(NAMESPACE, "edge")
    edge = replace(inventory.repositories[key], role=role)
    inventory = replace(inventory, repositories={**inventory.repositories, key: edge})

    resolution = extend_resolution(Resolution(), inventory, expand(inventory))

    assert bool(resolution.variants) is (role is RepositoryRole.PLANNED)
    assert (resolution.stalled, resolution.waiting) == (frozenset(), ())


@pytest.mark.parametrize(("policy", "is_local"), [("adoptExisting", True), ("adoptNone", False)])
def test_directory_without_a_kptfile_is_the_package_where_its_variant_adopts(
    world: ModelWorld, policy: str, *, is_local: bool
) -> None:
    world.variants["web"] = world.variants["web"].model_copy(update={"adoption_policy": policy})
    inventory = world.inventory()
    key = ObjectName(NAMESPACE, "edge")
    edge = replace(inventory.repositories[key], directories={"web": oid("b7"), "db": oid("b8")})

    (found,) = resolved(
        world, replace(inventory, repositories={**inventory.repositories, key: edge})
    ).variants

    assert found.local == (oid("b7") if is_local else None)


def test_variants_of_clusters_without_a_snapshot_of_their_own_share_one(world: ModelWorld) -> None:
    spec = world.variants["web"].model_copy(update={"injectors": [InjectionSelector(name="blue")]})
    world.add_repository("west")
    world.variants["web"] = spec
    world.variants["other"] = spec.model_copy(update={"downstream": Downstream(repo="west", package="web")})
    inventory = world.inventory()
    views = {key: replace(view, cluster=key.name) for key, view in inventory.repositories.items()}
    blue, red = (
        SnapshotObject("v1", "Team", NAMESPACE, "blue", {}, {}, {"spec": code}, Location("s.yaml"))
        for code in ("1", "2")
    )

    def digests(**clusters: Snapshot) -> list[dict[str, str]]:
        root = snapshot(blue, clusters=clusters)
        given = replace(inventory, repositories=views, snapshot=root)
        return [dict(resolved.objects) for resolved in resolve(given, expand(given)).variants]

    (first, second) = digests()
    assert first == second
    assert first.keys() == {"Team blue"}
    first, second = digests(edge=snapshot(red))
    assert first.keys() == second.keys() == {"Team blue"}
    assert first != second
