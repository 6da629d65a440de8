"""Positions of fields, found by composing a document again so that loading keeps no nodes."""

from dataclasses import dataclass
from typing import Any, cast

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.compose import UNTAGGED, AliasNode, RawNode, compose, error_at
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.inside import find_inside
from reconciler.krm.yaml.limits import Aliases, YamlLimits
from reconciler.krm.yaml.scalars import NUMBER_STARTS, WORDS, ScalarError, key_text, type_plain, type_tagged

Path = tuple[str | int, ...]
"""A field path: keys of mappings and indexes of sequences, from the document's root."""

_ANYTHING = YamlLimits(
    max_bytes=2**62, max_documents=2**62, max_nodes=2**62, max_depth=500, aliases=Aliases.BOUNDED
)


@dataclass(frozen=True, slots=True)
class Source:
    """One document's text within its file.

    `index` is the document's place among those composed from the text between `start` and
    `end`: not 0 only where a directive ties the documents of a file together.
    """

    text: str | bytes
    start: int
    end: int
    line: int
    index: int = 0

    def mark(self, path: Path, *, of_key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of the value or key at `path`, or of the nearest ancestor."""
        _, root = self._compose()
        if root is None:
            return self.line, 1
        place = _find(root, path, of_key=of_key).start_mark
        return place.line + self.line, place.column + 1

    def mark_inside(self, path: Path, offset: int) -> tuple[int, int]:
        """Return line and column of one character of the text at `path`, as `mark` where it is no text."""
        text, root = self._compose()
        node = None if root is None else _find(root, path, of_key=False)
        if type(node) is not ScalarNode:
            return self.mark(path)
        start = node.start_mark.index
        written = text[start : node.end_mark.index]
        before = text[: start + find_inside(written, node.style, node.value, offset)]
        return before.count("\n") + self.line, len(before) - before.rfind("\n")

    def _compose(self) -> tuple[str, RawNode | None]:
        part = self.text[self.start : self.end]
        text = part if isinstance(part, str) else part.decode(errors="replace")
        try:
            roots = list(compose(text, _ANYTHING))
        except YamlError:
            return text, None
        return text, roots[self.index] if self.index < len(roots) else None


def part_source(text: str, root: RawNode) -> Source:
    """Return the source of the composed document `root`: its own lines."""
    mark = root.start_mark
    return Source(text, mark.index - mark.column, root.end_mark.index, mark.line + 1)


def whole_source(text: str, index: int) -> Source:
    """Return the source of a document, counted from 0, in a file with directives."""
    return Source(text, 0, len(text), 1, index)


def typed_key(node: RawNode | AliasNode) -> str:
    """Return the key that a key node becomes.

    Raises:
        YamlError: The key is a collection, null, or has no JSON form.
    """
    if isinstance(node, AliasNode):
        return typed_key(node.value)
    if not isinstance(node, ScalarNode):
        raise error_at(node.start_mark, "A key must be a scalar")
    if _is_text(node):
        return str(node.value)
    try:
        if node.tag == UNTAGGED:
            return key_text(type_plain(node.value))
        return key_text(type_tagged(node.tag, node.value)) if node.tag else str(node.value)
    except ScalarError as error:
        raise error_at(node.start_mark, str(error)) from error


def index_of(node: RawNode | AliasNode, step: str | int) -> int:
    """Return which entry of a mapping has the key `step`, or which item of a sequence it is; -1 for none."""
    if isinstance(node, MappingNode) and isinstance(step, str):
        for index, (key, _) in enumerate(node.value):
            if key.value == step and _is_key(key, step):
                return index
        return next((index for index, (key, _) in enumerate(node.value) if _is_key(key, step)), -1)
    if isinstance(node, SequenceNode) and isinstance(step, int) and 0 <= step < len(node.value):
        return step
    return -1


def _is_key(node: RawNode | AliasNode, name: str) -> bool:
    """Tell whether a key node becomes the key `name`."""
    return node.value == name if isinstance(node, ScalarNode) and _is_text(node) else typed_key(node) == name


def _is_text(node: ScalarNode) -> bool:
    """Tell at a glance that a scalar is a string: it is quoted, or starts like no number and is no word."""
    text: str = node.value
    return not node.tag or (node.tag == UNTAGGED and text not in WORDS and text[0] not in NUMBER_STARTS)


def _find(root: RawNode, path: Path, *, of_key: bool) -> RawNode:
    """Return the node at `path`, or the deepest one on the way to it."""
    node: Any = root
    for depth, step in enumerate(path, 1):
        index = index_of(node, step)
        if index < 0:
            return cast("RawNode", node)
        if isinstance(node, SequenceNode):
            node = node.value[index]
            continue
        key, value = node.value[index]
        if of_key and depth == len(path):
            return cast("RawNode", key)
        node = value
    return cast("RawNode", node)
