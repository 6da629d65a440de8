"""Packages of variants with dependencies to resolve in their clusters, and the variants that these need."""

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson
from msgspec import Struct, field

from reconciler.api.porch import GROUP, PACKAGE_VARIANT, Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.values import grouped, whole_number
from reconciler.dependencies.catalog.cluster_inputs import VariantInstalls
from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages, repository_names
from reconciler.dependencies.dialects.carvel import package_id
from reconciler.dependencies.lock.format import LockUpdate, NeededPackage, RequirementPath, needed_packages
from reconciler.dependencies.model.instances import Instance, Resolved
from reconciler.dependencies.model.packages import (
    VARIANT_KIND,
    ApiNeed,
    Candidate,
    Dialect,
    Install,
    Need,
    PackageNeed,
    exact_range,
)
from reconciler.expand.checks import check_downstream
from reconciler.expand.owners import with_defaults
from reconciler.expand.variants import (
    Desired,
    DesiredVariant,
    stable_uid,
    variant_identifier,
    variant_key,
    variant_name,
)
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryView, Source
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.names.problems import Problem
from reconciler.names.refs import is_within
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.ownership import find_owner, package_name
from reconciler.resolve.resolution import Downstreams, Resolution
from reconciler.resolve.upstreams import recorded_upstream

SERVICE_ACCOUNT = "reconciler.dev/service-account"
"""On a variant, or in its `spec.annotations`: who installs the Carvel packages that its package needs."""


class Root(Struct, frozen=True):
    """A variant with a package in a cluster; `variant` is None if only its record is left.

    `set_key` is its set, if it has one. Within its cluster a root has the name that its install has there.
    """

    key: ObjectName
    view: RepositoryView
    name: str
    candidate: Candidate
    source: Source
    variant: DesiredVariant | None = None
    set_key: ObjectName | None = None

    def label(self, key: ObjectName) -> str:
        """Return the manifest that asks, as people call it; equal clusters have equal ones of a set."""
        if self.set_key is None:
            return f"{VARIANT_KIND} {self.key}"
        return f"package {key} of PackageVariantSet {self.set_key}"


class Roots(Struct, frozen=True):
    """The roots of every cluster. In `incomplete` clusters some are unknown: no package may go."""

    by_cluster: Mapping[str, Mapping[ObjectName, Root]] = field(default_factory=dict)
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
    # The records of authored variants that have no pin now and are not to be deleted
    pinned = {resolved.variant.key for resolved in resolution.variants}
    desired_keys = {variant.key for variant in desired.variants}
    records = (inventory.records[key] for key in sorted(inventory.records.keys() - pinned))
    remaining = (record for record in records if record.key in desired_keys or record.key in retained)
    unpinned = (record for record in remaining if not record.requested_by)
    roots = (*search.resolved(resolution), *search.applied(unpinned))
    by_cluster = grouped((root.view.cluster, root) for root in roots)
    named = {cluster: dict(_named(roots)) for cluster, roots in by_cluster.items()}
    return Roots(named, frozenset(search.incomplete))


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
            source, package = recorded_upstream(record, self.inventory)
            if view is None or source is None or not source.is_available:
                self.incomplete.add(view.cluster if view else "")
                continue
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
    ranges: dict[str, str] = {}
    for need in (need for r in (candidate.requires if candidate else ()) for need in r.alternatives):
        if isinstance(need, PackageNeed):
            ranges[need.id.name] = str(need.range)
        else:
            ranges[str(need)] = "any version"
    return ranges


def _locked_versions(packages: tuple[Resolved, ...], candidate: Candidate | None) -> dict[str, str]:
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


def _named(roots: Iterable[Root]) -> Iterator[tuple[ObjectName, Root]]:
    """Name roots by package, on a clash also by repository, so that equal clusters have equal names."""
    ordered = sorted(roots, key=lambda root: root.key)
    count = Counter((root.key.namespace, root.name) for root in ordered)
    for root in ordered:
        clash = count[root.key.namespace, root.name] > 1
        name = f"{root.view.key.name}/{root.name}" if clash else root.name
        yield ObjectName(root.key.namespace, name), root


