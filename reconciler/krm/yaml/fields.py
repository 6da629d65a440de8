"""Every field of a document in the order of its text: what functions look for comments and values in."""

import re
from bisect import bisect_left
from typing import Any, Final, NamedTuple

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.exact import dash_offsets, is_block
from reconciler.krm.yaml.marks import Path, typed_key
from reconciler.krm.yaml.tree import Entry, Item, Mapping, Scalar, Sequence, Slot, Tree


class Field(NamedTuple):
    """A scalar or a sequence: where it stands, the node, and the slot that holds it."""

    path: Path
    node: Scalar | Sequence
    slot: Slot | None

    @property
    def name(self) -> str:
        """The path as functions write it: `spec.containers[0].image`."""
        return path_text(self.path)

    @property
    def comment(self) -> str:
        """The comment at the end of the line."""
        return line_comment(self.slot) if self.slot is not None else ""


_BEHIND: Final = re.compile(r"(?:[ \t]+(#[^\r\n]*)|[ \t]*)(?=[\r\n]|\Z)")
"""What stands behind a value that ends its line: nothing, or a comment."""


def line_comment(slot: Slot) -> str:
    """Return the comment at the end of a slot's line: what `comments` says, found where the line ends."""
    tree, value = slot.tree, slot.value.raw
    if "#" not in tree.text or slot.parent.raw.flow_style:
        return ""
    found = None
    start, end = value.start_mark, value.end_mark
    if is_block(value):
        found = _BEHIND.match(tree.text, tree.key_end(slot))
    elif start.line == end.line and start.index != end.index and not _is_block_scalar(value):
        found = None if "\n" in tree.text[slot.start : start.index] else _BEHIND.match(tree.text, end.index)
    if found is None or (found[1] and is_block(value) and isinstance(slot, Item)):
        return slot.comments.line
    return (found[1] or "").rstrip()


def _is_block_scalar(node: Any) -> bool:
    return type(node) is ScalarNode and node.style in ("|", ">")


def path_text(path: Path) -> str:
    """Return a path as functions write it."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def fields_of(tree: Tree, mark: str = "") -> list[Field]:
    """Return every scalar and sequence of a document in the order of its text; aliases are left alone.

    With `mark`, those alone whose extent in the text has it somewhere: the rest is not looked at.
    """
    marks = [found.start() for found in re.finditer(re.escape(mark), tree.text)] if mark else None
    walk = _Walk(tree, marks)
    walk.visit(tree.raw, (), None, len(tree.text))
    return walk.found


class _Walk:
    """Goes over nodes as libyaml gives them; makes views of those alone that are asked for."""

    def __init__(self, tree: Tree, marks: list[int] | None) -> None:
        self.found: list[Field] = []
        self._tree = tree
        self._marks = marks

    def visit(self, node: Any, path: Path, slot: Slot | None, end: int) -> None:
        """Collect what stands in a node and in what it holds; `end` is where the next one starts."""
        kind = type(node)
        if kind is ScalarNode:
            self.found.append(Field(path, Scalar(self._tree, node), slot))
        elif kind is SequenceNode:
            self.found.append(Field(path, Sequence(self._tree, node), slot))
            self._items(node, path, end)
        elif kind is MappingNode:
            self._entries(node, path, end)

    def _entries(self, node: MappingNode, path: Path, end: int) -> None:
        tree, pairs = self._tree, node.value
        parent = Mapping(tree, node)
        last = len(pairs) - 1
        for index, (key, value) in enumerate(pairs):
            stop = pairs[index + 1][0].start_mark.index if index < last else end
            if self._marks is None or self._is_marked(key.start_mark.index, stop):
                self.visit(value, (*path, typed_key(key)), Entry(tree, parent, index), stop)

    def _items(self, node: SequenceNode, path: Path, end: int) -> None:
        tree, values = self._tree, node.value
        parent = Sequence(tree, node)
        starts = (
            [item.start_mark.index for item in values] if node.flow_style else dash_offsets(tree.text, node)
        )
        for index, (value, start, stop) in enumerate(zip(values, starts, [*starts[1:], end], strict=True)):
            if self._marks is None or self._is_marked(start, stop):
                self.visit(value, (*path, index), Item(tree, parent, index, start), stop)

    def _is_marked(self, start: int, stop: int) -> bool:
        marks = self._marks or ()
        return bisect_left(marks, start) != bisect_left(marks, stop)
