"""Garbage-collect generated variants that neither the locks nor the packages on main require."""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from reconciler.dependencies.catalog.index import PackageTree, PublishedPackages, repository_names
from reconciler.dependencies.dialects import package_id
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.dependencies.model.packages import VARIANT_KIND, ApiNeed, Candidate, Need, PackageNeed
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryView
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.ownership import find_owner
from reconciler.resolve.resolution import Resolution


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
        return self.inventory.repositories.get(ObjectName(record.namespace, record.repository))

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
