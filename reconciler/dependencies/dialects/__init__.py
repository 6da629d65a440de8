"""Read the manifests of four ecosystems into one model."""

from collections.abc import Iterator, Mapping

from reconciler.api.annotations import DEPENDENCY, INSTALLATION, check_keys, check_mapping
from reconciler.api.validation import FieldError
from reconciler.dependencies.dialects import carvel, crossplane
from reconciler.dependencies.dialects.carvel import read_carvel
from reconciler.dependencies.dialects.crossplane import read_crossplane
from reconciler.dependencies.dialects.porter import read_installation
from reconciler.dependencies.dialects.reading import (
    Diagnostics,
    Document,
    ParsedManifest,
    manifest_label,
    parsed_or_broken,
)
from reconciler.inventory.inventory import Source
from reconciler.krm.values import mapping_at
from reconciler.names.ids import group_of

PORTER_GROUP = "getporter.org"
"""The API group of Porter's operator; its objects have an installation as their spec."""

GROUPS = carvel.GROUPS | crossplane.GROUPS
"""The API groups of the dialects; Porter's manifests have none."""


def read_manifest(document: Document, source: Source) -> ParsedManifest | None:
    """Read a manifest of the dependency dialects; None if it belongs to none of them. Total.

    "Package" is a word of many APIs: the group of apiVersion decides, and for Porter's
    Installation, which has none, its schemaType.
    """
    return parsed_or_broken(source, lambda: _read(document, source))


def _read(document: Document, source: Source) -> ParsedManifest | None:
    if faults := () if source.observed else tuple(_key_faults(document)):
        notes = Diagnostics(source, manifest_label(document))
        for fault in faults:
            notes.refuse(fault.path, fault.message, reason=fault.reason, hint=fault.hint)
        return notes.reading()
    group = group_of(str(document.get("apiVersion") or ""))
    in_cluster = source.observed and (group, document.get("kind")) == (PORTER_GROUP, INSTALLATION)
    if in_cluster or document.get("schemaType") == INSTALLATION:
        installation = document.get("spec") if in_cluster else document
        return read_installation(installation, source) if isinstance(installation, Mapping) else None
    if group in carvel.GROUPS:
        return read_carvel(document, source)
    if group in crossplane.GROUPS:
        return read_crossplane(document, source)
    return None


def _key_faults(document: Document) -> Iterator[FieldError]:
    """Yield the faults of keys under our prefix, in metadata or in Porter's `custom`."""
    if document.get("schemaType") == INSTALLATION:
        yield from check_mapping(INSTALLATION, ("custom",), mapping_at(document, "custom"))
    elif group_of(str(document.get("apiVersion") or "")) in GROUPS:
        yield from check_keys(DEPENDENCY, document)
