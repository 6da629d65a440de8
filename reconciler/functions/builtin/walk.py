"""Every field of a document with its path and its comment, and how to write text into one."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from reconciler.functions.resource import Resource
from reconciler.krm.yaml import (
    AnyNode,
    Entry,
    Mapping,
    Path,
    Raw,
    Scalar,
    Sequence,
    SetValue,
    Slot,
    Style,
    Tree,
    YamlError,
    emit,
)

_BLOCKS: Final = (Style.LITERAL, Style.FOLDED)


class Field(NamedTuple):
    """A scalar or a sequence: where it stands, the node, and the comment at the end of its line."""

    path: Path
    node: Scalar | Sequence
    comment: str

    @property
    def name(self) -> str:
        """The path as functions write it: `spec.containers[0].image`."""
        return path_text(self.path)


def fields_of(resource: Resource, mark: str = "") -> Iterator[Field]:
    """Yield every scalar and sequence of a resource in the order of its text; aliases are left alone.

    With `mark`, those alone whose extent in the text has it somewhere: the rest is not looked at.
    """
    tree = Tree.parse(resource.text)
    if tree.root is not None:
        marks = [found.start() for found in re.finditer(re.escape(mark), tree.text)] if mark else None
        yield from _fields(tree.root, (), None, _Extent(0, len(tree.text)), marks)


class _Extent(NamedTuple):
    start: int
    end: int


def _fields(
    node: AnyNode, path: Path, slot: Slot | None, extent: _Extent, marks: list[int] | None
) -> Iterator[Field]:
    if marks is not None and bisect_left(marks, extent.start) == bisect_left(marks, extent.end):
        return
    if not isinstance(node, Mapping):
        if isinstance(node, (Scalar, Sequence)):
            yield Field(path, node, slot.comments.line if slot is not None else "")
        if not isinstance(node, Sequence):
            return
    slots: tuple[Slot, ...] = node.entries if isinstance(node, Mapping) else node.items
    for number, inner in enumerate(slots):
        end = slots[number + 1].start if number + 1 < len(slots) else extent.end
        step = inner.name if isinstance(inner, Entry) else inner.index
        yield from _fields(inner.value, (*path, step), inner, _Extent(inner.start, end), marks)


def path_text(path: Path) -> str:
    """Return a path as functions write it."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def put_text(field: Field, text: str) -> SetValue:
    """Return the edit that puts text into a scalar: quotes stay, a plain one takes the type of the text."""
    node = field.node
    if isinstance(node, Scalar) and node.style is not Style.PLAIN:
        return SetValue(field.path, text)
    return SetValue(field.path, plain(text))


def plain(text: str) -> Any:
    """Return what to write for text that stands without quotes; with quotes only where it must have them."""
    if text and "\n" not in text:
        try:
            root = Tree.parse(f"- {text}").root
        except YamlError:
            return text
        item = root.items[0] if isinstance(root, Sequence) and len(root.items) == 1 else None
        node = item.value if item is not None else None
        if isinstance(node, Scalar) and node.style is Style.PLAIN and node.content == text:
            value = node.value
            return value if emit(value) == text else Raw(text)
    return text
