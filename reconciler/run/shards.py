"""Decide which repositories a shard reads: its own, and those that they need (D16, D41). Pure."""

from collections.abc import Container, Iterator

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Downstream, Upstream
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import DependencyInputs
from reconciler.expand import Desired
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryRole, RepositoryView
from reconciler.inventory.shard import Shard
from reconciler.names.ids import ObjectName, PackageKey, normalise_url
from reconciler.names.refs import package_name_error, relative_package
from reconciler.plan.set_diff import diff_variants, retained_variants, without_generated
from reconciler.records.upstream_lock import LOCKS_DIRECTORY
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.fleet import find_dependent_clusters
from reconciler.resolve.merge_bases import source_names
from reconciler.resolve.ownership import downstream_packages, find_owner, find_view
from reconciler.resolve.variants import SUBPACKAGE_REVISIONS

_COLLISIONS = frozenset({Reason.DUPLICATE_DOWNSTREAM, Reason.AMBIGUOUS_IDENTIFIER})


def planned_clusters(inventory: Inventory, shard: Shard) -> frozenset[str]:
    """Return the clusters that have a repository which the shard writes.

    A cluster is planned as a whole, also where another shard writes some of its repositories: what one of
    its packages needs may go into another repository of the cluster.
    """
    return frozenset(view.cluster for view in inventory.repositories.values() if shard.holds(view.url))


def named_urls(inventory: Inventory, clusters: Container[str]) -> frozenset[str]:
    """Return the URLs that the manifests and records of the planned clusters name, before sets expand.

    The upstream of every set is among them: whether a set expands decides which of its variants are gone,
    and the deletion guard counts those of the whole fleet. So is the downstream of other shards where a new
    package would get a name that only an existing package may have: if it does not exist, its owner stalls.
    """
    views = inventory.repositories
    planned = {view.url for view in views.values() if view.cluster in clusters}
    named = {
        _source(pvs.key.namespace, upstream)
        for pvs in inventory.sets
        for upstream in pvs.manifest.spec.sources
    }
    for variant in inventory.variants:
        namespace, spec = variant.key.namespace, variant.manifest.spec
        downstream = spec.downstream or Downstream()
        view = views.get(ObjectName(namespace, downstream.repo or ""))
        if view is not None and view.url in planned:
            named.add(_source(namespace, spec.upstream))
        elif view is not None and _may_stall(view, downstream.package or ""):
            named.add(view.key)
    for record in inventory.records.values():
        if record.url in planned:
            named.add(ObjectName(record.namespace, (record.spec.get("upstream") or {}).get("repo") or ""))
    return frozenset((*planned, *(views[name].url for name in named if name in views)))


def wanted(
    desired: Desired, inventory: Inventory, dependencies: DependencyInputs, shard: Shard
) -> tuple[frozenset[str], str]:
    """Return the URLs to read once sets are expanded, and why that is the whole fleet, "" if it is not.

    Else those are the bases of updates, which upstreamLocks of planned packages name.
    """
    why = next(_reasons(desired, inventory, dependencies, shard), "")
    urls = (view.url for view in inventory.views.values()) if why else _base_urls(inventory)
    return frozenset(urls), why


def _reasons(
    desired: Desired, inventory: Inventory, dependencies: DependencyInputs, shard: Shard
) -> Iterator[str]:
    """Yield what cannot be decided without reading the whole fleet."""
    if inventory.former:
        # The deletion guard counts what is left at former places among all packages of the fleet.
        yield "packages are left where no Repository is any more"
    refused = inventory.refused
    if refused is None or refused.variants or refused.packages:
        yield "deletions wait for consent"
    if inventory.reviewed is not None and shard.holds(inventory.control.url):
        yield "it proposes the lock"
    # A set of other shards may stall for its own reasons, and then it collides with nobody.
    if any(problem.reason in _COLLISIONS for problem in desired.problems):
        yield "several owners want one package"
    if _has_wrong_names(desired, inventory):
        yield "a set names packages that cannot be made"
    # The deletion guard counts these packages, not records, in all repositories.
    if _has_moved(desired, inventory):
        yield "a variant has another downstream now"
    if inventory.policy.rollouts and inventory.sets:
        yield "a wave waits for packages of other repositories"
    if any(SUBPACKAGE_REVISIONS in variant.annotations for variant in desired.variants):
        yield "a variant sets the revision of a sub-package"
    yield from _undecided_deletions(desired, inventory)
    if _has_dependencies(desired, inventory, dependencies, shard):
        yield "packages of its clusters need other packages"


