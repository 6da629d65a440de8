"""Downstream packages that stalled PackageVariants name: a renamed one may be about to take its own over."""

from collections.abc import Container, Iterator, Mapping

from reconciler.expand.owners import variant_key
from reconciler.ids import ObjectKey, ObjectName, PackageKey
from reconciler.inventory import Inventory


def claimed_packages(stalled: Container[ObjectKey], inventory: Inventory) -> Mapping[PackageKey, ObjectName]:
    """Return the packages that stalled PackageVariants name as their downstream, each with the first of them.

    Total: a downstream whose repository is not registered is left out.
    """
    found: dict[PackageKey, ObjectName] = {}
    for key, (repo, package) in sorted(_downstreams(stalled, inventory)):
        view = inventory.repositories.get(ObjectName(key.namespace, repo))
        if view is not None and package:
            found.setdefault(PackageKey(view.url, view.full_path(package)), key)
    return found


def _downstreams(
    stalled: Container[ObjectKey], inventory: Inventory
) -> Iterator[tuple[ObjectName, tuple[str, str]]]:
    yield from inventory.claims.items()
    for variant in inventory.variants:
        downstream = variant.manifest.spec.downstream
        if downstream is not None and variant_key(variant.key) in stalled:
            yield variant.key, (downstream.repo or "", downstream.package or "")
