"""What an edit means for plain data: the truth that the edited text is checked against."""

import math
from collections.abc import Callable
from typing import Any

import orjson

from reconciler.krm.yaml.edits import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    SetValue,
)
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.limits import PACKAGE_LIMITS
from reconciler.krm.yaml.load import iterate_documents
from reconciler.krm.yaml.marks import Path
from reconciler.krm.yaml.raw import Raw


def edited(value: Any, edit: Edit) -> Any:
    """Return the data after an edit; what the edit does not touch is shared, not copied.

    Raises:
        YamlError: The edit names a place that there is not, or a value that YAML cannot hold.
    """
    match edit:
        case SetValue(path, new):
            return _change(value, path, lambda _: plain_value(new), path)
        case AddKey(path):
            return _change(value, path, lambda found: _with_key(found, edit), path)
        case InsertItem(path):
            return _change(value, path, lambda found: _with_item(found, edit), path)
        case DeleteKey(path) | DeleteItem(path):
            return _change(value, path[:-1], lambda found: _without(found, edit), path)
        case _:
            return value


def plain_value(value: Any) -> Any:
    """Return a value as it is after writing and reading: JSON types, integral floats as integers.

    Raises:
        YamlError: The value has no such form.
    """
    if isinstance(value, Raw):
        return _parse(value)
    if isinstance(value, dict):
        return {_key(key): plain_value(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(child) for child in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < _INT64:
        return int(value)
    return value


_INT64 = 2.0**63


def canonical(value: Any) -> bytes:
    """Return bytes that are equal exactly for equal data: types count, the order of keys does not.

    Raises:
        YamlError: The value is no JSON.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise YamlError(f"The value has no exact form in YAML: {error}") from error


def _parse(raw: Raw) -> Any:
    documents = tuple(iterate_documents(raw.text + "\n", PACKAGE_LIMITS))
    if len(documents) > 1:
        raise YamlError("A raw value has more than one document")
    return documents[0].value if documents else None


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise YamlError(f"A key must be a string, not {type(key).__name__}")
    return key


def _absent(path: Path) -> YamlError:
    return YamlError(f"There is no field {'.'.join(map(str, path)) or 'at the root'}")


def _change(value: Any, path: Path, change: Callable[[Any], Any], whole: Path) -> Any:
    """Replace the value at `path` by what `change` makes of it; absent mappings on the way are made."""
    if not path:
        return change(value)
    step, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return [*value[:step], _change(value[step], rest, change, whole), *value[step + 1 :]]
    if isinstance(step, str) and (value is None or isinstance(value, dict)):
        found = value or {}
        return {**found, step: _change(found.get(step), rest, change, whole)}
    raise _absent(whole)


def _with_key(found: Any, edit: AddKey) -> dict[str, Any]:
    if found is not None and not isinstance(found, dict):
        raise _absent((*edit.path, edit.key))
    if found and edit.key in found:
        raise YamlError(f"Key {edit.key!r} is already set")
    new = plain_value(edit.value)
    if isinstance(edit.value, Raw):
        if not isinstance(new, dict) or list(new) != [edit.key]:
            raise YamlError(f"The raw entry does not set exactly the key {edit.key!r}")
        new = new[edit.key]
    return {**(found or {}), edit.key: new}


def _with_item(found: Any, edit: InsertItem) -> list[Any]:
    items = [] if found is None else found
    if not isinstance(items, list) or not 0 <= edit.index <= len(items):
        raise _absent((*edit.path, edit.index))
    new = plain_value(edit.value)
    if isinstance(edit.value, Raw):
        if not isinstance(new, list) or len(new) != 1:
            raise YamlError("The raw item is not exactly one item")
        new = new[0]
    return [*items[: edit.index], new, *items[edit.index :]]


def _without(found: Any, edit: DeleteKey | DeleteItem) -> Any:
    step = edit.path[-1] if edit.path else None
    if isinstance(edit, DeleteKey) and isinstance(found, dict) and step in found:
        return {key: child for key, child in found.items() if key != step}
    if isinstance(edit, DeleteItem) and isinstance(found, list) and step in range(len(found)):
        return [child for index, child in enumerate(found) if index != step]
    raise _absent(edit.path)