def _undecided_deletions(desired: Desired, inventory: Inventory) -> Iterator[str]:
    authored = without_generated(inventory)
    diff = diff_variants(desired, authored)
    if diff.refused:
        yield "the deletion guard refuses deletions"
    gone = [change.record for change in (*diff.delete, *diff.transfer) if change.record is not None]
    if gone and len(authored.records) < len(inventory.records):
        yield "packages that only deleted ones needed may be deleted with them"


def _has_wrong_names(desired: Desired, inventory: Inventory) -> bool:
    """Whether a set gives names that no new package may have: its conditions list all of them."""
    owners = (problem.owner for problem in desired.problems if problem.reason == Reason.INVALID_NAME)
    if any(owner is not None and owner.kind == "PackageVariantSet" for owner in owners):
        return True
    named = ((find_view(v, inventory), v.spec.downstream) for v in desired.variants if v.set_key)
    return any(view and place and _may_stall(view, place.package or "") for view, place in named)


def _has_dependencies(
    desired: Desired, inventory: Inventory, dependencies: DependencyInputs, shard: Shard
) -> bool:
    """Whether planned clusters need packages, which any repository may publish."""
    clusters = planned_clusters(inventory, shard)
    planned = {view.url for view in inventory.repositories.values() if view.cluster in clusters}
    generated = (r.url for r in inventory.records.values() if r.requested_by or cluster_of(r.key))
    if any(url in planned for url in generated) or any(
        f"{LOCKS_DIRECTORY}/{cluster}.json" in dependencies.locks for cluster in clusters
    ):
        return True
    retained = retained_variants(desired, inventory)
    dependent = find_dependent_clusters(inventory, desired, dependencies, retained)
    return "" in dependent or not dependent.isdisjoint(clusters)


def _source(namespace: str, upstream: Upstream | None) -> ObjectName:
    return ObjectName(namespace, (upstream and upstream.repo) or "")


def _has_moved(desired: Desired, inventory: Inventory) -> bool:
    """Whether a variant leaves a package behind: the guard counts those among all packages of the fleet."""
    downstreams = downstream_packages(desired.variants, inventory).items()
    places = {variant.key: package for package, variants in downstreams for variant in variants}
    recorded = ((key, PackageKey(r.url, r.path)) for key, r in inventory.records.items())
    return any(
        places.get(owner, package) != package for owner, package in (*recorded, *_owned_packages(inventory))
    )


def _owned_packages(inventory: Inventory) -> Iterator[tuple[ObjectName, PackageKey]]:
    for view in inventory.repositories.values():
        for path, package in view.packages.items() if view.is_planned else ():
            key = PackageKey(view.url, path)
            for header in _headers(package):
                if (owner := find_owner(header, key, inventory)) is not None:
                    yield owner, key


def _headers(package: PackageState) -> Iterator[KptfileHeader]:
    headers = (package.main_header, *(draft.header for draft in package.drafts))
    yield from (header for header in headers if header is not None)


def _may_stall(view: RepositoryView, package: str) -> bool:
    """Whether a package of a skipped repository has a name that no new package may have."""
    if view.role is not RepositoryRole.SKIPPED:
        return False
    name = relative_package(view.full_path(package), view.directory)
    return bool(package_name_error(view.key.name, name))


def _base_urls(inventory: Inventory) -> Iterator[str]:
    """Yield the URLs that the upstreamLocks of planned packages name: there is the base of an update."""
    views = inventory.repositories.values()
    urls = {name: view.url for view in views for name in source_names(view)}
    packages = (package for view in views if view.is_planned for package in view.packages.values())
    locks = (header.upstream_lock for package in packages for header in _headers(package))
    for repo in {lock.repo for lock in locks if lock is not None}:
        if url := urls.get(normalise_url(repo)):
            yield url
