"""Generated variants: packages that a cluster needs and no manifest names; those that nothing needs go."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from reconciler.api.porch import GROUP, Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.base.values import whole_number
from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages, repository_names
from reconciler.dependencies.dialects.carvel import package_id
from reconciler.dependencies.lock.format import LockUpdate, NeededPackage, RequirementPath, needed_packages
from reconciler.dependencies.model.instances import Instance, Resolved
from reconciler.dependencies.model.packages import VARIANT_KIND, ApiNeed, Candidate, Need, PackageNeed
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
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryView
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.names.problems import Problem
from reconciler.names.refs import is_within
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.dependency_roots import Root, RootKey, Roots
from reconciler.resolve.ownership import find_owner, package_name
from reconciler.resolve.resolution import Downstreams, Resolution

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
    sources: dict[tuple[str, str], list[RepositoryView]] = {}
    for view in sorted(inventory.repositories.values(), key=lambda view: (-len(view.directory), view.key)):
        sources.setdefault((view.key.namespace, names.get(view.url, "")), []).append(view)
    maker = _Maker(inventory, sources, downstreams, {variant.key: variant for variant in desired.variants})
    for scope in locks.scopes:
        cluster_roots = roots.by_cluster.get(scope.cluster, {})
        for needed in needed_packages(scope.after.resolution) if scope.after else ():
            askers = [cluster_roots[key] for key in map(root_key, needed.roots) if key in cluster_roots]
            if askers:
                maker.add(needed, askers, cluster_roots)
    variants = sorted(maker.made.values(), key=lambda variant: variant.key)
    return Generated(tuple(variants), maker.unmet, frozenset(maker.undecided))


def root_key(instance: Instance) -> RootKey:
    """Return the root that a locked instance is."""
    return RootKey(instance.slot.namespace, "/".join(instance.slot.path))


class _Maker(Struct):
    inventory: Inventory
    sources: Mapping[tuple[str, str], list[RepositoryView]]
    taken: Mapping[PackageKey, tuple[DesiredVariant, ...]]
    named: Mapping[ObjectName, DesiredVariant]
    made: dict[PackageKey, DesiredVariant] = field(default_factory=dict)
    unmet: dict[ObjectKey, tuple[Problem, ...]] = field(default_factory=dict)
    undecided: set[ObjectName] = field(default_factory=set)

    def add(self, needed: NeededPackage, askers: list[Root], roots: Mapping[RootKey, Root]) -> None:
        askers.sort(key=lambda root: root.key)
        parent_namespace = needed.package.instance.slot.namespace
        there = any(root.key.namespace == parent_namespace for root in askers)
        namespace = parent_namespace if there else askers[0].key.namespace
        upstream = self.upstream(needed.package, namespace)
        if upstream is None:
            self.refuse(askers, f"No Repository in namespace {namespace} has it", "Register its repository.")
            return
        name = package_name(upstream, needed.package.instance.name.rpartition("//")[2])
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
        rival = self.rival(place, key)
        if rival is not None:
            # Another variant that is made from the same package at the same revision serves as well.
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

    def upstream(self, package: Resolved, namespace: str) -> RepositoryView | None:
        """Return the Repository of the namespace that has a package, the most specific one."""
        repository, _, path = package.instance.name.rpartition("//")
        views = self.sources.get((namespace, repository), ())
        return next((view for view in views if is_within(path, view.directory)), None)

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

    def rival(self, place: PackageKey, key: ObjectName) -> DesiredVariant | None:
        """Return another variant with the same place or the same name, if there is one."""
        variants = [*self.taken.get(place, ()), self.named.get(key), self.made.get(place)]
        return next((variant for variant in variants if variant is not None), None)

    def refuse(self, askers: Iterable[Root], message: str, hint: str) -> None:
        for root in askers:
            if root.variant is not None:
                problem = Problem(root.location, Reason.DEPENDENCY_CONFLICT, message, hint, cause=message)
                key = variant_key(root.key)
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
    message = (
        f"Dependencies cannot be met: {what} belongs in {where}, which {other} makes from something else"
    )
    return message, "Give one of the two another downstream package, or a revision that both can use."


def _shown(trails: Iterable[RequirementPath], roots: Mapping[RootKey, Root]) -> Iterator[str]:
    """Yield the dependents, each with the path from its variant: `default/web > app`."""
    chains = sorted({tuple(_steps(trail, roots)) for trail in trails})
    yield from (" > ".join(steps) for steps in chains[:_MOST_DEPENDENTS])
    if len(chains) > _MOST_DEPENDENTS:
        yield f"{len(chains) - _MOST_DEPENDENTS} more"


def _steps(trail: RequirementPath, roots: Mapping[RootKey, Root]) -> Iterator[str]:
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
    search = _Search(inventory, published, unused)
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


class _Search(Struct):
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

    def upstream(self, record: PackageVariantRecord) -> PackageKey | None:
        upstream = record.spec.get("upstream") or {}
        view = self.inventory.repositories.get(ObjectName(record.namespace, upstream.get("repo") or ""))
        return PackageKey(view.url, view.full_path(upstream.get("package") or "")) if view else None

    def revision(self, record: PackageVariantRecord) -> Candidate | None:
        package = self.upstream(record)
        return (
            self.published.revisions.get(PackageTree(package, Oid(record.upstream_tree))) if package else None
        )

    def is_kept(self, record: PackageVariantRecord) -> bool:
        package = self.upstream(record)
        names = repository_names(self.inventory.repositories.values()) if package else {}
        retained = self.unused.get(self.cluster(record), frozenset())
        return package is not None and package_id(names.get(package.url, ""), package.path).name in retained

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
