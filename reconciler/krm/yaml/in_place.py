"""Fast path for the most frequent edits: scalars, new keys and comments on lines of their own.

A line `key: value` of block style has the same meaning everywhere. So if every edit replaces a
scalar on the line of its key, adds a key below a complete one, or sets the comment behind a scalar,
it is enough to parse the new lines: the whole text need not be parsed a second time.
"""

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.compose import may_have_anchor
from reconciler.krm.yaml.edits import AddKey, Edit, SetLineComment, SetValue, canonical, plain_value
from reconciler.krm.yaml.emit import Indentation, Raw, Style, emit_entry, indent_lines, write_scalar
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlError
from reconciler.krm.yaml.load import Path, index_of, iterate_documents, typed_key
from reconciler.krm.yaml.splice import ODD_BREAK, Replacement, splice
from reconciler.krm.yaml.tree import Place, Tree, scalar_style

_NOT_SCALAR: Final = (Raw, dict, list, tuple)
_LEAD: Final = re.compile(r" *(?:- +)*")
"""The text before a key on its line: spaces, and the dashes of items that start with it."""
_REST: Final = re.compile(r"[ \t]*(?:(?<=[ \t])(#[^\r\n]*))?(?=\r?\n|\Z)")
"""The text behind a value on its line: spaces and a comment."""
_COMMENT_BELOW: Final = re.compile(r"(?:\r?\n[ \t]*)+#")
# Close to a limit of `PACKAGE_LIMITS` the whole text has to be checked.
_LARGEST: Final = 1 << 20
_DEEPEST: Final = 50


def edit_in_place(tree: Tree, edits: tuple[Edit, ...]) -> str | None:
    """Return the text after all edits, or None if one of them needs more than the lines of its field.

    The result equals that of splicing; only the check is cheaper.

    Raises:
        YamlError: A value cannot be written.
    """
    lines = _LineEdits(tree)
    if all(map(lines.add, edits)) and lines.parse() == canonical(lines.expected):
        return splice(tree.text, lines.replacements())
    return None


class _AddedKeys(NamedTuple):
    """Keys added below one line: their text, and path, key and column of the last one."""

    text: str
    path: Path
    key: str
    column: int


