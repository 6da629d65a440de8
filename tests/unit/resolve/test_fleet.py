"""Fleets with packages that need others: what is generated, released, and published for the next link."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.dependencies.catalog.published import (
    DependencyInputs,
    PackageTree,
    PublishedPackages,
    repository_names,
)
from reconciler.dependencies.dialects import package_id
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.versions import parse_strict
from reconciler.expand import expand
from reconciler.ids import ObjectName, PackageKey
from reconciler.inventory import Inventory, RepositoryView
from reconciler.plan import build_plan
from reconciler.plan.changes import Plan
from reconciler.plan.deletion_diff import retained_variants
from reconciler.policy import DeletionGuard
from reconciler.render import render_packages
from reconciler.resolve import Resolution, ResolvedFleet, resolve_fleet
from reconciler.resolve.deliveries import DeliveryTarget, delivery_owner
from reconciler.resolve.variants import extend_resolution
from reconciler.state import PackageVariantRecord
from tests.support.model import NAMESPACE, ModelWorld, blueprint

BASE = "requires-edge-00-base"
REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "web": ("base",),
    "base": (),
    "broken": ("missing",),
    "plain": (),
}


@dataclass
class DependencyWorld(ModelWorld):
    """A world with one cluster for each repository, and blueprints with requirements."""

    lock_files: dict[str, bytes] = field(default_factory=dict)

    def inventory(self) -> Inventory:
        inventory = super().inventory()
        views = {key: replace(view, cluster=key.name) for key, view in inventory.repositories.items()}
        return replace(inventory, repositories=views)

    def fleet(self) -> ResolvedFleet:
        inventory = self.inventory()
        desired = expand(inventory)
        inputs = DependencyInputs(published_packages(inventory), self.lock_files)
        return resolve_fleet(inventory, desired, inputs, retained_variants(desired, inventory))

    def plan(self) -> Plan:
        inventory, fleet = self.inventory(), self.fleet()
        self.lock_files = dict(fleet.locks.files)
        rendered = render_packages(fleet.resolution, self.contents(fleet.resolution), inventory)
        return replace(build_plan(inventory, fleet, rendered), lock=None)


def published_packages(inventory: Inventory) -> PublishedPackages:
    """Return the revisions of the blueprints with what they need."""
    view = inventory.repositories[ObjectName(NAMESPACE, "blueprints")]
    source = repository_names(inventory.repositories.values())[view.url]
    revisions = dict(_revisions(view, source))
    return PublishedPackages(tuple(revisions.values()), revisions)


def _revisions(view: RepositoryView, source: str) -> Iterator[tuple[PackageTree, Candidate]]:
    for path, package in view.packages.items():
        needs = (
            PackageNeed(package_id(source, name), version_range(Dialect.KPT, ""))
            for name in REQUIREMENTS[path]
        )
        requires = tuple(Requirement((need,)) for need in needs)
        for revision in package.published:
            version = parse_strict(f"{revision.revision}.0.0")
            yield (
                PackageTree(PackageKey(view.url, path), revision.tree),
                Candidate(
                    package_id(source, path),
                    version,
                    digest=revision.tree,
                    requires=requires,
                    source=revision.workspace,
                ),
            )


def variant(source: str, package: str, repository: str, **selector: int) -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo=source, package=package, **selector),
        downstream=Downstream(repo=repository, package=package),
    )


@pytest.fixture
def world() -> DependencyWorld:
    """Return a fleet of 30 clusters; `web` in the first one needs `base`, which is generated."""
    world = DependencyWorld()
    world.add_repository("blueprints")
    for name in REQUIREMENTS:
        world.publish("blueprints", name, blueprint(name, a_yaml=f"{name}: 1\n"), 1)
    for number in range(30):
        world.add_repository(f"edge-{number:02}", deployment=True)
    world.variants["web"] = variant("blueprints", "web", "edge-00", revision=1)
    world.run()
    return world


def add_delivery_records(world: DependencyWorld) -> None:
    """Record a delivered package in every cluster, as an earlier run leaves it."""
    for view in world.inventory().repositories.values():
        if view.cluster != "blueprints":
            key = delivery_owner(view.cluster, DeliveryTarget(view, "dependencies"))
            world.records[key] = PackageVariantRecord(
                namespace=key.namespace,
                name=key.name,
                uid="",
                spec={},
                manifest=view.source.location.path,
                url=view.url,
                repository=view.key.name,
                path="dependencies",
            )


def keys(*names: str) -> frozenset[ObjectName]:
    return frozenset(ObjectName(NAMESPACE, name) for name in names)


def test_generated_package_is_released_beside_many_delivered_packages(world: DependencyWorld) -> None:
    assert world.records.keys() == keys("web", BASE)
    add_delivery_records(world)
    del world.variants["web"]

    fleet = world.fleet()

    assert fleet.desired.released == keys(BASE)
    assert fleet.desired.variants == ()
    assert retained_variants(expand(world.inventory()), world.inventory()) == frozenset()


def test_generated_package_stays_while_the_guard_keeps_the_package_that_needs_it(
    world: DependencyWorld,
) -> None:
    add_delivery_records(world)
    del world.variants["web"]
    world.policy = replace(world.policy, deletions=DeletionGuard(count=0))

    fleet = world.fleet()

    assert retained_variants(expand(world.inventory()), world.inventory()) == keys("web")
    assert fleet.desired.released == frozenset()
    assert {variant.key for variant in fleet.desired.variants} == keys(BASE)


# Variants of generated packages


def test_variant_takes_the_revision_that_a_generated_package_gets_in_the_same_run(
    world: DependencyWorld,
) -> None:
    world.variants["copy"] = variant("edge-00", "base", "edge-01")
    (draft,) = (ref for ref in world.drafts("edge-00") if "/base/" in ref)
    world.merge("edge-00", draft)

    fleet = world.fleet()

    pins = {resolved.variant.key.name: resolved.pin.ref for resolved in fleet.resolution.variants}
    assert pins["copy"] == "base/v1"
    assert fleet.resolution.stalled == frozenset()
    world.run()
    assert len(world.drafts("edge-01")) == 1
    assert world.plan().is_empty


def test_base_has_the_revision_that_a_generated_package_gets_in_the_same_run(world: DependencyWorld) -> None:
    world.variants["copy"] = variant("edge-00", "base", "edge-01")
    (draft,) = (ref for ref in world.drafts("edge-00") if "/base/" in ref)
    world.merge("edge-00", draft)
    world.run()
    world.merge("edge-01", world.drafts("edge-01")[0])
    world.run()
    # Somebody deletes the tag, so this run sets it again.
    del world.repositories["edge-00"].refs["refs/tags/base/v1"]
    world.variants["copy"] = variant("blueprints", "base", "edge-01", revision=1)

    fleet = world.fleet()

    (base,) = (r.base for r in fleet.resolution.variants if r.variant.key.name == "copy")
    assert base is not None
    assert (base.package.url, base.ref, base.revision) == (world.repositories["edge-00"].url, "base/v1", 1)


def test_variants_of_other_repositories_keep_their_outcome(world: DependencyWorld) -> None:
    world.variants["copy"] = variant("edge-00", "base", "edge-01")
    (draft,) = (ref for ref in world.drafts("edge-00") if "/base/" in ref)
    world.merge("edge-00", draft)
    inventory = world.inventory()
    authored, desired = expand(inventory), world.fleet().desired

    first = extend_resolution(Resolution(), inventory, authored)
    second = extend_resolution(first, inventory, desired)

    assert [r.variant.key.name for r in first.variants] == ["web"]
    assert second == extend_resolution(Resolution(), inventory, desired)
    assert next(r for r in second.variants if r.variant.key.name == "web") is first.variants[0]


# Unmet dependencies


@pytest.mark.parametrize(
    ("package", "reason"),
    [("broken", "DependencyConflict"), ("web", ""), ("plain", "")],
)
def test_only_the_variant_with_an_unmet_dependency_stalls(
    world: DependencyWorld, package: str, reason: str
) -> None:
    for name in ("broken", "plain"):
        world.variants[name] = variant("blueprints", name, "edge-00", revision=1)

    resolution = world.fleet().resolution

    stalled = {key.name for key in resolution.stalled}
    assert (package in stalled) is bool(reason)
    assert [p.reason for p in resolution.problems if p.subject.endswith(f"/{package}")] == (
        [reason] if reason else []
    )
    assert (package in {r.variant.key.name for r in resolution.variants}) is not bool(reason)


class OneCluster(DependencyWorld):
    """A world with one cluster for all repositories."""

    def inventory(self) -> Inventory:
        inventory = super().inventory()
        views = {key: replace(view, cluster="prod") for key, view in inventory.repositories.items()}
        return replace(inventory, repositories=views)


def test_generated_package_goes_to_the_first_repository_by_name_that_needs_it() -> None:
    world = OneCluster()
    world.add_repository("blueprints")
    for name in REQUIREMENTS:
        world.publish("blueprints", name, blueprint(name), 1)
    for name in ("edge-00", "edge-01"):
        world.add_repository(name, deployment=True)
    world.variants["a"] = variant("blueprints", "web", "edge-01", revision=1)
    world.variants["b"] = variant("blueprints", "web", "edge-00", revision=1)

    (generated,) = (v for v in world.fleet().desired.variants if v.requested_by)

    assert generated.key.name == BASE
    assert generated.spec.downstream == Downstream(repo="edge-00", package="base")
