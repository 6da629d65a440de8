"""Resolve the fleet: every variant, those that their packages need, and the lock of every cluster (D12)."""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Location, UsageError
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural
from reconciler.dependencies.catalog.cluster_inputs import (
    FleetInputs,
    collect_cluster_inputs,
    fleet_clusters,
    is_in_index,
)
from reconciler.dependencies.catalog.index import DependencyInputs, read_index, repository_names
from reconciler.dependencies.dialects.reading import is_generated_by
from reconciler.dependencies.lock import format as lock_files
from reconciler.dependencies.lock import update as updates
from reconciler.dependencies.lock.changes import is_met_by
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, ClusterUpdate, LockUpdate, ResolveOptions
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from reconciler.dependencies.model.instances import Resolution as Locked
from reconciler.dependencies.model.instances import Resolved
from reconciler.dependencies.model.packages import Candidate, PackageNeed
from reconciler.dependencies.solve.problem import ConflictCode
from reconciler.dependencies.versions import VersionError, parse_relaxed
from reconciler.expand import DesiredVariant
from reconciler.expand.variants import Desired, variant_key
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectKey, ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.resolve.deliveries import Deliveries, cluster_of, delivery_trees, resolve_deliveries
from reconciler.resolve.dependency_roots import (
    RequirementChange,
    Root,
    Roots,
    find_leaving,
    find_roots,
    generate,
    requirement_changes,
    root_key,
)
from reconciler.resolve.ownership import downstream_packages
from reconciler.resolve.resolution import Needs, Resolution, ResolvedVariant
from reconciler.resolve.variants import extend_resolution, find_publications, with_releases

_EXPLAINED = frozenset({Reason.DEPENDENCY_CONFLICT, Reason.DEPENDENCY_CYCLE})
_UNDECIDED = "Not all that its cluster uses is known, or could be decided in the steps that are allowed"


class ResolvedFleet(Struct, frozen=True):
    """Every variant with its pin, those that others need included, and the lock of every cluster.

    `wanted_locks` are the locks to propose: `locks` themselves, unless locks are reviewed first. `clusters`
    are the inputs that the locks were resolved from, `deliveries` the packages for generated manifests.
    `requirement_changes` are what variants with another upstream revision require differently. Variants with
    `defects` are left alone.
    """

    desired: Desired
    resolution: Resolution
    locks: LockUpdate = field(default_factory=LockUpdate)
    wanted_locks: LockUpdate = field(default_factory=LockUpdate)
    clusters: FleetInputs = field(default_factory=FleetInputs)
    deliveries: Deliveries = field(default_factory=Deliveries)
    requirement_changes: Mapping[ObjectName, tuple[RequirementChange, ...]] = field(default_factory=dict)
    defects: Mapping[ObjectName, Problem] = field(default_factory=dict)

    @property
    def needs(self) -> Needs:
        """The package trees that rendering reads, by repository URL."""
        trees: dict[str, frozenset[Oid]] = dict(self.resolution.needs.trees)
        for delivery in self.deliveries.items:
            url = delivery.resolved.downstream.url
            if oids := frozenset(delivery_trees(delivery.resolved)):
                trees[url] = trees.get(url, frozenset()) | oids
        return Needs(trees, self.resolution.needs.plain)


