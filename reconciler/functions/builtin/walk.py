"""Every field of a document with its path and its comment, and how to write text into one."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from reconciler.functions.resource import Resource
from reconciler.krm.yaml import (
    AnyNode,
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


def fields_of(resource: Resource) -> Iterator[Field]:
    """Yield every scalar and sequence of a resource in the order of its text; aliases are left alone."""
    tree = Tree.parse(resource.text)
    if tree.root is not None:
        yield from _fields(tree.root, (), None)


def _fields(node: AnyNode, path: Path, slot: Slot | None) -> Iterator[Field]:
    if isinstance(node, Mapping):
        for entry in node.entries:
            yield from _fields(entry.value, (*path, entry.name), entry)
    elif isinstance(node, Sequence):
        yield Field(path, node, slot.comments.line if slot is not None else "")
        for item in node.items:
            yield from _fields(item.value, (*path, item.index), item)
    elif isinstance(node, Scalar):
        yield Field(path, node, slot.comments.line if slot is not None else "")


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
            return Raw(text)
    return text
