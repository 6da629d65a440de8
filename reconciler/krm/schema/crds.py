"""Shapes of custom resources, from the definitions that a package brings along."""

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.krm.schema.shapes import Shape

Served = tuple[str, str]
"""An apiVersion and a kind."""

_MAX_DEPTH = 64


def crd_shapes(definitions: Iterable[Any]) -> dict[Served, Shape]:
    """Return the shape of every version of every CustomResourceDefinition among `definitions`.

    Total: what is no definition, or an unreadable one, is passed over; a later one wins.
    """
    shapes: dict[Served, Shape] = {}
    for definition in definitions:
        if not isinstance(definition, dict) or definition.get("kind") != "CustomResourceDefinition":
            continue
        spec = _mapping(definition.get("spec"))
        group, kind = spec.get("group"), _mapping(spec.get("names")).get("kind")
        for name, schema in _versions(spec):
            shape = schema_shape(schema)
            if shape is not None:
                shapes[f"{group}/{name}", str(kind)] = shape
    return shapes


def schema_shape(schema: Any, depth: int = 0) -> Shape | None:
    """Return what an OpenAPI schema says about merging, None where it says nothing.

    Both spellings count: `x-kubernetes-list-type` with `x-kubernetes-list-map-keys`, and
    `x-kubernetes-patch-strategy: merge` with `x-kubernetes-patch-merge-key`.
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    below = {
        name: shape
        for name, part in _mapping(schema.get("properties")).items()
        if (shape := schema_shape(part, depth + 1)) is not None
    }
    values = schema_shape(schema.get("additionalProperties"), depth + 1)
    items = schema_shape(schema.get("items"), depth + 1)
    keys = _keys(schema)
    if not below and values is None and keys is None:
        return None
    return Shape(fields=below, values=values, items=items, keys=keys, defaults=_defaults(schema, keys or ()))


def _versions(spec: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    shared = _mapping(spec.get("validation")).get("openAPIV3Schema")
    versions = spec.get("versions")
    for version in versions if isinstance(versions, list) else [{"name": spec.get("version")}]:
        schema = _mapping(_mapping(version).get("schema")).get("openAPIV3Schema", shared)
        yield str(_mapping(version).get("name")), schema


def _keys(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return ()
    if kind == "map" and isinstance(names := schema.get("x-kubernetes-list-map-keys"), list):
        return tuple(map(str, names)) or None
    if "merge" not in str(schema.get("x-kubernetes-patch-strategy", "")).split(","):
        return None
    key = schema.get("x-kubernetes-patch-merge-key")
    return (str(key),) if key else ()


def _defaults(schema: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    properties = _mapping(_mapping(schema.get("items")).get("properties"))
    given = {key: _mapping(properties.get(key)).get("default") for key in keys}
    return {key: str(value) for key, value in given.items() if isinstance(value, (str, int))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
