"""Edit a document: by splicing where possible, else by a ruamel.yaml round trip; both are checked."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

import orjson
from msgspec import Struct
from msgspec.structs import replace
from yaml import MappingNode

from reconciler.base.lazy import regex
from reconciler.krm.yaml.compose import PACKAGE_LIMITS, YamlError, YamlLimits
from reconciler.krm.yaml.emit import (
    Indentation,
    Raw,
    Style,
    emit,
    emit_entry,
    emit_item,
    indent_lines,
    is_collection,
    write_key,
    write_scalar,
)
from reconciler.krm.yaml.load import Path, ScalarError, index_of, iterate_documents, type_tagged
from reconciler.krm.yaml.tree import Alias, AnyNode, Entry, Item, Mapping, Scalar, Sequence, Slot, Tree

if TYPE_CHECKING:
    from ruamel.yaml import YAML

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


def _path_text(path: Path) -> str:
    return ".".join(map(str, path)) or "at the root"


def _absent(path: Path) -> YamlError:
    return YamlError(f"There is no field {_path_text(path)}")


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


ODD_BREAK: Final = regex("\r(?!\n)|[\x85\u2028\u2029]")
"""Unusual line breaks of YAML 1.1; code that looks for line feeds would miss them."""
_ANCHOR: Final = regex(r"&[^\s,\[\]{}]+")
_WIDEST: Final = 9
_KEPT_BREAKS: Final = regex(r"[|>][1-9]?\+")
_NOT_ALONE: Final = regex("[#&*!|>\r\t\x85\u2028\u2029]|\n *\n")
"""Part of the lines of a key that other lines may decide about, or that may decide about others."""
_EMPTY_LINES: Final = regex(r"(?:\r?\n[ \t]*)+(?=\r?\n)")


class Replacement(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


class CannotSpliceError(Exception):
    """A valid edit that one replacement cannot express."""


def splice(text: str, replacements: Iterable[Replacement]) -> str:
    """Apply all replacements, insertions at one place in their order; CRLF files get CRLF in the new text.

    Raises:
        CannotSpliceError: Two replacements overlap.
    """
    crlf = "\r\n" in text
    parts: list[str] = []
    position = 0
    for start, end, new in sorted(replacements, key=lambda edit: (edit.start, not edit.new)):
        if start < position:
            raise CannotSpliceError
        parts += (text[position:start], new.replace("\n", "\r\n") if crlf else new)
        position = end
    parts.append(text[position:])
    return "".join(parts)


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - 1 if end > offset and text[end - 1] == "\r" else end


def _next_line(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end + 1


def _starts_line(text: str, offset: int) -> bool:
    return not text[_line_start(text, offset) : offset].strip(" ")


def plan_splice(tree: Tree, edit: Edit) -> Replacement:
    """Return the replacement of text that performs an edit.

    Raises:
        CannotSpliceError: The edit needs more than a splice.
        YamlError: The edit names an absent field, or its value cannot be written.
    """
    edit = _without_alias(tree, edit)
    match edit:
        case SetValue():
            return _set_value(tree, edit)
        case AddKey():
            return _add_key(tree, edit)
        case InsertItem():
            return _insert_item(tree, edit)
        case DeleteKey(path) | DeleteItem(path):
            return _delete(tree, path)
        case SetLineComment(path, text):
            return _set_line_comment(tree, path, text)
        case SetHeadComment(path, text):
            return _set_head_comment(tree, path, text)
        case _:
            assert_never(edit)


def _without_alias(tree: Tree, edit: Edit) -> Edit:
    """Turn an edit inside an aliased value into one that replaces the alias by the edited value."""
    inside = edit.path if isinstance(edit, (AddKey, InsertItem)) else edit.path[:-1]
    for length in range(1, len(inside) + 1):
        node = tree.find(inside[:length])
        if node is None:
            break
        if isinstance(node, Alias):
            return SetValue(inside[:length], edited(node.value, replace(edit, path=edit.path[length:])))
    return edit


def _set_value(tree: Tree, edit: SetValue) -> Replacement:
    if not edit.path:
        return _replace_root(tree, edit.value)
    slot = tree.slot(edit.path)
    if slot is not None:
        return _replace_value(tree, slot, edit.value)
    name = edit.path[-1]
    if not isinstance(name, str):
        raise CannotSpliceError
    value = edit.value
    if isinstance(value, Raw):
        value = Raw(_raw_entry(name, value, tree.indentation))
    return _add_key(tree, AddKey(edit.path[:-1], name, value))


def _add_key(tree: Tree, edit: AddKey) -> Replacement:
    node = tree.find(edit.path)
    if not isinstance(node, Mapping) or not node.raw.value:
        value = edit.value if isinstance(edit.value, Raw) else {edit.key: edit.value}
        return _add_first(tree, edit.path, node, value)
    before = _find_entry(node, edit.before)
    after = _find_entry(node, edit.after) or node.entries[-1]
    if node.style is Style.FLOW:
        value = plain_value(edit.value)
        value = value[edit.key] if isinstance(edit.value, Raw) else value
        text = f"{_flow_text(tree, edit.key)}: {_flow_text(tree, value)}"
        return _insert_flow(tree, text, before=before, after=after)
    indentation = tree.indentation
    text = edit.value.text if isinstance(edit.value, Raw) else emit_entry(edit.key, edit.value, indentation)
    return _insert_block(tree, text, before=before, after=after)


def _insert_item(tree: Tree, edit: InsertItem) -> Replacement:
    node = tree.find(edit.path)
    if not isinstance(node, Sequence) or not node.raw.value:
        return _add_first(tree, edit.path, node, edit.value if isinstance(edit.value, Raw) else [edit.value])
    items = node.items
    before = items[edit.index] if edit.index < len(items) else None
    if node.style is Style.FLOW:
        value = plain_value(edit.value)
        text = _flow_text(tree, value[0] if isinstance(edit.value, Raw) else value)
        return _insert_flow(tree, text, before=before, after=items[-1])
    indentation = tree.indentation
    text = edit.value.text if isinstance(edit.value, Raw) else emit_item(edit.value, indentation)
    return _insert_block(tree, text, before=before, after=items[min(edit.index, len(items)) - 1])


def _replace_value(tree: Tree, slot: Slot, value: Any) -> Replacement:
    if slot.parent.style is Style.FLOW:
        text = None if _is_scalar(value) and not _is_json(tree) else _flow_text(tree, plain_value(value))
        return _replace_inline(tree, slot, text, value)
    if isinstance(value, Raw):
        root = Tree.parse(value.text).root
        if _is_block(root):
            return _replace_with_block(tree, slot, value.text, is_list=isinstance(root, Sequence))
        return _replace_inline(tree, slot, value.text, value)
    if is_collection(value):
        text = emit(value, tree.indentation)
        return _replace_with_block(tree, slot, text, is_list=not isinstance(value, dict))
    return _replace_inline(tree, slot, None if _is_scalar(value) else emit(value), value)


def _flow_text(tree: Tree, value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if _is_json(tree) else emit(value, flow=True)


def _is_json(tree: Tree) -> bool:
    root = tree.root
    if not isinstance(root, Mapping) or root.style is not Style.FLOW or not root.raw.value:
        return False
    return all(isinstance(entry.key, Scalar) and entry.key.style is Style.DOUBLE for entry in root.entries)


def _replace_root(tree: Tree, value: Any) -> Replacement:
    text = value.text if isinstance(value, Raw) else emit(value, tree.indentation)
    root = tree.root
    if root is None:
        at = len(tree.text)
        gap = "" if tree.text[-1:] in ("", "\n") else "\n"
        return Replacement(at, at, f"{gap}{text}\n")
    start = root.span.start
    column = tree.column(start) if _starts_line(tree.text, start) else 0
    first = "\n" if tree.column(start) and not column and is_collection(value) else ""
    return _over_trailing_space(
        tree, Replacement(start, tree.value_end(None), first + indent_lines(text, column))
    )


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, (Raw, dict, list, tuple))


def _is_block(node: AnyNode | None) -> bool:
    return isinstance(node, (Mapping, Sequence)) and node.style is Style.BLOCK


def _replace_inline(tree: Tree, slot: Slot, text: str | None, value: Any) -> Replacement:
    """Put a value on the line of its key or dash; without `text`, a scalar in the style of the old one."""
    old = slot.value
    column = tree.column(slot.start)
    if text is None:
        text = _scalar_like(tree, slot, value)
    text = indent_lines(text, column) if slot.parent.style is Style.BLOCK else text
    start, end = old.span
    if start == end or _is_block(old):  # the old value is absent or on lines of its own
        start, end = tree.key_end(slot), tree.value_end(slot) if start != end else tree.key_end(slot)
        text = f" {text}" if tree.text[start - 1] in ":-" else f": {text}"
    properties = _kept_properties(old, value)
    if properties and not _is_block(old):
        text = f"{properties} {text}"
    comment = slot.comments.line_span
    # A comment between the key and a value on a line below stays where it is.
    follows = comment is not None and comment.start >= start
    if comment and follows and slot.parent.style is Style.BLOCK and ("\n" in text or comment.start < end):
        first, *rest = text.split("\n")
        text = "\n".join([f"{first} {slot.comments.line}", *rest])
        end = max(end, comment.end)
    return _over_trailing_space(tree, Replacement(start, end, text))


def _scalar_like(tree: Tree, slot: Slot, value: Any) -> str:
    flow = slot.parent.style is Style.FLOW
    old = slot.value
    if not isinstance(old, Scalar):
        return write_scalar(value, flow=flow, indent=tree.indentation.width)
    if old.style in (Style.LITERAL, Style.FOLDED):
        width = _block_width(tree, slot, old)
    else:
        width = tree.indentation.width if isinstance(value, str) and "\n" in value else 2
    return write_scalar(value, like=old.style, flow=flow, indent=width)


def _block_width(tree: Tree, slot: Slot, old: Scalar) -> int:
    _, *lines = old.text.split("\n")
    content = next((line for line in lines if line.strip()), "")
    width = len(content) - len(content.lstrip(" ")) - tree.column(slot.start)
    return width if 0 < width <= _WIDEST else tree.indentation.width


def _kept_properties(old: AnyNode, value: Any) -> str:
    """Return the anchor and tag to keep before a new value; the tag only if it fits the new value."""
    properties = old.properties
    if not properties or not isinstance(old, Scalar) or not old.tag:
        anchor = _ANCHOR.search(properties)
        return anchor[0] if anchor else ""
    try:
        fits = not isinstance(value, (Raw, dict, list, tuple)) and _same(
            type_tagged(old.tag, value if isinstance(value, str) else write_scalar(value)), value
        )
    except ScalarError:
        fits = False
    anchor = _ANCHOR.search(properties)
    return properties if fits else anchor[0] if anchor else ""


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _replace_with_block(tree: Tree, slot: Slot, text: str, *, is_list: bool) -> Replacement:
    # The comment at the end of the key's line moves in front of the new collection.
    old = slot.value
    column = tree.column(slot.start)
    child = _child_column(tree, slot, is_list=is_list)
    start = tree.key_end(slot)
    end = max(start, tree.value_end(slot))
    comment = slot.comments.line_span
    end = max(end, comment.end if comment else 0)
    anchor = _ANCHOR.search(old.properties)
    decoration = "".join(f" {part}" for part in (anchor[0] if anchor else "", slot.comments.line) if part)
    body = indent_lines(text, child)
    if isinstance(slot, Entry) or decoration:
        new = f"{decoration}\n{' ' * child}{body}"
    else:
        new = " " * (child - column - 1) + body
    return _over_trailing_space(tree, Replacement(start, end, new))


def _over_trailing_space(tree: Tree, replacement: Replacement) -> Replacement:
    """Include the spaces that end the line: behind a block scalar they would become part of it.

    So would blank lines below one that keeps its line breaks at the end.
    """
    end = _line_end(tree.text, replacement.end)
    if "\n" not in replacement.new or tree.text[replacement.end : end].strip():
        return replacement
    blank = _EMPTY_LINES.match(tree.text, end) if _KEPT_BREAKS.search(replacement.new) else None
    return replacement._replace(end=blank.end() if blank else end)


def _child_column(tree: Tree, slot: Slot, *, is_list: bool) -> int:
    """Return the column of a new block collection: that of the old one if it has the same kind."""
    old = slot.value
    column = tree.column(slot.start)
    if _is_block(old) and isinstance(old, Sequence) is is_list:
        return tree.column(old.content_start)
    if isinstance(slot, Item):
        return column + 2
    indentation = tree.indentation
    return column + (0 if is_list and indentation.compact_lists else indentation.width)


def _find_entry(node: Mapping, name: str | None) -> Slot | None:
    return None if name is None else node.find(name)


def _add_first(tree: Tree, path: Path, node: AnyNode | None, value: Any) -> Replacement:
    """Put the first entry or item into an empty, null or absent collection."""
    if not path:
        return _replace_root(tree, value)
    if node is not None and node.value:
        raise CannotSpliceError
    return _set_value(tree, SetValue(path, value))


def _raw_entry(name: str, raw: Raw, indentation: Indentation) -> str:
    """Return `key: value` for a raw value; a block collection starts on the next line."""
    root = Tree.parse(raw.text).root
    key = write_key(name)
    if isinstance(root, (Mapping, Sequence)) and root.style is Style.BLOCK:
        width = 0 if isinstance(root, Sequence) and indentation.compact_lists else indentation.width
        return f"{key}:\n{' ' * width}{indent_lines(raw.text, width)}"
    return f"{key}: {raw.text}"


def _insert_block(tree: Tree, text: str, *, before: Slot | None, after: Slot) -> Replacement:
    column = tree.column((before or after).start)
    pad = " " * column
    if before is None:
        at = _line_end(tree.text, tree.extent(after).end)
        return _over_trailing_space(tree, Replacement(at, at, f"\n{pad}{indent_lines(text, column)}"))
    at = tree.extent(before).start
    if _starts_line(tree.text, at):
        at = _line_start(tree.text, at)
        return Replacement(at, at, f"{pad}{indent_lines(text, column)}\n")
    return Replacement(at, at, f"{indent_lines(text, column)}\n{pad}")


def _insert_flow(tree: Tree, text: str, *, before: Slot | None, after: Slot) -> Replacement:
    if before is not None:
        return Replacement(before.start, before.start, f"{text}, ")
    at = tree.slot_end(after)
    return Replacement(at, at, f", {text}")


def _delete(tree: Tree, path: Path) -> Replacement:
    slot = tree.slot(path)
    if slot is None:
        raise _absent(path)
    siblings: tuple[Slot, ...]
    siblings = slot.parent.entries if isinstance(slot.parent, Mapping) else slot.parent.items
    if len(siblings) == 1:
        empty: dict[str, object] | list[object] = {} if isinstance(slot.parent, Mapping) else []
        if slot.parent.style is Style.FLOW:
            return Replacement(slot.parent.content_start, slot.parent.span.end, "{}" if empty == {} else "[]")
        holder = tree.slot(path[:-1])
        return _replace_value(tree, holder, empty) if holder else _replace_root(tree, empty)
    if slot.parent.style is Style.FLOW:
        # Up to the next sibling, or for the last one from the end of its predecessor.
        if "#" in siblings[0].parent.text:  # a comment ends at its line break, which must stay
            raise CannotSpliceError
        if slot.index == 0:
            return Replacement(siblings[0].start, siblings[1].start, "")
        return Replacement(tree.slot_end(siblings[slot.index - 1]), tree.slot_end(siblings[slot.index]), "")
    return _delete_lines(tree, siblings, slot.index)


def _delete_lines(tree: Tree, siblings: tuple[Slot, ...], index: int) -> Replacement:
    """Delete whole lines; for the first entry behind a dash, the text up to the next entry."""
    text = tree.text
    start, end = tree.extent(siblings[index])
    if not _starts_line(text, start):
        if index > 0:  # behind a `?`, which only an explicit key has
            raise CannotSpliceError
        return Replacement(start, tree.extent(siblings[index + 1]).start, "")
    start = _line_start(text, start)
    after = _next_line(text, end)
    if text[after - 1 : after] != "\n" and start > 0:
        return Replacement(_line_end(text, start - 1), after, "")
    return Replacement(start, after, "")


def _set_line_comment(tree: Tree, path: Path, text: str | None) -> Replacement:
    slot = _block_slot(tree, path)
    old = slot.comments.line_span
    comment = _comment_lines(text)
    if len(comment) > 1:
        raise YamlError("A line comment has one line")
    if old is not None:
        start = old.start if comment else len(tree.text[: old.start].rstrip(" \t"))
        return Replacement(start, old.end, "".join(comment))
    at = _end_of_first_line(tree, slot)
    rest = tree.text[at : _line_end(tree.text, at)]
    if rest.strip():
        raise YamlError(f"The field {_path_text(path)} does not end its line")
    return Replacement(at, at, "".join(f" {line}" for line in comment))


def _set_head_comment(tree: Tree, path: Path, text: str | None) -> Replacement:
    slot = _block_slot(tree, path)
    old = slot.comments.head_span
    pad = " " * tree.column(slot.start)
    lines = _comment_lines(text)
    joined = "\n".join(line if number == 0 or not line else pad + line for number, line in enumerate(lines))
    if old is None:
        return Replacement(slot.start, slot.start, f"{joined}\n{pad}" if joined else "")
    if joined:
        return Replacement(old.start, old.end, joined)
    if _starts_line(tree.text, old.start):
        return Replacement(_line_start(tree.text, old.start), _next_line(tree.text, old.end), "")
    return Replacement(old.start, slot.start, "")


def _block_slot(tree: Tree, path: Path) -> Slot:
    slot = tree.slot(path)
    if slot is None:
        raise _absent(path)
    if slot.parent.style is Style.FLOW:
        raise YamlError(f"The field {_path_text(path)} is in flow style, where comments have no owner")
    return slot


def _comment_lines(text: str | None) -> list[str]:
    if text is None:
        return []
    lines = [line.strip() for line in text.split("\n")]
    return [line if not line or line.startswith("#") else f"# {line}" for line in lines]


def _end_of_first_line(tree: Tree, slot: Slot) -> int:
    value = slot.value
    if isinstance(value, (Mapping, Sequence)) and value.style is Style.BLOCK:
        if isinstance(slot, Item):
            raise YamlError("An item that is a block collection has no line of its own")
        return value.span.start + len(value.properties) if value.properties else tree.key_end(slot)
    if isinstance(value, Scalar) and value.style in (Style.LITERAL, Style.FOLDED):
        return _line_end(tree.text, value.content_start)
    return tree.slot_end(slot)


_BOM: Final = "\ufeff"
_BARE_LINE_END: Final = regex(r"(?<!\r)\n")
_BLANK_LINES: Final = regex(r"^[ \t]*\n", re.MULTILINE)


def apply_edits(text: str, edits: Iterable[Edit], limits: YamlLimits = PACKAGE_LIMITS) -> EditResult:
    """Apply edits to the text of one document, in order; every other byte stays the same.

    Deterministic and checked: the result parses to the edited data.

    Raises:
        YamlError: The text is not YAML, an edit names an absent field, or the edited data cannot be
            written.
    """
    pending = tuple(edits)
    bom = _BOM if text.startswith(_BOM) else ""
    tree = Tree.parse(text, limits)
    tree.check()
    result = edit_tree(tree, pending, limits) if pending else EditResult(tree.text)
    return EditResult(bom + result.text, result.fallbacks) if bom else result


def edit_tree(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits = PACKAGE_LIMITS) -> EditResult:
    """Apply edits to a parsed document without a byte order mark; otherwise as `apply_edits`.

    Raises:
        YamlError: As `apply_edits`.
    """
    if (alone := _edit_one_key(tree, edits, limits)) is not None:
        return alone
    data = tree.value
    for edit in edits:
        data = edited(data, edit)
    expected = canonical(data)
    for spelling in _spellings(tree, limits):
        with suppress(CannotSpliceError):
            result = _splice_all(spelling, edits, limits)
            if 0 < tree.text.count("\n") == tree.text.count("\r\n"):
                # An edit may have replaced all that told how lines end.
                result = _BARE_LINE_END.sub("\r\n", result)
            for end in ("", "\n"):  # a block scalar at the end of the text may need its line break
                if _parses_to(result + end, expected, limits):
                    return EditResult(result + end)
    result = _edit_round_trip(tree, edits)
    if not _parses_to(result, expected, limits):
        raise YamlError("The edits cannot be written without changing something else")
    return EditResult(result, fallbacks=1)


def _edit_one_key(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits) -> EditResult | None:
    """Edit the lines of one key of a document alone, None if not all edits are in it, or other lines matter.

    What an edit costs grows with the text, and a large resource has few lines of metadata.
    """
    keys = {edit.path[0] if edit.path else "" for edit in edits}
    root, text = tree.raw, tree.text
    if len(keys) != 1 or not isinstance(root, MappingNode) or root.flow_style or root.start_mark.column:
        return None
    index = index_of(root, keys.pop())
    if index < 0 or index + 1 == len(root.value) or not all(map(_is_of_one_line, edits)):
        return None
    start, end = (root.value[number][0].start_mark.index for number in (index, index + 1))
    if not (_starts_line(text, start) and _starts_line(text, end)) or _NOT_ALONE.search(text[start:end]):
        return None
    lines = Tree.parse(text[start:end], limits)
    if lines.indentation.width != tree.indentation.width:
        return None
    result = edit_tree(lines, edits, limits)
    return None if result.fallbacks else EditResult(f"{text[:start]}{result.text}{text[end:]}")


def _is_of_one_line(edit: Edit) -> bool:
    """Tell whether an edit writes a scalar below a key, or a comment."""
    if not isinstance(edit, SetValue):
        return isinstance(edit, SetLineComment)
    value = edit.value.text if isinstance(edit.value, Raw) else edit.value
    return len(edit.path) > 1 and isinstance(value, str) and "\n" not in value


def _spellings(tree: Tree, limits: YamlLimits) -> Iterator[Tree]:
    """Yield a document, and the same one in other words, in which block scalars go on less easily."""
    yield tree
    # What follows a block scalar at the end of the text would give it a line break.
    closed = tree.closed()
    if closed != tree.text:
        yield Tree.parse(closed, limits)
    # Blank lines become part of a block scalar that keeps its line breaks at the end.
    gaps = (
        (gap.start, gap.end, tree.text[gap.start : gap.end].replace("\r", "")) for gap in tree.comments.gaps
    )
    dense = splice(tree.text, (Replacement(start, end, _BLANK_LINES.sub("", t)) for start, end, t in gaps))
    if dense != tree.text:
        yield Tree.parse(dense, limits)


def _parses_to(text: str, expected: bytes, limits: YamlLimits) -> bool:
    try:
        return canonical(Tree.parse(text, limits).value) == expected
    except YamlError:
        return False


def _splice_all(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits) -> str:
    """Splice all edits; the document is parsed again only before an edit of what an earlier one changes."""
    if ODD_BREAK.search(tree.text):
        raise CannotSpliceError
    try:
        return _splice_together(tree, edits, limits)
    except CannotSpliceError:
        # A deletion may take the line break behind which a key is added.
        for edit in edits[:-1]:
            tree = _parse(splice(tree.text, [plan_splice(tree, edit)]), limits)
        return splice(tree.text, [plan_splice(tree, edits[-1])])


def _splice_together(tree: Tree, edits: tuple[Edit, ...], limits: YamlLimits) -> str:
    pending: list[_Pending] = []
    for edit in edits:
        planned = _plan(tree, edit, pending)
        if planned is None:
            tree, pending = _parse(_splice_pending(tree, pending), limits), []
            planned = _plan(tree, edit, pending)
        if planned is not None:
            pending.append(planned)
    return _splice_pending(tree, pending)


def _parse(text: str, limits: YamlLimits) -> Tree:
    try:
        return Tree.parse(text, limits)
    except YamlError as error:
        raise CannotSpliceError from error


class _Touched(NamedTuple):
    """The part of a document that an edit changes: the value at `path`, or only its comment.

    With `added`, the path of a new value, everything at `path` stays: a block mapping gets one more key.
    """

    path: Path
    added: Path = ()
    is_comment: bool = False

    def is_inside(self, other: "_Touched") -> bool:
        """Tell whether this part is below the path of another one."""
        return len(self.path) > len(other.path) and self.path[: len(other.path)] == other.path

    def is_disjoint(self, other: "_Touched") -> bool:
        """Tell whether neither edit changes what the other one reads."""
        related = self.path == other.path or self.is_inside(other) or other.is_inside(self)
        if not related or (self.is_comment and other.is_comment):
            return self.path != other.path
        if (self.added or self.is_comment) and (other.added or other.is_comment):
            return True
        # A new key, and the comment of a key, are outside of the values below.
        return any(
            (outer.added or outer.is_comment) and inner.is_inside(outer)
            for outer, inner in ((self, other), (other, self))
        )


class _Pending(NamedTuple):
    """A planned edit; a key is added behind the entry `anchor`, by default the last one."""

    touched: _Touched
    replacement: Replacement
    anchor: str | None = None


def _plan(tree: Tree, edit: Edit, pending: list[_Pending]) -> _Pending | None:
    """Return an edit of a tree as planned, None if it depends on pending edits."""
    touched = _touched(tree, edit)
    for other, _, _ in pending:
        is_in_new = bool(other.added) and edit.path[: len(other.added)] == other.added
        if is_in_new or touched.added == (other.added or None) or not touched.is_disjoint(other):
            return None
    if not isinstance(edit, AddKey) or not touched.added:
        return _Pending(touched, plan_splice(tree, edit))
    added = [step for step in pending if step.touched.added and step.touched.path == touched.path]
    previous = next((step for step in added if step.touched.added[-1] == edit.after), None)
    anchor = edit.after if previous is None else previous.anchor
    planned = _Pending(touched, plan_splice(tree, replace(edit, after=anchor)), anchor)
    # What is added at one place stays in the order of the edits: each new key is behind the one before it.
    last = next(
        (step for step in reversed(added) if step.replacement.start == planned.replacement.start), None
    )
    is_chained = last is previous or (previous is None and tree.slot((*edit.path, edit.after or "")) is None)
    return planned if is_chained else None


def _splice_pending(tree: Tree, pending: list[_Pending]) -> str:
    # At one place, what is deeper in the document comes first.
    ordered = sorted(pending, key=lambda step: -len(step.touched.path))
    return splice(tree.text, [step.replacement for step in ordered])


def _touched(tree: Tree, edit: Edit) -> _Touched:
    match edit:
        case SetLineComment(path) | SetHeadComment(path):
            return _Touched(path, is_comment=True)
        case DeleteKey(path) | DeleteItem(path):
            return _Touched(path[:-1])
        case AddKey(path, key, before=None):
            new = (*path, key)
        case SetValue(path):
            new = path
        case _:
            new = ()
    path = edit.path
    while path and tree.find(path) is None:
        path = path[:-1]
    node = tree.find(path)
    is_new = len(path) < len(new) and isinstance(node, Mapping) and node.last is not None
    return _Touched(path, new[: len(path) + 1] if is_new else ())


def _edit_round_trip(tree: Tree, edits: tuple[Edit, ...]) -> str:
    """Load, edit and dump the document with ruamel.yaml, which keeps most comments and quotes.

    Raises:
        YamlError: ruamel.yaml cannot read, edit or write the document, or an edit sets a comment.
    """
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - rarely needed, and slow to import

    yaml = _yaml(tree)
    try:
        data = yaml.load(tree.text)
        for edit in edits:
            data = _apply(data, edit)
        out = StringIO()
        yaml.dump(data, out)
    except (YAMLError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise YamlError(f"The edit cannot be made: {type(error).__name__}") from error
    return out.getvalue()


def _yaml(tree: Tree) -> "YAML":
    from ruamel.yaml import YAML  # noqa: PLC0415 - rarely needed, and slow to import

    indentation = tree.indentation
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 2**31
    yaml.explicit_start = tree.text.startswith("---")
    offset = 0 if indentation.compact_lists else indentation.width
    yaml.indent(mapping=indentation.width, sequence=offset + 2, offset=offset)
    return yaml


def _apply(data: Any, edit: Edit) -> Any:
    match edit:
        case SetValue(()):
            return plain_value(edit.value)
        case SetValue((*parents, last)):
            _descend(data, parents)[last] = plain_value(edit.value)
        case AddKey(path):
            value = plain_value(edit.value)
            _descend(data, path)[edit.key] = value.get(edit.key, value) if isinstance(value, dict) else value
        case InsertItem(path):
            _descend(data, path).insert(edit.index, plain_value(edit.value))
        case DeleteKey((*parents, last)) | DeleteItem((*parents, last)):
            del _descend(data, parents)[last]
        case _:
            raise YamlError("A comment cannot be set here")
    return data


def _descend(data: Any, path: Any) -> Any:
    for step in path:
        data = data[step]
    return data
