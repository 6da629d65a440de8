"""Merge keys of lists by kind: of Kubernetes' kinds, of CRDs, and declared in comments and annotations.

`kubernetes.json` is generated from Kubernetes' published OpenAPI (`make docs`); `scopes.json` is the table of
the SDK of kpt functions, which does not change.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.lazy import regex

Served = tuple[str, str]
"""An apiVersion and a kind."""

CHART = "$chart"
"""Merge key of the charts of a RenderHelmChart: the name in `chartArgs`."""
_CHARTS = ("fn.kpt.dev/", "RenderHelmChart")
_DEFINITIONS = "#/definitions/"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_MAX_DEPTH = 64
_STABLE = regex(r"(?:[^/]+/)?v\d+/")
_REMOVED = (
    "apiextensions.k8s.io/v1beta1",
    "apiregistration.k8s.io/v1beta1",
    "apps/v1beta",
    "autoscaling/v2beta1",
    "batch/v1alpha1",
    "batch/v1beta1",
    "batch/v2alpha1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "networking.k8s.io/v1beta1/Ingress",
    "node.k8s.io/v1beta1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1beta1",
)
"""Beginnings of APIs that Kubernetes removed up to 1.25, and that did not come back."""


class Shape(Struct, frozen=True):
    """The merge keys in and below a value."""

    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    values: "Shape | None" = None
    """Shape of every field that `fields` does not name."""
    items: "Shape | None" = None
    keys: tuple[str, ...] | None = None
    """Fields that identify an element; () for a set of scalars, None for a value merged as a whole."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Values of keys that may be absent."""
    unions: tuple[frozenset[str], ...] = ()
    """Of the fields of each of these, one may be set at most."""

    def below(self, name: str) -> "Shape | None":
        """Return the shape of one field, None if it is unknown."""
        return self.fields.get(name, self.values)


class Schemas(Struct, frozen=True):
    """The shapes of kinds in one package: those of Kubernetes, and of the CRDs in the package."""

    crds: Mapping[Served, Shape] = field(default_factory=dict)

    def shape(self, api_version: str, kind: str) -> Shape:
        """Return the shape of a kind; an unknown kind has the metadata of every object."""
        name = _kubernetes()["kinds"].get(f"{api_version}/{kind}")
        if name is not None:
            return _type_shape(name) or Shape()
        metadata = {"metadata": _type_shape(_OBJECT_META) or Shape()}
        custom = self.crds.get((api_version, kind), Shape())
        if api_version.startswith(_CHARTS[0]) and kind == _CHARTS[1]:
            custom = Shape(fields={"helmCharts": Shape(keys=(CHART,), items=Shape())})
        return replace(custom, fields={**metadata, **custom.fields})


def is_namespaced_kind(api_version: str, kind: str) -> bool | None:
    """Tell whether a kind of Kubernetes 1.21 is namespaced, None for any other kind.

    Source: kpt-functions-sdk go/fn, precomputedIsNamespaceScoped.
    """
    return _scopes().get(f"{api_version}/{kind}")


def crd_shapes(definitions: Iterable[Any]) -> dict[Served, Shape]:
    """Return the shape of every version of every CustomResourceDefinition among `definitions`.

    Total: other objects and unreadable definitions are skipped; a later definition wins.
    """
    shapes: dict[Served, Shape] = {}
    for definition in definitions:
        if not isinstance(definition, dict) or definition.get("kind") != "CustomResourceDefinition":
            continue
        spec = _mapping(definition.get("spec"))
        group, kind = spec.get("group"), _mapping(spec.get("names")).get("kind")
        for name, schema in _versions(spec):
            shape = _schema_shape(schema)
            if shape is not None:
                shapes[f"{group}/{name}", str(kind)] = shape
    return shapes