def resolve_fleet(
    inventory: Inventory,
    desired: Desired,
    dependencies: DependencyInputs,
    retained: Container[ObjectName] = frozenset(),
    *,
    options: ResolveOptions = DEFAULT_OPTIONS,
    defects: Mapping[ObjectName, Problem] = MappingProxyType({}),
) -> ResolvedFleet:
    """Resolve every variant, and everything that their packages need, to a fixed point. Pure; order-free.

    A variant that people wrote, or a set expanded to, wins over one that would be generated in its place.
    A variant with unmet dependencies stalls, and its package stays. A generated variant goes only if it is
    certain that no other needs it (law 4).

    Packages of `retained` variants, undesired ones that stay, need what they needed. A bug of ours breaks the
    work on variants with `defects`: they are stalled.

    Raises:
        UsageError: A name to upgrade is no package's.
    """
    resolution = extend_resolution(Resolution(), inventory, desired, defects)
    if inventory.is_partial:
        # A shard reads the whole fleet where its clusters need packages.
        return ResolvedFleet(desired, with_releases(resolution, inventory, desired), defects=defects)
    roots = find_roots(inventory, desired, resolution, dependencies.published, retained)
    clusters = _cluster_inputs(inventory, dependencies, roots)
    if options.upgrade:
        check_upgrades(options.upgrade, clusters, desired.variants, dependencies.locks)
    is_unused = not (clusters.worlds or clusters.problems or clusters.warnings or dependencies.locks)
    if is_unused and not any(record.requested_by for record in inventory.records.values()):
        return ResolvedFleet(desired, with_releases(resolution, inventory, desired), defects=defects)
    locks = wanted_locks = _update_locks(inventory, dependencies, clusters, options)
    if inventory.control.standing.is_outdated:
        # Newer commits may have decided otherwise: what is locked is decided at the tip.
        locks = wanted_locks = updates.effective_locks(wanted_locks, strict=True)
    elif inventory.policy.suspend:
        locks = updates.effective_locks(wanted_locks, strict=True)
    elif inventory.reviewed is not None:
        # A reviewed lock takes effect when its pull request is merged, so this run uses the present one.
        locks = updates.effective_locks(wanted_locks, strict=inventory.policy.lock.reviewed.strict)
    waiting = _waiting(inventory, locks, wanted_locks)
    generated = generate(inventory, desired, resolution.downstreams, locks, roots)
    unmet = {**_unmet(locks, roots), **generated.unmet}
    installs = ((key, root) for named in roots.by_cluster.values() for key, root in named.items())
    asking = {root.label(key) for key, root in installs} if unmet else set()
    # A problem of an install is reported at the variant that requests it.
    general = (p for p in locks.problems if not (p.reason in _EXPLAINED and p.subject in asking))
    locks = replace(locks, problems=tuple(sorted({*general, *(p for ps in unmet.values() for p in ps)})))
    leaving = find_leaving(
        inventory,
        dependencies.published,
        resolution,
        locks,
        needed=generated.undecided | {variant.key for variant in generated.variants},
        incomplete=clusters.incomplete if _is_readable(inventory) else frozenset({""}),
    )
    variants = sorted((*desired.variants, *generated.variants), key=lambda variant: variant.key)
    desired = replace(
        desired,
        variants=tuple(variants),
        released=leaving.released,
        still_needed=leaving.still_needed,
        waiting=waiting,
    )
    if generated.variants:
        resolution = extend_resolution(resolution, inventory, desired, defects)
    resolution = _without(with_releases(resolution, inventory, desired), unmet)
    deliveries = resolve_deliveries(inventory, clusters, locks)
    changes = requirement_changes(resolution, inventory, dependencies.published, locks)
    return ResolvedFleet(desired, resolution, locks, wanted_locks, clusters, deliveries, changes, defects)


def with_deliveries(
    fleet: ResolvedFleet,
    inventory: Inventory,
    resolved: Iterable[ResolvedVariant],
    stalled: frozenset[ObjectKey],
    problems: Iterable[Problem],
) -> ResolvedFleet:
    """Return the fleet with the deliveries that were rendered among its variants."""
    resolved, resolution = tuple(resolved), fleet.resolution
    variants = [delivery.variant for delivery in resolved]
    desired = replace(
        fleet.desired,
        variants=tuple(sorted((*fleet.desired.variants, *variants), key=lambda variant: variant.key)),
        stalled=fleet.desired.stalled | stalled,
        problems=tuple(sorted({*fleet.desired.problems, *problems})),
    )
    published = find_publications(downstream_packages(variants, inventory), desired, inventory)
    resolution = replace(
        resolution,
        variants=(*resolution.variants, *resolved),
        downstreams=downstream_packages(variants, inventory, resolution.downstreams),
        publications={**resolution.publications, **published},
    )
    return replace(fleet, desired=desired, resolution=resolution)


