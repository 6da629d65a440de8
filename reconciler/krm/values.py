"""Plain YAML values: look up, compare, copy, and the edits that change one into another."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from reconciler.krm.yaml import AddKey, DeleteItem, DeleteKey, Edit, InsertItem, Path, SetValue

_SORTED: Final = orjson.OPT_SORT_KEYS
_NAMED: Final = "name "


def value_at(value: Any, *path: str, default: Any = None) -> Any:
    """Return the value at a path of mappings, `default` where it is absent."""
    for key in path:
        value = value.get(key, default) if isinstance(value, dict) else default
    return value


def mapping_at(value: Any, *path: str) -> dict[str, Any]:
    """Return the mapping at a path of mappings; a new empty one where there is none."""
    mapping = value_at(value, *path)
    return mapping if isinstance(mapping, dict) else {}


def mappings_at(value: Any, *path: str) -> list[dict[str, Any]]:
    """Return the mappings in the list at a path; empty where there is no list."""
    items = value_at(value, *path)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def differences(old: Any, new: Any, path: Path = (), *, key: str = "name") -> Iterator[Edit]:
    """Yield the edits that turn `old` into `new`, in the order of their application.

    The order of keys is no difference: existing keys keep their place, and a new key is inserted after
    its predecessor in `new`. `key` is the field that identifies the items of lists.
    """
    if is_same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict) and (old or path):
        yield from _of_mappings(old, new, path, key)
    elif isinstance(old, list) and isinstance(new, list) and old and new:
        yield from _of_lists(old, new, path, key)
    else:
        yield SetValue(path, new)


def is_same(left: Any, right: Any) -> bool:
    """Return whether two values are equal YAML: types count (1 is not true), the order of keys does not."""
    # Python takes 1 for True, and so do comparisons of lists and mappings that hold them.
    if type(left) is not type(right) or left != right:
        return False
    if not isinstance(left, (dict, list)):
        return True
    try:
        return orjson.dumps(left, option=_SORTED) == orjson.dumps(right, option=_SORTED)
    except orjson.JSONEncodeError:
        # orjson cannot write some values, such as numbers of more than 64 bits: these are compared here.
        if isinstance(left, dict) and isinstance(right, dict):
            return all(is_same(value, right[key]) for key, value in left.items())
        if isinstance(left, list) and isinstance(right, list):
            return all(map(is_same, left, right))
        return type(left) is type(right)


def copy_value(value: Any) -> Any:
    """Return a deep copy of plain data."""
    if not isinstance(value, (dict, list)):
        return value
    try:
        return orjson.loads(orjson.dumps(value))
    except orjson.JSONEncodeError:
        if isinstance(value, dict):
            return {key: copy_value(child) for key, child in value.items()}
        return [copy_value(child) for child in value]


def _of_mappings(old: dict[str, Any], new: dict[str, Any], path: Path, item_key: str) -> Iterator[Edit]:
    gone = [key for key in old if key not in new]
    # A block mapping without any key cannot be written: it is replaced.
    if gone and len(gone) == len(old):
        yield SetValue(path, new)
        return
    for key in gone:
        yield DeleteKey((*path, key))
    before: str | None = None
    for key, value in new.items():
        if key not in old:
            yield AddKey(path, key, value, after=before)
        elif not is_same(old[key], value):
            yield from differences(old[key], value, (*path, key), key=item_key)
        before = key


def _of_lists(old: list[Any], new: list[Any], path: Path, key: str) -> Iterator[Edit]:
    """Match items by key, else by value; a list with another order of items is replaced."""
    names, new_names = [_name(item, key) for item in old], [_name(item, key) for item in new]
    if len(old) == len(new) and not all(name.startswith(_NAMED) for name in (*names, *new_names)):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(was, now, (*path, index), key=key)
        return
    common = [name for name in names if name in new_names]
    is_ambiguous = len(set(names)) < len(names)
    if is_ambiguous or not common or common != [name for name in new_names if name in names]:
        yield SetValue(path, new)
        return
    # From the end, so that the indexes of earlier items stay valid.
    for index in range(len(old) - 1, -1, -1):
        if names[index] not in new_names:
            yield DeleteItem((*path, index))
    for index, (name, item) in enumerate(zip(new_names, new, strict=True)):
        if name in names:
            yield from differences(old[names.index(name)], item, (*path, index), key=key)
        else:
            yield InsertItem(path, index, item)


def _name(item: Any, key: str) -> str:
    name = item.get(key) if isinstance(item, dict) else None
    return f"{_NAMED}{name}" if isinstance(name, str) else repr(item)