def _install(key: ObjectName, root: Root) -> Install:
    candidate, account = root.candidate, ""
    if (variant := root.variant) is not None:
        account = {**(variant.spec.annotations or {}), **variant.annotations}.get(SERVICE_ACCOUNT, "")
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
        inherit=(("serviceAccountName", orjson.dumps(account).decode()),) if account else (),
        label=root.label(key),
        location=root.source.location,
    )


_NAME = "requires"
_MOST_DEPENDENTS = 5
"""Number of dependents that are listed."""


class Generated(Struct, frozen=True):
    """The generated variants, the problems of variants with unmet needs, and the undecided variants."""

    variants: tuple[DesiredVariant, ...] = ()
    unmet: Mapping[ObjectKey, tuple[Problem, ...]] = field(default_factory=dict)
    undecided: frozenset[ObjectName] = frozenset()


def generate(
    inventory: Inventory, desired: Desired, downstreams: Downstreams, locks: LockUpdate, roots: Roots
) -> Generated:
    """Generate the variants that the packages of others need according to the locks of their clusters.

    Each goes to the repository that it is in already, else to the first one, by name, of those that
    need it. It never takes the place or the name of another variant: one with the same downstream and
    the same package serves as well, and any other is a problem that names both manifests. Order-free.
    """
    names = repository_names(inventory.repositories.values())
    views = sorted(inventory.repositories.values(), key=lambda view: (-len(view.directory), view.key))
    sources = grouped(((view.key.namespace, names.get(view.url, "")), view) for view in views)
    maker = _Maker(inventory, sources, downstreams, {variant.key: variant for variant in desired.variants})
    for scope in locks.scopes:
        cluster_roots = roots.by_cluster.get(scope.cluster, {})
        for needed in needed_packages(scope.after.resolution) if scope.after else ():
            askers = [cluster_roots[key] for key in map(root_key, needed.roots) if key in cluster_roots]
            if askers:
                maker.add(needed, askers, cluster_roots)
    variants = sorted(maker.made.values(), key=lambda variant: variant.key)
    return Generated(tuple(variants), maker.unmet, frozenset(maker.undecided))


def root_key(instance: Instance) -> ObjectName:
    """Return the root that a locked instance is."""
    return ObjectName(instance.slot.namespace, "/".join(instance.slot.path))


class _Maker(Struct):
    inventory: Inventory
    sources: Mapping[tuple[str, str], list[RepositoryView]]
    taken: Mapping[PackageKey, tuple[DesiredVariant, ...]]
    named: Mapping[ObjectName, DesiredVariant]
    made: dict[PackageKey, DesiredVariant] = field(default_factory=dict)
    unmet: dict[ObjectKey, tuple[Problem, ...]] = field(default_factory=dict)
    undecided: set[ObjectName] = field(default_factory=set)

    def add(self, needed: NeededPackage, askers: list[Root], roots: Mapping[ObjectName, Root]) -> None:
        askers.sort(key=lambda root: root.key)
        parent_namespace = needed.package.instance.slot.namespace
        there = any(root.key.namespace == parent_namespace for root in askers)
        namespace = parent_namespace if there else askers[0].key.namespace
        repository, _, path = needed.package.instance.name.rpartition("//")
        # The most specific Repository of the namespace that has the package.
        sources = self.sources.get((namespace, repository), ())
        upstream = next((view for view in sources if is_within(path, view.directory)), None)
        if upstream is None:
            self.refuse(askers, f"No Repository in namespace {namespace} has it", "Register its repository.")
            return
        name = package_name(upstream, path)
        view = self.downstream(askers, namespace, name)
        invalid = next(check_downstream(view, name, self.inventory.policy.instance), None)
        if invalid is not None:
            hint = f"Write a PackageVariant that makes {name} under another downstream package."
            self.refuse(askers, f"Dependencies cannot be met: {invalid.message}", hint)
            return
        key = ObjectName(namespace, _object_name(view, name))
        place = PackageKey(view.url, view.full_path(name))
        # Porch's `revision` is a number: a package with other tags is asked for by `tag`.
        number = whole_number(needed.package.source.removeprefix("v"))
        chosen = {"tag": needed.package.source} if number is None else {"revision": number}
        spec = with_defaults(
            PackageVariantSpec(
                upstream=Upstream(repo=upstream.key.name, package=name, **chosen),
                downstream=Downstream(repo=view.key.name, package=name),
            )
        )
        # Another variant with the same place or the same name.
        rivals = (*self.taken.get(place, ()), self.named.get(key), self.made.get(place))
        if (rival := next(filter(None, rivals), None)) is not None:
            # One that is made from the same package at the same revision serves as well.
            if rival.spec.upstream != spec.upstream:
                self.refuse(askers, *_contested(rival, needed, view, name))
                self.undecided.add(key)
            return
        self.made[place] = DesiredVariant(
            key=key,
            uid=stable_uid(self.inventory.policy.instance, *key),
            spec=spec,
            source=askers[0].source,
            paused=all(root.variant is not None and root.variant.paused for root in askers),
            times=askers[0].variant.times if askers[0].variant else (),
            requested_by=tuple(_shown(needed.paths, roots)),
        )

    def downstream(self, askers: list[Root], namespace: str, name: str) -> RepositoryView:
        """Return the repository of a package: its present one while a root there needs it, else the first."""
        views = {root.view.key: root.view for root in askers if root.view.key.namespace == namespace}
        candidates = [views[key] for key in sorted(views)] or [askers[0].view]
        # Where a run put it, it stays: moving it would delete and create what is the same.
        for view in candidates:
            record = self.inventory.records.get(ObjectName(namespace, _object_name(view, name)))
            if record is not None and record.requested_by:
                return view
        return candidates[0]

    def refuse(self, askers: Iterable[Root], message: str, hint: str) -> None:
        for root in askers:
            if root.variant is not None:
                where, key = root.source.location, variant_key(root.key)
                problem = Problem(where, Reason.DEPENDENCY_CONFLICT, message, hint, cause=message)
                self.unmet[key] = (*self.unmet.get(key, ()), problem.owned_by(key))


