"""The schema of what `lock --output json` prints, made from the models of the lock; writes it to docs/."""

import json
from pathlib import Path
from typing import Any

import msgspec

from reconciler.base.values import Record
from reconciler.dependencies.lock.format import LockOp
from reconciler.dependencies.model.instances import LockedRevision, OwnershipEntry, Resolved
from reconciler.plan.changes import PinChange

FILE = Path(__file__).resolve().parents[2] / "docs/schemas/lock.schema.json"
_PLAN = FILE.with_name("plan.schema.json")
_TEXT = {"type": "string"}
_REJECTION = {"version": _TEXT, "reasons": {"type": "array", "items": _TEXT}}
_MODELS: dict[str, type[Record]] = {"package": Resolved, "revision": LockedRevision, "owned": OwnershipEntry}


def lock_schema() -> dict[str, Any]:
    """Return the schema."""
    definitions = {name: _of_model(model) for name, model in _MODELS.items()}
    texts = dict.fromkeys(("instance", "before", "after"), _TEXT)
    change: dict[str, Any] = {"op": {"type": "string", "enum": list(LockOp)}, **texts}
    definitions |= {
        "change": _object(change),
        "problem": json.loads(_PLAN.read_text())["$defs"]["problem"],
        "explanation": _object(
            {
                "code": _TEXT,
                "sentences": _list(_TEXT, "The facts; if `minimal`, all of them are needed."),
                "rejected": _list(
                    _object({"package": _TEXT, "versions": _list(_object(_REJECTION))}),
                    "Versions that contradict a fact, and which.",
                ),
                "places": _list(_TEXT),
                "hint": _TEXT,
                "minimal": {"type": "boolean"},
                "givesWay": _TEXT | {"description": "Who stays as it was so that the others proceed."},
            }
        ),
        "cluster": _object(_CLUSTER),
        "pin": _object(dict.fromkeys(PinChange._fields, _TEXT)),
    }
    top = {
        "apiVersion": {"type": "string", "enum": ["reconciler.dev/v1alpha1"]},
        "kind": {"type": "string", "enum": ["LockList"]},
        "items": _list({"$ref": "#/$defs/cluster"}, "Every cluster that has or gets a lock, sorted."),
        "upstreams": _list({"$ref": "#/$defs/pin"}, "Pins of floating upstreams that differ from the lock."),
        "written": _list(_TEXT, "Files of the working copy that were written."),
        "removed": _list(_TEXT, "Files of the working copy that were removed."),
        "problems": _list({"$ref": "#/$defs/problem"}, "What is wrong, and what has no answer."),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://reconciler.dev/schemas/v1alpha1/lock.json",
        "title": "What `lock --output json` prints",
        "description": "What was decided for every cluster. Canonical: sorted keys, sorted lists, no times.",
        **_object(top),
        "$defs": definitions,
    }


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    required = sorted(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **more,
    }


def _list(items: dict[str, Any], description: str = "") -> dict[str, Any]:
    said = {"description": description} if description else {}
    return {"type": "array", "items": items, **said}


def _map(name: str, description: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"$ref": f"#/$defs/{name}"}, "description": description}


_CLUSTER = {
    "cluster": _TEXT,
    "generation": {"type": "integer", "description": "Of the lock as it should be; 0 if there is none."},
    "resolution": _TEXT | {"description": "The name of what was decided: its SHA-256; empty without a lock."},
    "changed": {"type": "boolean", "description": "Whether `lock` writes a file of this cluster."},
    "changes": _list({"$ref": "#/$defs/change"}, "The pins that differ."),
    "packages": _list({"$ref": "#/$defs/package"}, "As the resolution has them."),
    "revisions": _list({"$ref": "#/$defs/revision"}),
    "customResourceDefinitions": _map("owned", "By kind and group."),
    "compositions": _map("owned", "By name."),
    "unused": _list(_TEXT, "Packages that are kept and no longer needed."),
    "explanations": _list({"$ref": "#/$defs/explanation"}, "Why parts of the cluster have no answer."),
}


def _of_model(model: type[Record]) -> dict[str, Any]:
    schema = msgspec.json.schema(model)
    return _plain(schema, schema.get("$defs", {}))


def _plain(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of msgspec's without references and unions: what may be null has two types."""
    if "$ref" in schema:
        return _plain(known[schema["$ref"].removeprefix("#/$defs/")], known)
    if "anyOf" in schema:
        first, *_ = (_plain(one, known) for one in schema["anyOf"] if one != {"type": "null"})
        return {**first, "type": [first["type"], "null"]}
    if schema.get("type") == "array":
        return _list(_plain(schema["items"], known))
    if schema.get("type") == "object":
        return _object({name: _plain(one, known) for name, one in schema["properties"].items()})
    return {"type": "string"} | {name: schema[name] for name in ("type", "enum") if name in schema}


def text() -> str:
    """Return the file's content."""
    return json.dumps(lock_schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