def declared_shape(schema: Mapping[str, Any]) -> Shape | None:
    """Return the shape that a JSON schema in a comment declares; a `$ref` names a type of Kubernetes.

    Source: kyaml fieldmeta, FieldMeta.Read.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _type_shape(reference.removeprefix(_DEFINITIONS))
    shape = _schema_shape(schema) or Shape()
    items = schema.get("items")
    below = declared_shape(items) if isinstance(items, dict) else None
    return replace(shape, items=below) if below is not None else shape


def parse_merge_keys(text: str) -> Iterable[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield (path, keys) of each clause of `spec.fruits=name;spec.ports=port,protocol`; skip invalid ones."""
    for clause in text.split(";"):
        path, equals, keys = clause.strip().partition("=")
        if equals and path:
            yield tuple(path.strip().split(".")), tuple(key.strip() for key in keys.split(",") if key.strip())


def with_merge_keys(shape: Shape | None, path: tuple[str, ...], keys: tuple[str, ...]) -> Shape:
    """Return `shape` with `keys` for the list at `path`."""
    shape = shape or Shape()
    if not path:
        return replace(shape, keys=keys)
    below = with_merge_keys(shape.below(path[0]), path[1:], keys)
    return replace(shape, fields={**shape.fields, path[0]: below})


def _load(name: str) -> Mapping[str, Any]:
    data: dict[str, Any] = orjson.loads(files(__name__).joinpath(name).read_bytes())
    return data


@cache
def served_everywhere(api: str) -> bool | None:
    """Tell whether Kubernetes from 1.25 on serves `policy/v1` or `policy/v1/PodDisruptionBudget`.

    Returns:
        True if each version does, False if none does, None if that depends on the cluster. Total.
    """
    if api.startswith(_REMOVED):
        return False
    # What was stable in 1.21 stays: no stable API was ever removed.
    stable = [*filter(_STABLE.match, _scopes()), "autoscaling/v2/HorizontalPodAutoscaler"]
    return True if any(prefix == api or prefix.startswith(f"{api}/") for prefix in stable) else None


@cache
def _scopes() -> Mapping[str, bool]:
    scopes = _load("scopes.json")
    return dict.fromkeys(scopes["cluster"], False) | dict.fromkeys(scopes["namespaced"], True)


@cache
def _kubernetes() -> Mapping[str, Any]:
    return _load("kubernetes.json")


@cache
def _type_shape(name: str) -> Shape | None:
    entry = _kubernetes()["types"].get(name)
    if entry is None:
        return None
    fields = {part: _type_shape(target) for part, target in entry.get("fields", {}).items()}
    for part, keyed in entry.get("lists", {}).items():
        items = _type_shape(keyed["items"]) if "items" in keyed else None
        fields[part] = Shape(keys=tuple(keyed["keys"]), items=items, defaults=keyed.get("defaults", {}))
    unions = (frozenset(entry["union"]),) if "union" in entry else ()
    return Shape(fields={part: shape for part, shape in fields.items() if shape}, unions=unions)


def _schema_shape(schema: Any, depth: int = 0) -> Shape | None:
    """Return the shape that an OpenAPI schema declares, None if it declares no merge keys.

    Two spellings are valid: `x-kubernetes-list-type` with `x-kubernetes-list-map-keys`, and
    `x-kubernetes-patch-strategy: merge` with `x-kubernetes-patch-merge-key`.
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    below = {
        name: shape
        for name, part in _mapping(schema.get("properties")).items()
        if (shape := _schema_shape(part, depth + 1)) is not None
    }
    values = _schema_shape(schema.get("additionalProperties"), depth + 1)
    items = _schema_shape(schema.get("items"), depth + 1)
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
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return ()
    if list_type == "map" and isinstance(names := schema.get("x-kubernetes-list-map-keys"), list):
        return tuple(map(str, names)) or None
    if "merge" not in str(schema.get("x-kubernetes-patch-strategy", "")).split(","):
        return None
    key = schema.get("x-kubernetes-patch-merge-key")
    return (str(key),) if key else ()


def _defaults(schema: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    properties = _mapping(_mapping(schema.get("items")).get("properties"))
    defaults = {key: _mapping(properties.get(key)).get("default") for key in keys}
    return {key: str(value) for key, value in defaults.items() if isinstance(value, (str, int))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