def find_dependent_clusters(
    inventory: Inventory,
    desired: Desired,
    dependencies: DependencyInputs,
    retained: Container[ObjectName] = frozenset(),
) -> frozenset[str]:
    """Return the clusters with requests for packages or with manifests that are not understood. Pure.

    "" means any cluster. The arguments are those of `resolve_fleet`.
    """
    inputs = _cluster_inputs(inventory, dependencies, Roots())
    published, roots = dependencies.published, Roots().by_cluster
    if any(candidate.requires for candidate in published.revisions.values()):
        resolution = extend_resolution(Resolution(), inventory, desired)
        roots = find_roots(inventory, desired, resolution, published, retained).by_cluster
    asking = {name for name, named in roots.items() if any(r.candidate.requires for r in named.values())}
    anywhere = {""} if read_index(inventory.index).problems else set()
    return inputs.incomplete | {world.cluster for world in inputs.worlds} | asking | anywhere


def fleet_inputs(inventory: Inventory, desired: Desired, dependencies: DependencyInputs) -> FleetInputs:
    """Return the needs of every cluster, and the packages that there are; nothing is resolved. Pure."""
    resolution = extend_resolution(Resolution(), inventory, desired)
    roots = find_roots(inventory, desired, resolution, dependencies.published, frozenset())
    return _cluster_inputs(inventory, dependencies, roots)


def _cluster_inputs(inventory: Inventory, dependencies: DependencyInputs, roots: Roots) -> FleetInputs:
    installs = {cluster: roots.asked(cluster) for cluster in {*roots.by_cluster, *roots.incomplete}}
    index, clusters = read_index(inventory.index), fleet_clusters(inventory)
    instance = inventory.policy.instance
    authored = (document for document in inventory.documents if not is_generated_by(document.value, instance))
    published = dependencies.published
    index = replace(index, refused={**published.refused, **index.refused})
    inputs = collect_cluster_inputs(authored, published.candidates, index, clusters, installs)
    unread = (p.location for p in inventory.problems if is_in_index(p.location))
    return replace(inputs, unread=tuple(sorted(unread)))


def _update_locks(
    inventory: Inventory, dependencies: DependencyInputs, clusters: FleetInputs, options: ResolveOptions
) -> LockUpdate:
    views = inventory.repositories.values()
    names, control = repository_names(views), inventory.control
    is_recorded = control.standing.applied in (None, control.commit.oid)
    locks = updates.update_locks(
        clusters,
        lock_files.read_locks(dependencies.locks, reviewed=inventory.reviewed is not None),
        options=options,
        sure=_is_readable(inventory),
        unreachable=frozenset(names.get(view.url, "") for view in views if not view.is_available),
        # Applying records a new commit of the control repository, whatever else it does.
        writes=not (is_recorded or inventory.policy.suspend or inventory.reviewed is not None),
    )
    notes = _upgrade_notes(options.upgrade, clusters, locks) if options.upgrade else ()
    return replace(locks, warnings=(*dependencies.published.warnings, *locks.warnings, *notes))


def _waiting(inventory: Inventory, locks: LockUpdate, proposed: LockUpdate) -> dict[ObjectName, str]:
    """Return the variants of clusters without a merged lock, with the reason to keep them."""
    merged = {scope.cluster for scope in locks.scopes if scope.after is not None}
    waiting = {scope.cluster for scope in proposed.scopes if scope.after is not None} - merged
    views, reasons = inventory.repositories, {}
    for key, record in inventory.records.items():
        view = views.get(ObjectName(record.namespace, record.repository))
        cluster = cluster_of(key) or (view.cluster if view and record.requested_by else "")
        if cluster in waiting:
            reasons[key] = f"The lock of cluster {cluster} waits for its pull request"
    return reasons


