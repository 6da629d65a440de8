"""Edits of a document, and their effect on its data, against which the edited text is checked.

Edits are applied in order, each to the result of the previous one. A path is a sequence of typed
keys and indexes, as in `Document.mark`.
"""

import math
from collections.abc import Callable
from typing import Any

import orjson
from msgspec import Struct

from reconciler.krm.yaml.emit import Raw
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlError
from reconciler.krm.yaml.load import Path, iterate_documents

_INT64 = 2.0**63


class SetValue(Struct, frozen=True):
    """Set the value at `path`, keeping its quotes, anchor and comments; add it, with its parents, if absent.

    A string that replaces a quoted or block scalar takes that style where possible.
    """

    path: Path
    value: Any


class AddKey(Struct, frozen=True):
    """Add `key` to the mapping at `path` (an absent or null value counts as an empty mapping).

    It goes before the key `before`, or after the key `after`, or last. With a `Raw` value, `key`
    must be the key of the raw text.
    """

    path: Path
    key: str
    value: Any
    before: str | None = None
    after: str | None = None


class DeleteKey(Struct, frozen=True):
    """Delete the key at `path` with its own comments; a mapping that loses its only key becomes `{}`."""

    path: Path


class InsertItem(Struct, frozen=True):
    """Insert an item into the sequence at `path` at `index`; the length of the sequence appends.

    An absent or null value counts as an empty sequence.
    """

    path: Path
    index: int
    value: Any


class DeleteItem(Struct, frozen=True):
    """Delete the item at `path` with its own comments; a sequence that loses its only item becomes `[]`."""

    path: Path


class SetLineComment(Struct, frozen=True):
    """Set the comment at the end of a field's line (of the key's line, for a block collection).

    `text` is one line with or without its `#`; None removes the comment.
    """

    path: Path
    text: str | None


class SetHeadComment(Struct, frozen=True):
    """Set the comment lines directly above a key or item, with or without `#`; None removes them."""

    path: Path
    text: str | None


Edit = SetValue | AddKey | DeleteKey | InsertItem | DeleteItem | SetLineComment | SetHeadComment


class EditResult(Struct, frozen=True):
    """The text of an edited document, and how often (0 or 1) ruamel.yaml had to write it."""

    text: str
    fallbacks: int = 0


def edited(value: Any, edit: Edit) -> Any:
    """Return the data after an edit; untouched parts are shared, not copied.

    Raises:
        YamlError: The edit names an absent field, or a value that YAML cannot represent.
    """
    match edit:
        case SetValue(path, new):
            return _change(value, path, lambda _: plain_value(new), path)
        case AddKey(path):
            return _change(value, path, lambda mapping: _with_key(mapping, edit), path)
        case InsertItem(path):
            return _change(value, path, lambda items: _with_item(items, edit), path)
        case DeleteKey(path) | DeleteItem(path):
            return _change(value, path[:-1], lambda parent: _without(parent, edit), path)
        case _:
            return value


def plain_value(value: Any) -> Any:
    """Return a value as it reads back after writing: JSON types, integral floats as integers.

    Raises:
        YamlError: A key is no string, or raw text is not one value.
    """
    if isinstance(value, Raw):
        documents = tuple(iterate_documents(value.text + "\n", PACKAGE_LIMITS))
        if len(documents) > 1:
            raise YamlError("A raw value has more than one document")
        return documents[0].value if documents else None
    if isinstance(value, dict):
        return {_key(key): plain_value(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(child) for child in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < _INT64:
        return int(value)
    return value


def canonical(value: Any) -> bytes:
    """Return canonical JSON: equal bytes for equal data, whatever the order of its keys.

    Raises:
        YamlError: The value is no JSON.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise YamlError(f"The value has no exact form in YAML: {error}") from error


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise YamlError(f"A key must be a string, not {type(key).__name__}")
    return key


def _absent(path: Path) -> YamlError:
    return YamlError(f"There is no field {'.'.join(map(str, path)) or 'at the root'}")


def _change(value: Any, path: Path, change: Callable[[Any], Any], whole: Path) -> Any:
    """Apply `change` to the value at `path`; absent mappings above it are created."""
    if not path:
        return change(value)
    step, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return [*value[:step], _change(value[step], rest, change, whole), *value[step + 1 :]]
    if isinstance(step, str) and (value is None or isinstance(value, dict)):
        mapping = value or {}
        return {**mapping, step: _change(mapping.get(step), rest, change, whole)}
    raise _absent(whole)


def _with_key(mapping: Any, edit: AddKey) -> dict[str, Any]:
    if mapping is not None and not isinstance(mapping, dict):
        raise _absent((*edit.path, edit.key))
    if mapping and edit.key in mapping:
        raise YamlError(f"Key {edit.key!r} is already set")
    new = plain_value(edit.value)
    if isinstance(edit.value, Raw):
        if not isinstance(new, dict) or list(new) != [edit.key]:
            raise YamlError(f"The raw entry does not set exactly the key {edit.key!r}")
        new = new[edit.key]
    return {**(mapping or {}), edit.key: new}


def _with_item(items: Any, edit: InsertItem) -> list[Any]:
    items = [] if items is None else items
    if not isinstance(items, list) or not 0 <= edit.index <= len(items):
        raise _absent((*edit.path, edit.index))
    new = plain_value(edit.value)
    if isinstance(edit.value, Raw):
        if not isinstance(new, list) or len(new) != 1:
            raise YamlError("The raw item is not exactly one item")
        new = new[0]
    return [*items[: edit.index], new, *items[edit.index :]]


def _without(parent: Any, edit: DeleteKey | DeleteItem) -> Any:
    step = edit.path[-1] if edit.path else None
    if isinstance(edit, DeleteKey) and isinstance(parent, dict) and step in parent:
        return {key: child for key, child in parent.items() if key != step}
    if isinstance(edit, DeleteItem) and isinstance(parent, list) and step in range(len(parent)):
        return [child for index, child in enumerate(parent) if index != step]
    raise _absent(edit.path)