class _LineEdits:
    """Replacements within lines, the text of these lines alone, and the data that it must parse to."""

    def __init__(self, tree: Tree) -> None:
        self.expected: list[Any] = []
        self._tree = tree
        self._lines: list[str] = []
        self._values: dict[int, Replacement] = {}
        self._comments: dict[int, Replacement] = {}
        self._added: dict[int, _AddedKeys] = {}
        self._new: dict[Path, int] = {}

    def add(self, edit: Edit) -> bool:
        """Add one edit if it is simple and independent of the earlier ones, which the tree does not show."""
        match edit:
            case SetValue(path, value):
                place = self._tree.locate(path)
                if place is not None:
                    return self._replace(_field_at(self._tree, place), path[-1], value)
                name = path[-1] if path else None
                return isinstance(name, str) and self._add_key(AddKey(path[:-1], name, value))
            case AddKey():
                return edit.before is None and self._add_key(edit)
            case SetLineComment(path, text):
                return text is not None and self._set_comment(path, text)
            case _:
                return False

    def parse(self) -> bytes | None:
        """Return the data of the new lines as canonical JSON, None if they are no YAML."""
        return _parse("".join(self._lines)) if self._lines else canonical([])

    def replacements(self) -> list[Replacement]:
        """Return the replacements; a new comment and new keys at one offset become one."""
        comments = {comment.start: comment for comment in self._comments.values()}
        inserted = {comment.start for comment in comments.values() if comment.start == comment.end}
        added = [
            Replacement(offset, offset, (comments.pop(offset).new if offset in inserted else "") + keys.text)
            for offset, keys in self._added.items()
        ]
        return [*self._values.values(), *comments.values(), *added]

    def _replace(self, field: "_Field", step: str | int, value: Any) -> bool:
        text, old = self._tree.text, field.value
        if field.start in self._values or isinstance(value, _NOT_SCALAR) or not _is_simple(text, field):
            return False
        start, end = old.start_mark.index, old.end_mark.index
        style = scalar_style(old)
        new = _string_text(value, style) if isinstance(value, str) else write_scalar(value, like=style)
        if "\n" in new:
            return False
        self._values[field.start] = Replacement(start, end, new)
        # As an item of a list, the line parses alone, whatever its indentation and its siblings.
        self._lines.append(f"- {text[field.start : start]}{new}\n")
        value = plain_value(value)
        self.expected.append([value] if isinstance(field.parent, SequenceNode) else {step: value})
        return True

    def _set_comment(self, path: Path, comment: str) -> bool:
        """Set the comment behind a scalar; it changes no data, so that it needs no check."""
        place = self._tree.locate(path)
        field = _field_at(self._tree, place) if place is not None else None
        if field is None or not _is_simple(self._tree.text, field):
            return False
        end = field.value.end_mark.index
        rest = _REST.match(self._tree.text, end)
        comment = comment.strip()
        if rest is None or field.start in self._comments or not comment or not comment.isprintable():
            return False
        if not (rest[1] or "").isprintable():  # a line break that is no line feed
            return False
        comment = comment if comment.startswith("#") else f"# {comment}"
        if rest[1] is None:
            self._comments[field.start] = Replacement(end, end, f" {comment}")
        else:
            start = rest.start(1)
            self._comments[field.start] = Replacement(start, start + len(rest[1].rstrip()), comment)
        return True

    def _add_key(self, edit: AddKey) -> bool:
        """Put a key below another key of its mapping, or below the keys that were added there before."""
        path, key, value = edit.path, edit.key, edit.value
        point = _insertion_point(self._tree, path, edit.after)
        if point is None or key in point.names or (*path, key) in self._new or not _is_flat(value):
            return False
        offset = self._offset(point, path, edit.after)
        if offset is None:
            return False
        new = self._entry(key, value)
        pad = "\n" + " " * point.column
        before = self._added[offset].text if offset in self._added else ""
        text = new.replace("\n", pad) if "\n" in new else new
        self._added[offset] = _AddedKeys(f"{before}{pad}{text}", path, key, point.column)
        self._new[(*path, key)] = offset
        self._lines.append(f"- {indent_lines(new, 2)}\n" if "\n" in new else f"- {new}\n")
        self.expected.append({key: plain_value(value)})
        return True

    def _entry(self, key: str, value: Any) -> str:
        """Return the text of a new entry with a flat value."""
        if not isinstance(value, dict):
            return _entry_text(key, value) if isinstance(value, str) else emit_entry(key, value)
        width = self._tree.indentation_of_mappings
        if all(type(child) is str for child in value.values()):
            return _mapping_text(key, tuple(value.items()), width)
        return emit_entry(key, value, Indentation(width))

    def _offset(self, point: "_InsertionPoint", path: Path, after: str | None) -> int | None:
        """Return the offset of a new key, behind keys added before; None if it belongs above one of them."""
        follows = self._new.get((*path, after)) if after is not None else None
        offset = point.offset if follows is None else follows
        before = self._added.get(offset) if offset is not None else None
        if before is None:
            return offset
        if before.path == path:
            fits = not point.follows_existing and (before.key == after or follows is None)
        else:
            fits = point.column < before.column
        return offset if fits else None


class _InsertionPoint(NamedTuple):
    """The place of a new key in a mapping: offset and column, and the names of the existing keys.

    `offset` is None where the next lines may belong to another field. `follows_existing` tells
    whether the predecessor of the new key exists.
    """

    names: frozenset[str]
    offset: int | None
    column: int
    follows_existing: bool


def _insertion_point(tree: Tree, path: Path, after: str | None) -> _InsertionPoint | None:
    """Return the place for a key behind `after`, or for the last key; cached with the document."""
    query = (path, after)
    if query not in tree.cache:
        tree.cache[query] = _find_insertion_point(tree, path, after)
    point: _InsertionPoint | None = tree.cache[query]
    return point


