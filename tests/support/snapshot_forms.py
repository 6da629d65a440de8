"""One snapshot file in the forms that a run reads: YAML, the list that kubectl prints, JSON lines."""

import json
from typing import Any

from reconciler.krm.yaml import load_documents


def as_json(data: bytes) -> bytes:
    """Return the objects of a YAML file as the indented list that `kubectl get -o json` prints."""
    return as_json_of(_objects(data))


def as_json_of(objects: list[Any]) -> bytes:
    """Return objects as the indented list that `kubectl get -o json` prints."""
    return json.dumps({"apiVersion": "v1", "items": objects, "kind": "List"}, indent=4).encode()


def as_json_lines(data: bytes) -> bytes:
    """Return the objects of a YAML file as JSON, one on each line."""
    return as_json_lines_of(_objects(data))


def as_json_lines_of(objects: list[Any]) -> bytes:
    """Return objects as JSON, one on each line."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in objects)


def _objects(data: bytes) -> list[Any]:
    return [document.value for document in load_documents(data) if document.value is not None]