def _object_name(view: RepositoryView, package: str) -> str:
    """Return the name of a generated variant: independent of its dependents and its revision."""
    identifier = variant_identifier(_NAME, view.key.name, package.replace("/", "-"))
    if "/" in package:
        identifier += f"-{hashlib.sha256(package.encode()).hexdigest()[:8]}"
    return variant_name(identifier)


def _contested(
    rival: DesiredVariant, needed: NeededPackage, view: RepositoryView, name: str
) -> tuple[str, str]:
    what = f"{needed.package.instance.name} {needed.package.version}"
    where = f"package {name} of repository {view.key.name}"
    other = f"{VARIANT_KIND} {rival.key} ({rival.source.location})"
    message = f"{what} belongs in {where}, which {other} makes from something else"
    hint = "Give one of the two another downstream package, or a revision that both can use."
    return f"Dependencies cannot be met: {message}", hint


def _shown(trails: Iterable[RequirementPath], roots: Mapping[ObjectName, Root]) -> Iterator[str]:
    """Yield the dependents, each with the path from its variant: `default/web > app`."""
    chains = sorted({tuple(_steps(trail, roots)) for trail in trails})
    yield from (" > ".join(steps) for steps in chains[:_MOST_DEPENDENTS])
    if len(chains) > _MOST_DEPENDENTS:
        yield f"{len(chains) - _MOST_DEPENDENTS} more"


def _steps(trail: RequirementPath, roots: Mapping[ObjectName, Root]) -> Iterator[str]:
    root = roots.get(root_key(trail[0].instance))
    yield str(root.key) if root else trail[0].name
    yield from (step.instance.name.rpartition("//")[2] for step in trail[1:])


class Leaving(Struct, frozen=True):
    """Generated variants that are released, and those that packages on main still need, with the reasons."""

    released: frozenset[ObjectName] = frozenset()
    still_needed: Mapping[ObjectName, str] = field(default_factory=dict)


def find_leaving(
    inventory: Inventory,
    published: PublishedPackages,
    resolution: Resolution,
    decision: LockUpdate,
    *,
    needed: frozenset[ObjectName],
    incomplete: frozenset[str],
) -> Leaving:
    """Classify the generated variants that the locks do not need. Order-free.

    A variant is released only if its cluster was resolved completely. It stays while a package on main
    was made from a revision that needs it: a person may never merge the deletion or update of that one.

    Clusters are `incomplete` if something of them is not known; "" means that it may be any.
    """
    unsure = {scope.cluster for scope in decision.scopes if not scope.finished} | incomplete
    # What a lock retains although it is unneeded stays until it is pruned.
    unused = {
        scope.cluster: frozenset(package.name for package in scope.after.resolution.unused)
        for scope in decision.scopes
        if scope.after is not None
    }
    search = _Leavers(inventory, published, unused)
    idle = {
        key: record
        for key, record in sorted(inventory.records.items())
        if record.requested_by and key not in needed and search.cluster(record) not in {"", *unsure}
    }
    if not idle or "" in unsure:
        return Leaving()
    idle = {key: record for key, record in idle.items() if not search.is_kept(record)}
    still_needed = dict(search.still_needed(idle, resolution))
    return Leaving(frozenset(idle.keys() - still_needed.keys()), still_needed)


