"""Generated variants that may go: nobody needs them any more, and nothing that still stands does."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from reconciler.dependencies.catalog.published import PackageTree, PublishedPackages, repository_names
from reconciler.dependencies.dialects import package_id
from reconciler.dependencies.lock.needed import VARIANT_KIND
from reconciler.dependencies.model.packages import ApiNeed, Candidate, Need, PackageNeed
from reconciler.dependencies.update.fleet import LockUpdate
from reconciler.ids import ObjectName, Oid, PackageKey
from reconciler.inventory import Inventory, PackageState, RepositoryView
from reconciler.resolve.ownership import find_owner
from reconciler.resolve.resolution import Resolution
from reconciler.state import PackageVariantRecord


@dataclass(frozen=True, slots=True)
class Leaving:
    """Which generated variants certainly nobody needs, and which are still needed, with the reasons."""

    released: frozenset[ObjectName] = frozenset()
    held: Mapping[ObjectName, str] = field(default_factory=dict)


def find_leaving(
    inventory: Inventory,
    published: PublishedPackages,
    resolution: Resolution,
    decision: LockUpdate,
    *,
    wanted: frozenset[ObjectName],
    incomplete: frozenset[str],
) -> Leaving:
    """Sort the generated variants that nothing needs according to the locks. Order-free.

    One goes only if its cluster was decided whole. It waits while a package on main was made from a
    revision that needs it: a person may never merge the deletion or the new revision of that one.

    Args:
        inventory: The world.
        published: What revisions need.
        resolution: The variants that nobody generated.
        decision: What is locked.
        wanted: The generated variants that are needed, or of which nothing was decided.
        incomplete: Clusters of which something is not known; "" means that it may be any.
    """
    unsure = {scope.cluster for scope in decision.scopes if not scope.finished} | incomplete
    search = _Search(inventory, published, dict(_unused(decision)))
    idle = {
        key: record
        for key, record in sorted(inventory.records.items())
        if record.requested_by and key not in wanted and search.cluster(record) not in {"", *unsure}
    }
    if not idle or "" in unsure:
        return Leaving()
    idle = {key: record for key, record in idle.items() if not search.is_kept(record)}
    held = dict(search.held(idle, resolution))
    return Leaving(frozenset(idle.keys() - held.keys()), held)


def _unused(decision: LockUpdate) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the packages that each lock keeps although nobody needs them."""
    for scope in decision.scopes:
        if scope.after is not None:
            yield scope.cluster, frozenset(one.name for one in scope.after.resolution.unused)


@dataclass(slots=True)
class _Search:
    inventory: Inventory
    published: PublishedPackages
    unused: Mapping[str, frozenset[str]]

    def view(self, record: PackageVariantRecord) -> RepositoryView | None:
        return self.inventory.repositories.get(ObjectName(record.namespace, record.repository))

    def cluster(self, record: PackageVariantRecord) -> str:
        view = self.view(record)
        return view.cluster if view is not None else ""

    def upstream(self, record: PackageVariantRecord) -> PackageKey | None:
        said = record.spec.get("upstream") or {}
        view = self.inventory.repositories.get(ObjectName(record.namespace, said.get("repo") or ""))
        return PackageKey(view.url, view.full_path(said.get("package") or "")) if view else None

    def revision(self, record: PackageVariantRecord) -> Candidate | None:
        package = self.upstream(record)
        return (
            self.published.revisions.get(PackageTree(package, Oid(record.upstream_tree))) if package else None
        )

    def is_kept(self, record: PackageVariantRecord) -> bool:
        package = self.upstream(record)
        names = repository_names(self.inventory.repositories.values()) if package else {}
        kept = self.unused.get(self.cluster(record), frozenset())
        return package is not None and package_id(names.get(package.url, ""), package.path).name in kept

    def held(
        self, idle: Mapping[ObjectName, PackageVariantRecord], resolution: Resolution
    ) -> Iterator[tuple[ObjectName, str]]:
        """Yield what packages on main need, and what that needs, with who it is that stands there."""
        names = {name: one.id for one in self.published.candidates for name in one.names}
        found: set[ObjectName] = set()
        queue = list(self.standing(resolution))
        for cluster, candidate, asker in queue:
            needs = [need for requirement in candidate.requires for need in requirement.alternatives]
            for key, record in idle.items():
                own = self.revision(record)
                if key in found or own is None or self.cluster(record) != cluster:
                    continue
                if any(_meets(own, need, names) for need in needs):
                    found.add(key)
                    queue.append((cluster, own, asker))
                    yield key, f"What {VARIANT_KIND} {asker} has on main needs it"

    def standing(self, resolution: Resolution) -> Iterator[tuple[str, Candidate, ObjectName]]:
        """Yield the revisions that packages on main were made from, where nobody asks for them any more."""
        pinned = {one.variant.key for one in resolution.variants}
        for one in resolution.variants:
            base = one.base
            if one.local is not None and base is not None and base.tree != one.pin.tree:
                candidate = self.published.revisions.get(PackageTree(base.package, base.tree))
                if candidate is not None:
                    yield self.inventory.repositories[one.view].cluster, candidate, one.variant.key
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
            return any(need.gvk in (gvk, gvk._replace(version="")) for gvk in candidate.provides)
    return False
