"""Decide which repositories a shard reads: its own, and those that they need (D16)."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.reasons import Reason
from reconciler.expand import Desired, expand
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryRole, RepositoryView
from reconciler.inventory.shard import Shard
from reconciler.names.ids import ObjectName, PackageKey, normalise_url
from reconciler.names.refs import package_name_error, relative_package
from reconciler.plan.deletion_diff import diff_variants, retained_variants, without_generated
from reconciler.read.dependencies import read_dependencies
from reconciler.read.repositories.trees import PackageTrees
from reconciler.records.upstream_lock import LOCKS_DIRECTORY
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.fleet import find_dependent_clusters
from reconciler.resolve.merge_bases import source_names
from reconciler.resolve.ownership import downstream_packages, find_owner, find_view
from reconciler.resolve.subpackages import SUBPACKAGE_REVISIONS

_COLLISIONS = frozenset({Reason.DUPLICATE_DOWNSTREAM, Reason.AMBIGUOUS_IDENTIFIER})


def assign_roles(inventory: Inventory, shard: Shard) -> Inventory:
    """Return the inventory with the role of every repository that was read. Pure.

    A cluster is planned as a whole, also where another shard writes some of its repositories: what one of
    its packages needs may go into another repository of the cluster.
    """
    if not inventory.is_partial:
        return inventory
    clusters = planned_clusters(inventory, shard)
    views = {}
    for key, view in inventory.repositories.items():
        role = RepositoryRole.PLANNED if view.cluster in clusters else RepositoryRole.READ
        views[key] = view if view.role is RepositoryRole.SKIPPED else replace(view, role=role)
    return replace(inventory, repositories=views)


def planned_clusters(inventory: Inventory, shard: Shard) -> frozenset[str]:
    """Return the clusters that have a repository which the shard writes."""
    return frozenset(view.cluster for view in inventory.repositories.values() if shard.holds(view.url))


def every_url(inventory: Inventory) -> frozenset[str]:
    """Return the URLs of all repositories."""
    return frozenset(view.url for view in inventory.views.values())


def static_needs(inventory: Inventory, shard: Shard) -> frozenset[str]:
    """Return the URLs that registrations and sets need.

    The upstream of every set is among them: whether a set expands decides which of its variants are
    gone, and the deletion guard counts those of the whole fleet.
    """
    clusters = planned_clusters(inventory, shard)
    views = inventory.repositories.values()
    planned = {view.url for view in views if view.cluster in clusters}
    upstreams = ((pvs.key.namespace, pvs.manifest.spec.upstream) for pvs in inventory.sets)
    names = (ObjectName(namespace, (upstream and upstream.repo) or "") for namespace, upstream in upstreams)
    return frozenset((*planned, *_urls(names, inventory)))


def why_whole_fleet(inventory: Inventory, desired: Desired, shard: Shard) -> str:
    """Return what cannot be decided without reading the whole fleet, "" for nothing. Pure."""
    return next(_reasons(inventory, desired, shard), "")


def _reasons(inventory: Inventory, desired: Desired, shard: Shard) -> Iterator[str]:
    refused = inventory.refused
    if refused is None or refused.variants or refused.packages:
        yield "deletions wait for consent"
    if inventory.reviewed is not None and shard.holds(inventory.control.url):
        yield "it proposes the lock"
    # A set of other shards may stall for its own reasons, and then it collides with nobody.
    if any(problem.reason in _COLLISIONS for problem in desired.problems):
        yield "several owners want one package"
    # Names are checked where no package exists yet, and the conditions of a set list all wrong ones.
    owners = (p.owner for p in desired.problems if p.reason == Reason.INVALID_NAME)
    if any(owner is not None and owner.kind == "PackageVariantSet" for owner in owners):
        yield "a set names packages that cannot be made"
    # The deletion guard counts these packages, not records, in all repositories.
    if _has_moved(inventory, desired):
        yield "a variant has another downstream now"
    if inventory.policy.rollouts and inventory.sets:
        yield "a wave waits for packages of other repositories"
    if any(SUBPACKAGE_REVISIONS in variant.annotations for variant in desired.variants):
        yield "a variant sets the revision of a sub-package"
    authored = without_generated(inventory)
    diff = diff_variants(desired, authored)
    if diff.refused:
        yield "the deletion guard refuses deletions"
    gone = [change.record for change in (*diff.delete, *diff.transfer) if change.record is not None]
    if gone and len(authored.records) < len(inventory.records):
        yield "packages that only deleted ones needed may be deleted with them"


def variant_needs(inventory: Inventory, desired: Desired) -> frozenset[str]:
    """Return the URLs that the planned variants are made from, now or when they were last applied. Pure.

    Also those of other shards where a new package would get a name that only an existing package may have:
    if it does not exist, its owner stalls.
    """
    named = set()
    for variant in desired.variants:
        view, spec = find_view(variant, inventory), variant.spec
        if view is not None and view.role is RepositoryRole.PLANNED:
            named.add(ObjectName(variant.key.namespace, (spec.upstream and spec.upstream.repo) or ""))
        elif view is not None and _may_stall(view, (spec.downstream and spec.downstream.package) or ""):
            named.add(view.key)
    planned = {view.url for view in inventory.repositories.values() if view.role is RepositoryRole.PLANNED}
    for record in inventory.records.values():
        if record.url in planned:
            named.add(ObjectName(record.namespace, (record.spec.get("upstream") or {}).get("repo") or ""))
    return frozenset((*_urls(named, inventory), *_base_urls(inventory)))


def why_dependencies(
    inventory: Inventory, shard: Shard, locked: Iterable[str], dependent: Container[str]
) -> str:
    """Return why dependencies call for the whole fleet, "" for nothing: any repository may publish a package.

    `dependent` are the clusters with requests for packages; "" is an unknown cluster.
    """
    clusters = planned_clusters(inventory, shard)
    planned = {view.url for view in inventory.repositories.values() if view.cluster in clusters}
    generated = (r.url for r in inventory.records.values() if r.requested_by or cluster_of(r.key))
    if (
        "" in dependent
        or any(cluster in dependent for cluster in clusters)
        or any(f"{LOCKS_DIRECTORY}/{cluster}.json" in locked for cluster in clusters)
        or any(url in planned for url in generated)
    ):
        return "packages of its clusters need other packages"
    return ""


def _urls(names: Iterable[ObjectName], inventory: Inventory) -> Iterator[str]:
    views = (inventory.repositories.get(name) for name in names)
    yield from (view.url for view in views if view is not None)


def _has_moved(inventory: Inventory, desired: Desired) -> bool:
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


Views = Mapping[ObjectName, RepositoryView]


@dataclass(slots=True)
class ShardReader:
    """Decides, round by round, which repositories a shard reads.

    `inventory` has no repositories yet. `read_trees` returns the packages at commits without a revision.
    `why_whole` is the reason to read the whole fleet, "" if there is none.
    """

    inventory: Inventory
    shard: Shard
    mirrors: Mirrors
    read_trees: Callable[[Views], PackageTrees]
    why_whole: str = field(default="", init=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the whole fleet is read, for the plan."""
        shard = f"{self.shard.part}/{self.shard.parts}"
        return (f"Shard {shard} reads every repository: {self.why_whole}",) if self.why_whole else ()

    def with_roles(self, views: Views) -> Views:
        """Return the views, each with its role in this run."""
        return assign_roles(self._of(views), self.shard).views

    def _of(self, views: Views) -> Inventory:
        """Return the inventory with views."""
        former = {key: view for key, view in views.items() if view.former is not None}
        registered = {key: view for key, view in views.items() if key not in former}
        return replace(self.inventory, repositories=registered, former=former)

    def needed_urls(self, views: Views) -> frozenset[str]:
        """Return the URLs of the repositories that the shard needs, given the views read so far."""
        inventory = assign_roles(self._of(views), self.shard)
        if inventory.former:
            # The deletion guard counts what is left at former places among all packages of the fleet.
            self.why_whole = "packages are left where no Repository is any more"
        if self.why_whole or not inventory.is_partial:
            return every_url(inventory)
        needed = static_needs(inventory, self.shard)
        if _is_read(inventory, needed):
            # Every set expands as it does where the whole fleet is read, so this is certain.
            desired = expand(inventory)
            self.why_whole = why_whole_fleet(inventory, desired, self.shard)
            needed |= variant_needs(inventory, desired)
            if not self.why_whole and _is_read(inventory, needed):
                self.why_whole = self._why_dependencies(inventory, desired)
        return every_url(inventory) if self.why_whole else needed

    def _why_dependencies(self, inventory: Inventory, desired: Desired) -> str:
        trees = self.read_trees(inventory.repositories)
        inventory = replace(inventory, trees=trees.trees, times=trees.times)
        inputs = read_dependencies(inventory, self.mirrors)
        retained = retained_variants(desired, inventory)
        dependent = find_dependent_clusters(inventory, desired, inputs, retained)
        return why_dependencies(inventory, self.shard, inputs.locks, dependent)


def _is_read(inventory: Inventory, urls: frozenset[str]) -> bool:
    views = inventory.repositories.values()
    return not any(view.role is RepositoryRole.SKIPPED and view.url in urls for view in views)