def _is_readable(inventory: Inventory) -> bool:
    return inventory.control.readable and not inventory.control.broken


def _unmet(locks: LockUpdate, roots: Roots) -> dict[ObjectKey, tuple[Problem, ...]]:
    """Return the variants that stall because the lock of their cluster does not hold them.

    These are the roots that the lock does not have at their revision, where the cluster is not solved
    completely.
    """
    unmet: dict[ObjectKey, tuple[Problem, ...]] = {}
    for scope in locks.scopes:
        packages = scope.after.resolution.packages if scope.after else ()
        locked = {(p.instance.name, root_key(p.instance)): p.version for p in packages}
        for key, root in roots.by_cluster.get(scope.cluster, {}).items() if not scope.finished else ():
            candidate = root.candidate
            met = locked.get((candidate.id.name, key)) == candidate.version.text
            if candidate.requires and not met and root.variant is not None:
                unmet[variant_key(root.key)] = (_problem(scope, key, root),)
    return unmet


def _problem(scope: ClusterUpdate, key: ObjectName, root: Root) -> Problem:
    about_root = [e for e in scope.explanations if root.label(key) in e.about]
    explanations = about_root or [e for e in scope.explanations if not e.about]
    sentences = dict.fromkeys(sentence for e in explanations for sentence in e.sentences)
    hints = dict.fromkeys(e.hint for e in explanations if e.hint)
    is_cycle = any(e.code is ConflictCode.CYCLE for e in explanations)
    reason = Reason.DEPENDENCY_CYCLE if is_cycle else Reason.DEPENDENCY_CONFLICT
    message = f"Dependencies cannot be met: {'; '.join(sentences) or _UNDECIDED}"
    problem = Problem(root.source.location, reason, message, "\n".join(hints), cause=message)
    return problem.owned_by(variant_key(root.key))


def _without(resolution: Resolution, unmet: Mapping[ObjectKey, tuple[Problem, ...]]) -> Resolution:
    if not unmet:
        return resolution
    problems = {*resolution.problems, *(problem for problems in unmet.values() for problem in problems)}
    return replace(
        resolution,
        variants=tuple(r for r in resolution.variants if variant_key(r.variant.key) not in unmet),
        stalled=resolution.stalled | unmet.keys(),
        problems=tuple(sorted(problems)),
    )


_OTHERWISE = "Names are those that `reconciler lock` and `reconciler index list` print."


