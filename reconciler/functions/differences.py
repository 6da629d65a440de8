"""From the value that a document has to the value that it should have, as edits that touch nothing else."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from reconciler.krm.yaml import AddKey, DeleteItem, DeleteKey, Edit, InsertItem, Path, SetValue

_SORTED: Final = orjson.OPT_SORT_KEYS


def differences(old: Any, new: Any, path: Path = ()) -> Iterator[Edit]:
    """Yield the edits that turn `old` into `new`, in the order in which they must be made.

    The order of keys is no difference: what stays keeps its place, and a new key comes behind
    the one that it follows in `new`.
    """
    if is_same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict) and (old or path):
        yield from _of_mappings(old, new, path)
    elif isinstance(old, list) and isinstance(new, list) and old and new:
        yield from _of_lists(old, new, path)
    else:
        yield SetValue(path, new)


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same YAML: types count (1 is not true), the order of keys does not."""
    if type(one) is not type(other) or one != other:
        return False
    if not isinstance(one, (dict, list)):
        return True
    try:
        return orjson.dumps(one, option=_SORTED) == orjson.dumps(other, option=_SORTED)
    except orjson.JSONEncodeError:
        return _is_same_in_depth(one, other)


def _is_same_in_depth(one: Any, other: Any) -> bool:
    """Compare what is no JSON, such as numbers of more than 64 bits."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return all(map(is_same, one, other))
    return type(one) is type(other)


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


def _of_mappings(old: dict[str, Any], new: dict[str, Any], path: Path) -> Iterator[Edit]:
    gone = [key for key in old if key not in new]
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
            yield from differences(old[key], value, (*path, key))
        before = key


def _of_lists(old: list[Any], new: list[Any], path: Path) -> Iterator[Edit]:
    """Match items by name where they have one, else by value; a list in another order is written anew."""
    if len(old) == len(new) and not _are_named(old, new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(was, now, (*path, index))
        return
    names, wanted = [_name(item) for item in old], [_name(item) for item in new]
    kept = [name for name in names if name in wanted]
    if len(set(names)) < len(names) or len(set(wanted)) < len(wanted) or not kept:
        yield SetValue(path, new)
        return
    if kept != [name for name in wanted if name in names]:
        yield SetValue(path, new)
        return
    for index in range(len(old) - 1, -1, -1):
        if names[index] not in wanted:
            yield DeleteItem((*path, index))
    for index, (name, item) in enumerate(zip(wanted, new, strict=True)):
        if name in names:
            yield from differences(old[names.index(name)], item, (*path, index))
        else:
            yield InsertItem(path, index, item)


def _are_named(old: list[Any], new: list[Any]) -> bool:
    return all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in (*old, *new))


def _name(item: Any) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    return f"name {name}" if isinstance(name, str) else repr(item)
