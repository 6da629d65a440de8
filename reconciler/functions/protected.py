"""Kptfile fields that no function may change: owner, location and upstream of the package."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from reconciler.api.kptfile import INJECTION_PREFIX, KPTFILE, LOCATION, OWNER
from reconciler.functions.differences import copy_value
from reconciler.functions.resource import Resource

_ABSENT: Final = object()
_FILE: Final = "the place"
_DOCUMENTS: Final = "the number of documents"


def protected_fields(resources: Iterable[Resource]) -> dict[str, Any]:
    """Return the protected fields of the root Kptfile by their paths; empty where there is no Kptfile.

    A second document in the Kptfile's file counts as a field: it would be read in the first one's place.
    """
    kptfiles = [each for each in resources if each.path == KPTFILE]
    value = kptfiles[0].value if kptfiles else {}
    fields: dict[str, Any] = {"apiVersion": value.get("apiVersion"), "kind": value.get("kind")}
    for name in (OWNER, LOCATION):
        fields[f'metadata.annotations."{name}"'] = _at(value, "metadata", "annotations", name)
    for name in ("upstream", "upstreamLock"):
        fields[name] = value.get(name, _ABSENT)
    fields.update(_entries(value, ("status", "conditions"), "type"))
    fields.update(_entries(value, ("info", "readinessGates"), "conditionType"))
    if len(kptfiles) > 1:
        fields[_DOCUMENTS] = len(kptfiles)
    return {path: copy_value(found) for path, found in fields.items() if found is not _ABSENT}


def changed_fields(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    """Return the paths of the protected fields that differ, sorted."""
    if before.get("kind") and after.get("kind") is None:
        return (_FILE,)
    paths = sorted(before.keys() | after.keys())
    return tuple(path for path in paths if before.get(path, _ABSENT) != after.get(path, _ABSENT))


def _entries(value: Any, path: tuple[str, ...], key: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list that config injection wrote."""
    found = _at(value, *path)
    for entry in found if isinstance(found, list) else ():
        name = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(name, str) and name.startswith(INJECTION_PREFIX):
            yield f"{'.'.join(path)}[{key}={name}]", entry


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value
