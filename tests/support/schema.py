"""Check what commands print against the schemas of docs/schemas."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

_SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schemas"


def output_violations(kind: str, text: str) -> list[str]:
    """Return where the JSON output of a command is not as the schema of its kind has it."""
    schema = json.loads((_SCHEMAS / f"{kind.lower()}.schema.json").read_text())
    return violations(schema, json.loads(text))


def violations(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return where a value is not as the schema has it."""
    errors = _validator(json.dumps(schema)).iter_errors(value)
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in errors]


@cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator(json.loads(schema))
