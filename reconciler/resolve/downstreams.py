"""Where desired variants go: the package that each one wants, as far as its repository is registered."""

from collections.abc import Iterator, Mapping

from reconciler.expand.variants import PAUSED, Desired, DesiredVariant
from reconciler.ids import ObjectName, PackageKey
from reconciler.inventory import Inventory, RepositoryView

ADOPT_EXISTING = "adoptExisting"

Wanted = Mapping[PackageKey, tuple[DesiredVariant, ...]]
"""The variants that want each package, sorted; where there are several, they contest it."""


def find_view(variant: DesiredVariant, inventory: Inventory) -> RepositoryView | None:
    """Return the registered repository that a variant's downstream names."""
    downstream = variant.spec.downstream
    name = downstream.repo if downstream else None
    return inventory.repositories.get(ObjectName(variant.key.namespace, name or ""))


def wanted_packages(desired: Desired, inventory: Inventory) -> Wanted:
    """Return who wants which package, as far as repositories are registered. Order-free."""
    found: dict[PackageKey, list[DesiredVariant]] = {}
    for variant, key in _downstreams(desired, inventory):
        found.setdefault(key, []).append(variant)
    return {key: tuple(variants) for key, variants in found.items()}


def is_paused(view: RepositoryView, variant: DesiredVariant | None, inventory: Inventory) -> bool:
    """Whether somebody asked to leave the package of a repository as it is (D17)."""
    annotations = view.manifest.metadata.annotations or {}
    stopped = annotations.get(PAUSED) == "true" or inventory.policy.suspend
    return stopped or (variant is not None and variant.paused)


def _downstreams(desired: Desired, inventory: Inventory) -> Iterator[tuple[DesiredVariant, PackageKey]]:
    for variant in sorted(desired.variants, key=lambda v: v.key):
        view, downstream = find_view(variant, inventory), variant.spec.downstream
        if view is not None and downstream is not None:
            yield variant, PackageKey(view.url, view.full_path(downstream.package or ""))
