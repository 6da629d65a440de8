"""Check a JSON value against the part of JSON Schema that our schemas use; anything else is an error."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schemas"

_TYPES = {
    "object": Mapping,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_KNOWN = {
    "$schema", "$id", "$defs", "$ref", "title", "description", "type", "properties", "required",
    "additionalProperties", "items", "enum", "const", "pattern", "anyOf",
}  # fmt: skip


def output_violations(kind: str, text: str) -> list[str]:
    """Return where the JSON output of a command is not what the schema of its kind says."""
    schema = json.loads((_SCHEMAS / f"{kind.lower()}.schema.json").read_text())
    return violations(schema, json.loads(text))


def violations(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return where `value` is not what `schema` says."""
    return list(_check(schema, value, "$", schema))


def _check(schema: Mapping[str, Any], value: Any, path: str, root: Mapping[str, Any]) -> Iterator[str]:
    assert schema.keys() <= _KNOWN, f"{path}: this checker does not know {schema.keys() - _KNOWN}"
    if "$ref" in schema:
        yield from _check(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, path, root)
        return
    if "anyOf" in schema:
        found = [list(_check(option, value, path, root)) for option in schema["anyOf"]]
        yield from min(found, key=len)
        return
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if kinds and not any(isinstance(value, _TYPES[k]) and not _is_odd(k, value) for k in kinds):
        yield f"{path}: {value!r} is not {' or '.join(kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, Mapping):
        yield from _check_object(schema, value, path, root)
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield from _check(schema.get("items", {}), item, f"{path}[{index}]", root)


def _check_object(
    schema: Mapping[str, Any], value: Mapping[str, Any], path: str, root: Mapping[str, Any]
) -> Iterator[str]:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value)
    for name, item in value.items():
        if name in properties:
            yield from _check(properties[name], item, f"{path}.{name}", root)
        elif more is False:
            yield f"{path}: {name} is unknown"
        elif isinstance(more, Mapping):
            yield from _check(more, item, f"{path}.{name}", root)


def _is_odd(kind: str, value: Any) -> bool:
    return kind == "integer" and isinstance(value, bool)
