"""The lock that main should have, and what stands while a person thinks about it."""

import random
from typing import NamedTuple

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockUpdate, next_lock
from reconciler.dependencies.lock.update import effective_locks
from reconciler.dependencies.model.instances import Instance, Resolution, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.expand import expand
from reconciler.inventory.inventory import ReviewedLock
from reconciler.names.ids import ObjectKey, ObjectName, Oid
from reconciler.names.objects import File
from reconciler.plan.proposals import ComputedLock, compute_lock
from reconciler.policy import LockMode, LockPolicy
from reconciler.records.state import UpstreamLock, lock_bytes, lock_upstream
from tests.support.model import NAMESPACE, ModelWorld, blueprint, resolve
from tests.support.values import replace

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def world() -> ModelWorld:
    """Four variants follow one tag, which is at the second of three revisions."""
    world = ModelWorld()
    world.policy = replace(world.policy, lock=LockPolicy(LockMode.REVIEWED))
    world.add_repository("blueprints")
    world.add_repository("edge")
    for number in (1, 2, 3):
        world.publish("blueprints", "web", blueprint("web", a_yaml=f"a: {number}\n"), number)
    refs = world.repositories["blueprints"].refs
    refs["refs/tags/web/stable"] = refs["refs/tags/web/v2"]
    for name in NAMES:
        ask(world, name, Upstream(repo="blueprints", package="web", tag="stable"))
    merge(world)
    return world


def ask(world: ModelWorld, name: str, upstream: Upstream) -> None:
    downstream = Downstream(repo="edge", package=name)
    world.variants[name] = PackageVariantSpec(upstream=upstream, downstream=downstream)


def commit_of(world: ModelWorld, revision: int) -> Oid:
    return world.repositories["blueprints"].refs[f"refs/tags/web/v{revision}"]


def pin(world: ModelWorld, name: str, revision: int, *, held: bool = False) -> UpstreamLock:
    asked = {"repo": "blueprints", "package": "web", "tag": "stable"}
    commit = commit_of(world, revision)
    lock = lock_upstream(
        ObjectName(NAMESPACE, name), asked, commit=commit, tree="", ref="web/stable", held=held
    )
    assert lock is not None
    return lock


def path_of(name: str) -> str:
    return f"upstreams/{NAMESPACE}/{name}.json"


def merge(world: ModelWorld, *pins: UpstreamLock, **more: bytes) -> None:
    """Put these pins on main, and files that are none."""
    files = {path_of(lock.name): File.of(lock_bytes(lock)) for lock in pins}
    files |= {name.replace("_", "."): File.of(data) for name, data in more.items()}
    world.reviewed = ReviewedLock(base="main", files=files, pins={lock.key: lock for lock in pins})


def wanted(world: ModelWorld, *, stalled: bool = False) -> ComputedLock:
    inventory = world.inventory()
    desired = expand(inventory)
    if stalled:
        desired = replace(desired, stalled=frozenset({ObjectKey("g", "PackageVariantSet", NAMESPACE, "s")}))
    assert inventory.reviewed is not None
    resolution = resolve(inventory, expand(inventory))
    return compute_lock(inventory.reviewed, inventory, desired, resolution, LockUpdate())


def test_the_order_of_the_world_does_not_matter(world: ModelWorld) -> None:
    merge(world, pin(world, "b", 1), pin(world, "d", 3, held=True))
    one = wanted(world)

    for seed in range(10):
        world.shuffle = seed
        names = list(world.variants)
        random.Random(seed).shuffle(names)
        world.variants = {name: world.variants[name] for name in names}
        assert wanted(world) == one


def test_what_is_current_or_held_stays_byte_for_byte(world: ModelWorld) -> None:
    merge(world, pin(world, "a", 2), pin(world, "b", 1, held=True), README_md=b"Ours\n")
    assert world.reviewed is not None
    spaced = {**world.reviewed.files, path_of("a"): File.of(b" " + lock_bytes(pin(world, "a", 2)))}
    world.reviewed = replace(world.reviewed, files=spaced)

    found = wanted(world)

    assert {path: found.files[path] for path in spaced} == spaced
    assert [change.what for change in found.pins] == ["PackageVariant default/c", "PackageVariant default/d"]


class Standing(NamedTuple):
    reason: str
    before: dict[str, str] | None
    after: dict[str, str] | None
    lenient: str
    strict: str


STANDING = [
    Standing("a first lock holds at once, or waits", None, {"db": "1.0.0"}, "after", "before"),
    Standing("what is new is taken", {"db": "1.0.0"}, {"db": "1.0.0", "log": "1.0.0"}, "after", "before"),
    Standing("what nobody wants goes", {"db": "1.0.0", "log": "1.0.0"}, {"db": "1.0.0"}, "after", "before"),
    Standing("a pin that moves waits", {"db": "1.0.0"}, {"db": "2.0.0"}, "before", "before"),
    Standing("what is new waits with a pin that moves", {"db": "1.0.0"}, {"db": "2.0.0", "log": "1.0.0"},
        "before", "before"),
]  # fmt: skip


def locked(versions: dict[str, str] | None) -> ClusterLock | None:
    if versions is None:
        return None
    packages = tuple(
        Resolved(
            instance=Instance(ecosystem=Ecosystem.CARVEL, name=name, slot=Slot(SlotKind.CLUSTER)),
            dialect="carvel",
            version=version,
        )
        for name, version in sorted(versions.items())
    )
    resolution = Resolution(packages=packages)
    return ClusterLock(next_lock("dev", input_digest="i", resolution=resolution), resolution)


@pytest.mark.parametrize("case", STANDING, ids=lambda case: case.reason)
def test_what_stands_while_a_lock_waits_for_a_review(case: Standing) -> None:
    scope = ClusterUpdate("dev", locked(case.before), locked(case.after))
    sides = {"before": scope.before, "after": scope.after}

    for strict, side in ((False, case.lenient), (True, case.strict)):
        (stands,) = effective_locks(LockUpdate((scope,)), strict=strict).scopes
        assert stands.after == sides[side]
