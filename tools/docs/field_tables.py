"""Tables of the fields of every kind that people write, from JSON schemas and the examples of the page."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from reconciler.cli import schema
from reconciler.cli.schema import NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/fields.md"
_UNUSED = ("Written by a cluster", "Not used")
"""Beginnings of the descriptions of fields that need no example."""
_LONGEST_EXAMPLE = 60
HEADS = ("field", "type", "default", "what")
"""The columns that the page shows: a row ends with its example, which is in the block above."""

Schema = Mapping[str, Any]


manifest_schema = cache(schema.manifest_schema)


def examples(text: str) -> list[dict[str, Any]]:
    """Return the examples in a page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [value for block in blocks for value in yaml.safe_load_all(block)]


@cache
def types_of(kind: str) -> list[str]:
    """Return the types of objects that a kind consists of, in the order in which it names them."""
    definitions = manifest_schema(kind).get("$defs", {})
    found: list[str] = []

    def visit(schema: Schema) -> None:
        for field in schema.get("properties", {}).values():
            for name in _references(field):
                if name not in found and "properties" in definitions[name]:
                    found.append(name)
                    visit(definitions[name])

    visit(manifest_schema(kind))
    return found


@cache
def shared_types() -> list[str]:
    """Return the types that more than one kind has."""
    count = Counter(name for kind in NAMES for name in types_of(kind))
    return [name for name in dict.fromkeys(n for kind in NAMES for n in types_of(kind)) if count[name] > 1]


def sections(kind: str) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield a kind and its types that no other kind has, with the rows of their fields."""
    whole = manifest_schema(kind)
    yield kind, _rows(kind, whole)
    shared = shared_types()
    for name in types_of(kind):
        if name not in shared:
            yield name, _rows(name, whole["$defs"][name])


def shared_sections() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield the types of several kinds with the rows of their fields."""
    for name in shared_types():
        kind = next(kind for kind in NAMES if name in types_of(kind))
        yield name, _rows(name, manifest_schema(kind)["$defs"][name])


def lacking() -> list[str]:
    """Return the fields without a description, and those without default and example."""
    every = [section for kind in NAMES for section in sections(kind)] + list(shared_sections())
    return [
        f"{name}.{field}"
        for name, fields in every
        for field, type_, default, what, example in fields
        if not what or not (default or example or "](#" in type_ or what.startswith(_UNUSED))
    ]


def _rows(owner: str, schema: Schema) -> list[tuple[str, ...]]:
    required = schema.get("required", ())
    rows: list[tuple[str, ...]] = []
    for name, field in schema["properties"].items():
        plain = not _references(field) or "enum" in _definition(field)
        default = "required" if name in required else _value(field.get("default")) if plain else ""
        what = " ".join(field.get("description", "").split()) or _described(field)
        value = _examples().get((owner, name), _examples().get((field.get("description", ""), name)))
        rows.append((f"`{name}`", _type(field), default, what, _value(value) if plain else ""))
    return rows


def default_of(kind: str, path: Sequence[str]) -> str:
    """Return the default of a setting in the `spec` of a kind."""
    field = manifest_schema(kind)["properties"]["spec"]
    for name in path:
        field = _definition(field)["properties"][name]
    return _value(field.get("default"))


def _described(field: Schema) -> str:
    """Return the description of the type of a field, for a group of settings."""
    return str(_definition(field).get("description", "")) if _references(field) else ""


@cache
def _definitions() -> dict[str, Schema]:
    return {name: each for kind in NAMES for name, each in manifest_schema(kind).get("$defs", {}).items()}


def _definition(field: Schema) -> Schema:
    return next((_definitions()[name] for name in _references(field)), {})


def _references(field: Schema) -> list[str]:
    return re.findall(r"#/\$defs/(\w+)", json.dumps(field))


def _type(field: Schema) -> str:
    if "enum" in field or "const" in field:
        return " or ".join(f"`{word}`" if word else "empty" for word in field.get("enum") or [field["const"]])
    if "$ref" in field:
        name = _references(field)[0]
        return _type(_definitions()[name]) if "enum" in _definitions()[name] else f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return next(_type(each) for each in field["anyOf"] if each != {"type": "null"})
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    type_ = field.get("type", "any")
    return " or ".join(type_) if isinstance(type_, list) else str(type_)


def _value(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, Mapping) and not value:
        return ""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    text = text.removesuffix("\n").removesuffix("\n...")
    return f"`{text}`" if len(text) <= _LONGEST_EXAMPLE else f"`{text[: _LONGEST_EXAMPLE - 1]}…`"


@cache
def _examples() -> dict[tuple[str, str], Any]:
    """Return the first value of every field in the examples, by type and field, and by description and field.

    The second is for types that extend another one.
    """
    found: dict[tuple[str, str], Any] = {}

    def visit(owner: str, schema: Schema, value: Any) -> None:
        for item in value if isinstance(value, list) else [value]:
            for name, field in schema["properties"].items():
                if isinstance(item, Mapping) and name in item:
                    found.setdefault((owner, name), item[name])
                    found.setdefault((field.get("description", ""), name), item[name])
                    for type_ in _references(field):
                        if "properties" in _definitions()[type_]:
                            visit(type_, _definitions()[type_], item[name])

    for example in examples(PAGE.read_text(encoding="utf-8")):
        visit(example["kind"], manifest_schema(example["kind"]), example)
    return found