def _find_insertion_point(tree: Tree, path: Path, after: str | None) -> _InsertionPoint | None:
    parent: Any = tree.raw_at(path)
    if type(parent) is not MappingNode or not parent.value or parent.flow_style:
        return None
    if len(path) > _DEEPEST or not _is_line_based(tree):
        return None
    predecessor = index_of(parent, after) if after is not None else -1
    key, value = parent.value[predecessor]  # the last one if it is absent
    names = frozenset([typed_key(key) for key, _ in parent.value])
    start = key.start_mark.index
    end = _end_of_last_line(tree.text, start, value)
    return _InsertionPoint(names, end, tree.column(start), predecessor >= 0)


def _is_line_based(tree: Tree) -> bool:
    """Tell whether only indentation relates a line of the text to other lines; cached with the document."""
    if _is_line_based not in tree.cache:
        text = tree.text
        is_odd = len(text) > _LARGEST or may_have_anchor(text) or ODD_BREAK.search(text)
        tree.cache[_is_line_based] = not is_odd
    return bool(tree.cache[_is_line_based])


def _end_of_last_line(text: str, key: int, value: Any) -> int | None:
    """Return the offset where the last line of an entry ends, None if its end is ambiguous.

    The entry is given as the offset of its key, and the node of its value.
    """
    lead = _LEAD.match(text, text.rfind("\n", 0, key) + 1)
    leaf = _last_leaf(value)
    start, end = leaf.start_mark.index, leaf.end_mark.index
    if lead is None or lead.end() != key or start == end:
        return None
    if isinstance(leaf, ScalarNode) and leaf.style in ("|", ">"):
        return None
    rest = _REST.match(text, end)
    return None if rest is None or _COMMENT_BELOW.match(text, rest.end()) else rest.end()


# Functions write the same strings into many resources.


@lru_cache(maxsize=1024)
def _string_text(value: str, style: Style) -> str:
    return write_scalar(value, like=style)


@lru_cache(maxsize=1024)
def _entry_text(key: str, value: str) -> str:
    return emit_entry(key, value)


@lru_cache(maxsize=1024)
def _mapping_text(key: str, items: tuple[tuple[str, str], ...], width: int) -> str:
    """Return the entry of a mapping of strings."""
    return emit_entry(key, dict(items), Indentation(width))


@lru_cache(maxsize=1024)
def _parse(lines: str) -> bytes | None:
    """Return the data of lines as canonical JSON; functions write the same ones into many resources."""
    try:
        (document,) = iterate_documents(lines, PACKAGE_LIMITS)
    except (YamlError, ValueError):
        return None
    return canonical(document.value)


def _last_leaf(node: Any) -> Any:
    while isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(node, MappingNode) else last
    return node


class _Field(NamedTuple):
    """A raw collection, the offset of one of its keys or dashes, and the raw value there."""

    parent: Any
    start: int
    value: Any


def _field_at(tree: Tree, place: Place) -> _Field:
    parent, index = place
    if type(parent) is MappingNode:
        key, value = parent.value[index]
        return _Field(parent, key.start_mark.index, value)
    slot = tree.slot_at(place)
    return _Field(parent, slot.start, slot.value.raw)


def _is_simple(text: str, field: _Field) -> bool:
    """Tell whether a field is one line: a key or dash, and a scalar without anchor and tag."""
    value = field.value
    if type(value) is not ScalarNode or field.parent.flow_style:
        return False
    start, end = value.start_mark, value.end_mark
    return (
        value.style not in ("|", ">")
        and start.line == end.line
        and start.index != end.index
        and text[start.index] not in "&!"
        and "\n" not in text[field.start : start.index]
    )


def _is_flat(value: Any) -> bool:
    """Tell whether a value is a scalar of one line, or a mapping of such scalars."""
    if isinstance(value, dict):
        return all(not isinstance(child, _NOT_SCALAR) and _is_flat(child) for child in value.values())
    return not isinstance(value, _NOT_SCALAR) and not (isinstance(value, str) and "\n" in value)
