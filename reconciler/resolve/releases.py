"""Packages that leave our care with their content kept (deletion policy `orphan`)."""

from collections.abc import Container, Iterator

from reconciler.expand.variants import Desired
from reconciler.ids import ObjectName, PackageKey
from reconciler.inventory import Inventory, RepositoryView
from reconciler.resolve.ownership import current_draft, find_owner
from reconciler.resolve.resolution import Release

ORPHAN = "orphan"


def find_releases(wanted: Container[PackageKey], desired: Desired, inventory: Inventory) -> Iterator[Release]:
    """Yield the owned packages that no desired variant targets and whose owner says `orphan`.

    Order-free. Whether there is evidence enough to release them is the plan's to decide; here
    is only what it would have to read.
    """
    found: set[PackageKey] = set()
    policies = {v.key: v.spec.deletion_policy for v in desired.variants}
    policies = {**{k: r.deletion_policy for k, r in inventory.records.items()}, **policies}
    for view in sorted(inventory.repositories.values(), key=lambda v: v.key):
        for path in sorted(view.packages):
            key = PackageKey(view.url, path)
            if key in wanted or key in found:
                continue
            release = _release(view, path, inventory, policies)
            if release is not None:
                found.add(key)
                yield release


def _release(
    view: RepositoryView, path: str, inventory: Inventory, policies: dict[ObjectName, str | None]
) -> Release | None:
    package = view.packages[path]
    draft = current_draft(package, view, inventory)
    header = package.main_header if package.main_tree else draft.header if draft else None
    key = PackageKey(view.url, path)
    owner = find_owner(header, key, inventory)
    if owner is None or policies.get(owner) != ORPHAN:
        return None
    if package.main_tree is not None:
        return Release(key, view.key, package.main_tree)
    return Release(key, view.key, draft.tree, draft.ref) if draft else None