class _Leavers(Struct):
    inventory: Inventory
    published: PublishedPackages
    unused: Mapping[str, frozenset[str]]

    def view(self, record: PackageVariantRecord) -> RepositoryView | None:
        """Return the place of a package: of a Repository that is gone, too, if that is certain."""
        name = ObjectName(record.namespace, record.repository)
        if view := self.inventory.repositories.get(name):
            return view
        view = self.inventory.view_of(PackageKey(record.url, record.path))
        is_unproven = ObjectKey(GROUP, "Repository", *name) in self.inventory.control.unproven
        is_known = view is not None and (view.former is None or view.former.is_understood)
        return view if is_known and not is_unproven else None

    def cluster(self, record: PackageVariantRecord) -> str:
        view = self.view(record)
        return view.cluster if view is not None else ""

    def revision(self, record: PackageVariantRecord) -> Candidate | None:
        _, package = recorded_upstream(record, self.inventory)
        return self.published.revisions.get(PackageTree(package, Oid(record.upstream_tree)))

    def is_kept(self, record: PackageVariantRecord) -> bool:
        view, package = recorded_upstream(record, self.inventory)
        names = repository_names(self.inventory.repositories.values()) if view else {}
        retained = self.unused.get(self.cluster(record), frozenset())
        return view is not None and package_id(names.get(package.url, ""), package.path).name in retained

    def still_needed(
        self, idle: Mapping[ObjectName, PackageVariantRecord], resolution: Resolution
    ) -> Iterator[tuple[ObjectName, str]]:
        """Yield the idle variants that packages on main need, directly or not, with the reason."""
        names = {name: candidate.id for candidate in self.published.candidates for name in candidate.names}
        needed: set[ObjectName] = set()
        queue = list(self.installed(resolution))
        for cluster, candidate, asker in queue:
            needs = [need for requirement in candidate.requires for need in requirement.alternatives]
            for key, record in idle.items():
                revision = self.revision(record)
                if key in needed or revision is None or self.cluster(record) != cluster:
                    continue
                if any(_meets(revision, need, names) for need in needs):
                    needed.add(key)
                    queue.append((cluster, revision, asker))
                    yield key, f"What {VARIANT_KIND} {asker} has on main needs it"

    def installed(self, resolution: Resolution) -> Iterator[tuple[str, Candidate, ObjectName]]:
        """Yield the revisions of packages on main that no variant is pinned to any more."""
        pinned = {resolved.variant.key for resolved in resolution.variants}
        for resolved in resolution.variants:
            base = resolved.base
            if resolved.local is not None and base is not None and base.tree != resolved.pin.tree:
                candidate = self.published.revisions.get(PackageTree(base.package, base.tree))
                if candidate is not None:
                    yield self.inventory.repositories[resolved.view].cluster, candidate, resolved.variant.key
        for key, record in sorted(self.inventory.records.items()):
            if key not in pinned and not record.requested_by and self.is_on_main(record):
                candidate = self.revision(record)
                if candidate is not None:
                    yield self.cluster(record), candidate, key

    def is_on_main(self, record: PackageVariantRecord) -> bool:
        view = self.view(record)
        state = view.packages.get(record.path, PackageState(record.path)) if view else None
        header = state.main_header if state is not None and state.main_tree else None
        return find_owner(header, PackageKey(record.url, record.path), self.inventory) == record.key


def _meets(candidate: Candidate, need: Need, names: Mapping[str, object]) -> bool:
    match need:
        case PackageNeed():
            return names.get(need.id.name, need.id) == candidate.id
        case ApiNeed():
            # A need without a version is met by any that is served.
            return any(need.gvk in (gvk, gvk._replace(version="")) for gvk in candidate.provides)
    return False
