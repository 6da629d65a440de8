"""Which lists of which kinds are merged by which keys: built in, from CRDs, declared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.krm.schema.builtin import kind_shape, type_shape
from reconciler.krm.schema.crds import Served, crd_shapes, schema_shape
from reconciler.krm.schema.shapes import Shape

__all__ = [
    "Schemas",
    "Served",
    "Shape",
    "crd_shapes",
    "declared_shape",
    "parse_merge_keys",
    "with_merge_keys",
]

_DEFINITIONS = "#/definitions/"


@dataclass(frozen=True, slots=True)
class Schemas:
    """The shapes that hold in one package.

    `since` False is Kubernetes 1.21 alone, as kpt has it; else every kind at least has metadata.
    """

    crds: Mapping[Served, Shape] = field(default_factory=dict)
    since: bool = True

    def shape(self, api_version: str, kind: str) -> Shape | None:
        """Return the shape of a kind, None where nothing is known of it."""
        found = kind_shape(api_version, kind, since=self.since)
        if found is not None or not self.since:
            return found
        metadata = type_shape("Object")
        custom = self.crds.get((api_version, kind))
        if custom is None or metadata is None:
            return metadata
        return replace(custom, fields={**metadata.fields, **custom.fields})


def declared_shape(schema: Mapping[str, Any]) -> Shape | None:
    """Return the shape that a JSON schema in a comment declares; a `$ref` names a type of Kubernetes.

    Source: kyaml fieldmeta, FieldMeta.Read.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return type_shape(reference.removeprefix(_DEFINITIONS).rpartition(".")[2])
    shape = schema_shape(schema) or Shape()
    items = schema.get("items")
    below = declared_shape(items) if isinstance(items, dict) else None
    return replace(shape, items=below) if below is not None else shape


def parse_merge_keys(text: str) -> Iterable[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield (path, keys) of each `spec.fruits=name;spec.ports=port,protocol` clause; others are left out."""
    for clause in text.split(";"):
        path, equals, keys = clause.strip().partition("=")
        if equals and path:
            yield tuple(path.strip().split(".")), tuple(key.strip() for key in keys.split(",") if key.strip())


def with_merge_keys(shape: Shape | None, path: tuple[str, ...], keys: tuple[str, ...]) -> Shape:
    """Return `shape` with the list at `path` merged by `keys`."""
    shape = shape or Shape()
    if not path:
        return replace(shape, keys=keys)
    below = with_merge_keys(shape.below(path[0]), path[1:], keys)
    return replace(shape, fields={**shape.fields, path[0]: below})