def check_upgrades(
    upgrade: Iterable[str],
    clusters: FleetInputs,
    variants: Iterable[DesiredVariant],
    locks: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Refuse to upgrade what is no package that a cluster could have, or has in its lock.

    Names are with or without ecosystem. Variants that follow their upstream are none of them any more.

    Raises:
        UsageError: A name is no package's.
    """
    catalogues = {id(world.catalogue): world.catalogue for world in clusters.worlds}.values()
    packages = {id_ for catalogue in catalogues for id_ in (*catalogue.packages, *catalogue.names)}
    locked = lock_files.read_locks(locks).by_cluster.values()
    packages |= {package.instance.package for lock in locked for package in lock.resolution.packages}
    names = {name for id_ in packages for name in (id_.name, str(id_))}
    by_name = {name: variant for variant in variants for name in (variant.key.name, str(variant.key))}
    for name in sorted(upgrade):
        if name in names:
            continue
        if (variant := by_name.get(name)) is not None:
            hint = "Write another revision there: only packages that clusters need are upgraded by name."
            message = f"PackageVariant {variant.key} has the upstream revision that its manifest names"
            raise UsageError(message, hint=hint)
        hint = suggest(name, names | by_name.keys(), otherwise=_OTHERWISE)
        raise UsageError(f"No package or PackageVariant is called {name}", hint=hint)


def _upgrade_notes(upgrade: frozenset[str], clusters: FleetInputs, locks: LockUpdate) -> Iterator[Problem]:
    """Yield why packages that a person named for an upgrade are not at their newest version."""
    worlds = {world.cluster: world for world in clusters.worlds}
    scopes = [scope for scope in locks.scopes if scope.after is not None and scope.cluster in worlds]
    notes: dict[tuple[Reason, str, str], list[tuple[str, Location]]] = {}
    for scope in scopes:
        world, lock = worlds[scope.cluster], scope.after
        names = upgrade | updates.package_names(world, upgrade)
        for package in lock.resolution.packages if lock else ():
            id_ = package.instance.package
            if lock is None or names.isdisjoint((id_.name, str(id_))):
                continue
            versions = world.published(package.instance)
            newest = next((c for c in reversed(versions) if c.version.is_release), None)
            if not versions:
                state = "can be read" if clusters.unread else "is in the index"
                text, why = (
                    f"no version of {id_.name} {state}",
                    f"it stays at what is locked, {package.version}",
                )
                note, where = (Reason.NOT_FOUND, text, why), Location(lock_files.lock_path(lock.lock))
            elif newest and _is_newer(newest, package):
                text = f"{id_.name} is at {package.version} and not at {newest.version}"
                why = _obstacle(newest, package, world, lock.resolution, names)
                note, where = (Reason.DEPENDENCY_CONFLICT, text, why), newest.location
            else:
                continue
            notes.setdefault(note, []).append((scope.cluster, where))
    for (reason, text, why), places in notes.items():
        (cluster, where), *others = places
        more = f" and {plural(len(others), 'more cluster')}" if others else ""
        yield Problem(where, reason, f"{text} ({cluster}{more}): {why}")


def _is_newer(newest: Candidate, package: Resolved) -> bool:
    with suppress(VersionError):
        return newest.version.height > parse_relaxed(package.version).height
    return False


def _obstacle(
    newest: Candidate, package: Resolved, world: ClusterInputs, locked: Locked, names: frozenset[str]
) -> str:
    """Return why a version is not chosen, as far as one manifest or package alone excludes it.

    Only packages with these `names` may leave their locked versions.
    """
    version, catalogue = newest.version, world.catalogue
    if newest.withdrawn:
        return f"it is withdrawn: {newest.withdrawn}"
    install = world.installs_by_instance().get(package.instance)
    if install is not None and not install.need.range.allows(version, newest.digest):
        return f"{install} asks for {install.need.range}"
    for parent in locked.packages:
        for need in parent.dependencies:
            is_of = need.resolved == package.instance and need.need == "package" and need.constraints
            if is_of and not is_met_by(need, version.text, newest.digest):
                return f"{parent.instance} {parent.version} asks for {need.constraints}"
    namespace = package.instance.slot.namespace
    for requirement in newest.requires:
        needs = [need for need in requirement.alternatives if isinstance(need, PackageNeed)]
        fits = (catalogue.places(catalogue.find(need.id), need.range, namespace) for need in needs)
        if not requirement.optional and len(needs) == len(requirement.alternatives) and not any(fits):
            return f"{version} requires {requirement}, and no version in the index fits"
    held = next(_held(newest, catalogue, locked, names), "")
    return held or "no solution that keeps the other locked versions has it"


def _held(newest: Candidate, catalogue: Catalogue, locked: Locked, names: Container[str]) -> Iterator[str]:
    """Yield the locked packages that a version needs in another version, and that may not move."""
    for requirement in newest.requires:
        if requirement.optional or len(requirement.alternatives) > 1:
            continue
        for need in (need for need in requirement.alternatives if isinstance(need, PackageNeed)):
            id_ = catalogue.find(need.id)
            there = [package for package in locked.packages if package.instance.package == id_]
            if any(need.range.allows(p.candidate.version, p.digest) for p in there) or id_.name in names:
                continue
            for package in there:
                state = f"{id_.name} is locked at {package.version}: add --upgrade {id_.name}"
                yield f"{newest.version} requires {requirement}, and {state}"
