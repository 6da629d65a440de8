"""Downstream packages of desired variants, as far as their repositories are registered."""

from collections.abc import Iterable

from reconciler.expand.variants import PAUSED, DesiredVariant
from reconciler.ids import ObjectName, PackageKey
from reconciler.inventory import Inventory, RepositoryView
from reconciler.resolve.resolution import Downstreams

ADOPT_EXISTING = "adoptExisting"


def find_view(variant: DesiredVariant, inventory: Inventory) -> RepositoryView | None:
    """Return the registered repository that a variant's downstream names."""
    downstream = variant.spec.downstream
    name = downstream.repo if downstream else None
    return inventory.repositories.get(ObjectName(variant.key.namespace, name or ""))


def downstream_packages(
    variants: Iterable[DesiredVariant], inventory: Inventory, others: Downstreams | None = None
) -> Downstreams:
    """Return the packages that variants want in registered repositories, added to those of `others`."""
    downstreams = {package: list(variants) for package, variants in (others or {}).items()}
    for variant in variants:
        view, downstream = find_view(variant, inventory), variant.spec.downstream
        if view is not None and downstream is not None:
            key = PackageKey(view.url, view.full_path(downstream.package or ""))
            downstreams.setdefault(key, []).append(variant)
    return {package: tuple(sorted(vs, key=lambda v: v.key)) for package, vs in downstreams.items()}


def is_paused(view: RepositoryView, variant: DesiredVariant | None, inventory: Inventory) -> bool:
    """Whether an annotation or the configuration pauses the package of a repository (D17)."""
    annotations = view.manifest.metadata.annotations or {}
    stopped = annotations.get(PAUSED) == "true" or inventory.policy.suspend
    return stopped or (variant is not None and variant.paused)
