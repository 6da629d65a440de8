"""Adapters: the manifests of four ecosystems, as they are, into one model."""

from reconciler.dependencies.dialects import carvel, crossplane
from reconciler.dependencies.dialects.carvel import read_carvel, read_package
from reconciler.dependencies.dialects.crossplane import read_crossplane, read_lock, read_meta
from reconciler.dependencies.dialects.kpt import package_id, read_kpt, version_of
from reconciler.dependencies.dialects.porter import read_bundle, read_installation
from reconciler.dependencies.dialects.reading import Document, Reading
from reconciler.ids import group_of
from reconciler.inventory import Source

GROUPS = carvel.GROUPS | crossplane.GROUPS
"""The API groups of the dialects; Porter's manifests have none."""

__all__ = [
    "GROUPS",
    "Reading",
    "package_id",
    "read_bundle",
    "read_installation",
    "read_kpt",
    "read_lock",
    "read_manifest",
    "read_meta",
    "read_package",
    "version_of",
]


def read_manifest(document: Document, source: Source) -> Reading | None:
    """Read a manifest of the dependency dialects; None if it belongs to none of them. Total.

    "Package" is a word of many APIs: the group of apiVersion decides, and for Porter's
    Installation, which has none, its schemaType.
    """
    if document.get("schemaType") == "Installation":
        return read_installation(document, source)
    group = group_of(str(document.get("apiVersion") or ""))
    if group in carvel.GROUPS:
        return read_carvel(document, source)
    if group in crossplane.GROUPS:
        return read_crossplane(document, source)
    return None
