"""Dependency roots: packages of variants with dependencies to resolve in their clusters."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson
from msgspec import Struct, field

from reconciler.api.porch import PACKAGE_VARIANT
from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import VariantInstalls
from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.dependencies.model.instances import Resolved
from reconciler.dependencies.model.packages import (
    VARIANT_KIND,
    Candidate,
    Dialect,
    Install,
    Need,
    PackageNeed,
    Pairs,
    exact_range,
)
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.inventory.inventory import Inventory, RepositoryView, Source
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.resolution import Resolution

SERVICE_ACCOUNT = "reconciler.dev/service-account"
"""On a variant, or in its `spec.annotations`: who installs the Carvel packages that its package needs."""


class RootKey(NamedTuple):
    """A root within its cluster: the namespace and the name that its install has there."""

    namespace: str
    name: str


class Root(Struct, frozen=True):
    """A variant with a package in a cluster; `variant` is None if only its record is left.

    `set_key` is its set, if it has one.
    """

    key: ObjectName
    view: RepositoryView
    name: str
    candidate: Candidate
    source: Source
    variant: DesiredVariant | None = None
    set_key: ObjectName | None = None

    @property
    def location(self) -> Location:
        """Where the variant was declared."""
        return self.source.location

    def label(self, key: RootKey) -> str:
        """Return the manifest that asks, as people call it; equal clusters have equal ones of a set."""
        if self.set_key is None:
            return f"{VARIANT_KIND} {self.key}"
        return f"package {'/'.join(key)} of PackageVariantSet {self.set_key}"


class Roots(Struct, frozen=True):
    """The roots of every cluster. In `incomplete` clusters some are unknown: no package may go."""

    by_cluster: Mapping[str, Mapping[RootKey, Root]] = field(default_factory=dict)
    incomplete: frozenset[str] = frozenset()

    def asked(self, cluster: str) -> VariantInstalls:
        """Return the installs of a cluster; equal clusters have equal ones."""
        roots = sorted(self.by_cluster.get(cluster, {}).items())
        return VariantInstalls(
            tuple(_install(key, root) for key, root in roots),
            tuple(root.candidate for _, root in roots),
            is_incomplete=cluster in self.incomplete,
        )


def find_roots(
    inventory: Inventory,
    desired: Desired,
    resolution: Resolution,
    published: PublishedPackages,
    retained: Container[ObjectName] = frozenset(),
) -> Roots:
    """Return the roots of every cluster: variants of packages that declare dependencies in any revision.

    A variant counts at the revision that it is pinned to. A variant without a pin, and a retained one,
    counts as it was last applied: its package is still in the cluster, and so are its dependencies
    (law 4). Order-free.
    """
    search = _Search(inventory, published, frozenset(key.package for key in published.revisions))
    unpinned = _unpinned(inventory, desired, resolution, retained)
    by_cluster: dict[str, list[Root]] = {}
    for root in (*search.resolved(resolution), *search.applied(unpinned)):
        by_cluster.setdefault(root.view.cluster, []).append(root)
    named = {cluster: dict(_named(roots)) for cluster, roots in by_cluster.items()}
    return Roots(named, frozenset(search.incomplete))


def _unpinned(
    inventory: Inventory, desired: Desired, resolution: Resolution, retained: Container[ObjectName]
) -> Iterator[PackageVariantRecord]:
    """Yield the records of authored variants that have no pin now and are not to be deleted."""
    pinned = {resolved.variant.key for resolved in resolution.variants}
    desired_keys = {variant.key for variant in desired.variants}
    unpinned = inventory.records.keys() - pinned
    for key in sorted(key for key in unpinned if key in desired_keys or key in retained):
        if not inventory.records[key].requested_by:
            yield inventory.records[key]


class _Search(Struct):
    inventory: Inventory
    published: PublishedPackages
    declaring: frozenset[PackageKey]
    incomplete: set[str] = field(default_factory=set)

    def resolved(self, resolution: Resolution) -> Iterator[Root]:
        # Most fleets declare no dependencies: then no variant is looked at.
        for resolved in resolution.variants if self.declaring else ():
            view = self.inventory.repositories[resolved.view]
            candidate = self.candidate(view, resolved.pin.package, resolved.pin.tree)
            if candidate is not None:
                variant, name = resolved.variant, _inside(view, resolved.downstream.path)
                yield Root(variant.key, view, name, candidate, variant.source, variant, variant.set_key)

    def applied(self, records: Iterable[PackageVariantRecord]) -> Iterator[Root]:
        for record in records:
            view = self.inventory.repositories.get(ObjectName(record.namespace, record.repository))
            upstream = record.spec.get("upstream") or {}
            source = self.inventory.repositories.get(ObjectName(record.namespace, upstream.get("repo") or ""))
            if view is None or source is None or not source.is_available:
                self.incomplete.add(view.cluster if view else "")
                continue
            package = PackageKey(source.url, source.full_path(upstream.get("package") or ""))
            candidate = self.candidate(view, package, Oid(record.upstream_tree))
            if candidate is not None:
                name = _inside(view, record.path)
                set_key = ObjectName(record.namespace, record.set_name) if record.set_name else None
                declared = Source(Location(record.manifest))
                yield Root(record.key, view, name, candidate, declared, set_key=set_key)

    def candidate(self, view: RepositoryView, package: PackageKey, tree: Oid) -> Candidate | None:
        """Return the dependencies of a revision; None if its package has none, or they are unknown."""
        candidate = self.published.revisions.get(PackageTree(package, tree))
        if candidate is None and package in self.declaring:
            self.incomplete.add(view.cluster)
        return candidate


class RequirementChange(NamedTuple):
    """A requirement that differs between two upstream revisions of a variant; "" where one has none.

    `locked` is the version that meets it in the lock, "" if none does yet.
    """

    package: str
    before: str
    after: str
    locked: str


def requirement_changes(
    resolution: Resolution, inventory: Inventory, published: PublishedPackages, locks: LockUpdate
) -> dict[ObjectName, tuple[RequirementChange, ...]]:
    """Return what each variant with another upstream revision than before requires differently. Pure."""
    packages = {scope.cluster: scope.after.resolution.packages for scope in locks.scopes if scope.after}
    changes = {}
    for resolved in resolution.variants:
        base, pin, view = resolved.base, resolved.pin, inventory.repositories.get(resolved.view)
        if base is None or base.tree == pin.tree or view is None:
            continue
        old, new = (published.revisions.get(PackageTree(p.package, p.tree)) for p in (base, pin))
        before, after = _ranges(old), _ranges(new)
        versions = _locked_versions(packages.get(view.cluster, ()), new)
        rows = tuple(
            RequirementChange(name, before.get(name, ""), after.get(name, ""), versions.get(name, ""))
            for name in sorted(before.keys() | after.keys())
        )
        if before != after:
            changes[resolved.variant.key] = rows
    return changes


def _ranges(candidate: Candidate | None) -> dict[str, str]:
    """Return the range of each package, API or interface that a revision requires."""
    return {
        _need_name(need): str(need.range) if isinstance(need, PackageNeed) else "any version"
        for requirement in (candidate.requires if candidate else ())
        for need in requirement.alternatives
    }


def _need_name(need: Need) -> str:
    return need.id.name if isinstance(need, PackageNeed) else str(need)


def _locked_versions(packages: tuple[Resolved, ...], candidate: Candidate | None) -> dict[str, str]:
    """Return the locked version of each requirement of a revision, by what it names."""
    versions = {package.instance: package.version for package in packages}
    same_package = (p for p in packages if candidate and p.instance.name == candidate.id.name)
    return {
        dependency.name: str(versions[dependency.resolved])
        for package in same_package
        for dependency in package.dependencies
        if dependency.resolved in versions
    }


def _inside(view: RepositoryView, path: str) -> str:
    return path.removeprefix(view.directory).removeprefix("/") if view.directory else path


def _named(roots: Iterable[Root]) -> Iterator[tuple[RootKey, Root]]:
    """Name roots by package, on a clash also by repository, so that equal clusters have equal names."""
    ordered = sorted(roots, key=lambda root: root.key)
    count = Counter((root.key.namespace, root.name) for root in ordered)
    for root in ordered:
        clash = count[root.key.namespace, root.name] > 1
        name = f"{root.view.key.name}/{root.name}" if clash else root.name
        yield RootKey(root.key.namespace, name), root


def _install(key: RootKey, root: Root) -> Install:
    candidate = root.candidate
    return Install(
        key.namespace,
        key.name,
        Dialect.KPT,
        PackageNeed(
            candidate.id,
            exact_range(Dialect.KPT, candidate.version.text),
            root.source.at("spec", "upstream", "revision"),
        ),
        kind=VARIANT_KIND,
        api_version=PACKAGE_VARIANT,
        inherit=_inherited(root.variant),
        label=root.label(key),
        location=root.location,
    )


def _inherited(variant: DesiredVariant | None) -> Pairs:
    """Return the settings that the dependencies of a variant inherit."""
    if variant is None:
        return ()
    account = {**(variant.spec.annotations or {}), **variant.annotations}.get(SERVICE_ACCOUNT, "")
    return (("serviceAccountName", orjson.dumps(account).decode()),) if account else ()
