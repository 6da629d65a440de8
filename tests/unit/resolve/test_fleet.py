"""Fleets with packages that need others: what is generated, released, and published for the next link."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import (
    DependencyInputs,
    PackageTree,
    PublishedPackages,
    repository_names,
)
from reconciler.dependencies.dialects.carvel import package_id
from reconciler.dependencies.lock import update as updates
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockScope, LockUpdate, PackageLock
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.instances import Resolution as LockedResolution
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.solve.problem import ConflictCode, Explanation
from reconciler.dependencies.versions import parse_strict
from reconciler.expand import expand
from reconciler.inventory.inventory import Inventory, RepositoryView, ReviewedLock, Source, SourcedDocument
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.build import build_plan
from reconciler.plan.changes import Plan
from reconciler.plan.set_diff import retained_variants
from reconciler.policy import DeletionGuard, Policy
from reconciler.render import render_packages
from reconciler.resolve.fleet import ResolvedFleet, find_dependent_clusters, resolve_fleet
from reconciler.resolve.resolution import Resolution
from reconciler.resolve.variants import extend_resolution
from tests.support.model import NAMESPACE, ModelWorld, blueprint
from tests.support.plan_values import oid
from tests.support.values import replace

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


def keys(*names: str) -> frozenset[ObjectName]:
    return frozenset(ObjectName(NAMESPACE, name) for name in names)


# Variants of generated packages


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


def test_variant_is_not_told_of_a_neighbour_with_a_longer_name(world: DependencyWorld) -> None:
    spec = variant("blueprints", "broken", "edge-00", revision=1)
    world.variants["broken"] = spec
    world.variants["broken-2"] = spec.model_copy(
        update={"downstream": Downstream(repo="edge-00", package="broken-2")}
    )

    problems = {p.subject: p.message for p in world.fleet().resolution.problems}

    assert "PackageVariant default/broken asks" in problems[f"PackageVariant {NAMESPACE}/broken"]
    assert "default/broken-2" not in problems[f"PackageVariant {NAMESPACE}/broken"]
    assert "default/broken-2" in problems[f"PackageVariant {NAMESPACE}/broken-2"]


# Explanations of unmet dependencies


def held(name: str, version: str = "1.0.0") -> Resolved:
    slot = Slot(SlotKind.INSTALL, namespace=NAMESPACE, path=(name,))
    instance = Instance(ecosystem=Ecosystem.KPT, name="git.example/blueprints//web", slot=slot)
    return Resolved(instance=instance, dialect="kpt", version=version)


Unmet = Callable[..., dict[str, tuple[Problem, ...]]]


@pytest.fixture
def unmet(world: DependencyWorld, monkeypatch: pytest.MonkeyPatch) -> Unmet:
    """Return the problems of a fleet whose cluster `edge-00` got a lock that does not hold everything."""

    def problems(
        *explanations: Explanation,
        packages: tuple[Resolved, ...] = (),
        finished: bool = False,
        has_lock: bool = True,
    ) -> dict[str, tuple[Problem, ...]]:
        lock = PackageLock(scope=LockScope(cluster="edge-00"), input_digest="", resolution="")
        after = ClusterLock(lock, LockedResolution(packages=packages)) if has_lock else None
        scopes = (
            ClusterUpdate("edge-01", None, None, finished=False),
            ClusterUpdate("edge-00", None, after, explanations, finished),
        )
        monkeypatch.setattr(updates, "update_locks", lambda *_, **__: LockUpdate(scopes))
        fleet = world.fleet()
        told = fleet.locks.problems
        return {
            key.name: tuple(problem for problem in told if problem.owner == key)
            for key in fleet.resolution.stalled
        }

    return problems


def test_variant_stalls_if_the_lock_of_an_unsolved_cluster_has_not_its_revision(
    world: DependencyWorld, unmet: Unmet
) -> None:
    for name in ("older", "absent"):
        spec = variant("blueprints", "web", "edge-00", revision=1)
        downstream = Downstream(repo="edge-00", package=name)
        world.variants[name] = spec.model_copy(update={"downstream": downstream})
    world.variants["plain"] = variant("blueprints", "plain", "edge-00", revision=1)
    packages = (held("web"), held("older", "2.0.0"))

    assert unmet(packages=packages).keys() == {"older", "absent"}
    assert unmet(has_lock=False).keys() == {"web", "older", "absent"}
    assert unmet(finished=True) == {}


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        ([ConflictCode.CYCLE, ConflictCode.PLATFORM], Reason.DEPENDENCY_CYCLE),
        ([ConflictCode.PLATFORM], Reason.DEPENDENCY_CONFLICT),
    ],
)
def test_circle_among_what_cannot_be_met_is_the_reason(unmet: Unmet, codes, reason) -> None:
    ((problem,),) = unmet(*(Explanation(code, (f"{code} it is",)) for code in codes)).values()

    assert problem.reason is reason
    assert all(f"{code} it is" in problem.message for code in codes)


def test_package_that_is_only_recorded_does_not_stall(world: DependencyWorld, unmet: Unmet) -> None:
    del world.variants["web"]
    world.policy = replace(world.policy, deletions=DeletionGuard(count=0))

    assert retained_variants(expand(world.inventory()), world.inventory()) == keys("web")
    assert unmet() == {}


# What a fleet reads and asks


def test_clusters_with_needs_are_those_whose_packages_have_requirements(world: DependencyWorld) -> None:
    world.variants["plain"] = variant("blueprints", "plain", "edge-01", revision=1)
    inventory = world.inventory()
    inputs = DependencyInputs(published_packages(inventory))

    assert find_dependent_clusters(inventory, expand(inventory), inputs) == {"edge-00"}
    broken = SourcedDocument(
        {"apiVersion": "reconciler.dev/v1alpha1", "kind": "PackageVersion"},
        Source(Location("index/x/1/a.yaml")),
    )
    unread = replace(inventory, index=(broken,))
    assert find_dependent_clusters(unread, expand(unread), inputs) == {"edge-00", ""}


@pytest.mark.parametrize(
    ("fields", "is_released"),
    [({}, True), ({"readable": False}, False), ({"broken": frozenset({"a.yaml"})}, False)],
)
def test_generated_package_is_released_only_if_every_manifest_was_understood(
    world: DependencyWorld, fields: dict[str, Any], *, is_released: bool
) -> None:
    del world.variants["web"]
    inventory = world.inventory()
    inventory = replace(inventory, control=replace(inventory.control, **fields))
    inputs = DependencyInputs(published_packages(inventory), world.lock_files)

    fleet = resolve_fleet(inventory, expand(inventory), inputs)

    assert fleet.desired.released == (keys(BASE) if is_released else frozenset())


@pytest.mark.parametrize(
    ("applied", "fields", "is_refreshed"),
    [
        (None, {}, False),
        ("this", {}, False),
        ("another", {}, True),
        ("another", {"policy": Policy(suspend=True)}, False),
        ("another", {"reviewed": ReviewedLock(is_open=False)}, False),
    ],
)
def test_digest_of_a_lock_that_stays_is_refreshed_by_a_run_that_records_its_commit(
    world: DependencyWorld, applied: str | None, fields: dict[str, Any], *, is_refreshed: bool
) -> None:
    world.publish("blueprints", "base", blueprint("base", a_yaml="base: 2\n"), 2)
    inventory = world.inventory()
    commits = {"this": inventory.control.commit.oid, "another": oid("99")}
    standing = replace(inventory.control.standing, applied=commits.get(applied or ""))
    inventory = replace(inventory, control=replace(inventory.control, standing=standing), **fields)

    fleet = resolve_fleet(
        inventory, expand(inventory), DependencyInputs(published_packages(inventory), world.lock_files)
    )

    assert not any(scope.changed for scope in fleet.locks.scopes)
    assert (fleet.locks.files != world.lock_files) is is_refreshed
