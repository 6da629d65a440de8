"""Packages that leave our care with their content kept (deletion policy `orphan`)."""

from collections.abc import Iterator

from reconciler.expand.variants import Desired
from reconciler.ids import ObjectName, PackageKey
from reconciler.inventory import Inventory, RepositoryView
from reconciler.resolve.ownership import current_draft, find_owner
from reconciler.resolve.resolution import Release

ORPHAN = "orphan"


def find_releases(desired: Desired, inventory: Inventory) -> Iterator[Release]:
    """Yield the owned packages that no desired variant targets and whose owner says `orphan`.

    Order-free. Whether there is evidence enough to release them is the plan's to decide; here
    is only what it would have to read.
    """
    targets = set(desired_downstreams(desired, inventory))
    policies = {v.key: v.spec.deletion_policy for v in desired.variants}
    policies = {**{k: r.deletion_policy for k, r in inventory.records.items()}, **policies}
    for view in sorted(inventory.repositories.values(), key=lambda v: v.key):
        for path in sorted(view.packages):
            key = PackageKey(view.url, path)
            if key in targets:
                continue
            release = _release(view, path, inventory, policies)
            if release is not None:
                targets.add(key)
                yield release


def desired_downstreams(desired: Desired, inventory: Inventory) -> Iterator[PackageKey]:
    """Yield where the desired variants go, as far as their repositories are registered."""
    for variant in desired.variants:
        downstream = variant.spec.downstream
        if downstream is None:
            continue
        view = inventory.repositories.get(ObjectName(variant.key.namespace, downstream.repo or ""))
        if view is not None:
            yield PackageKey(view.url, view.full_path(downstream.package or ""))


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
