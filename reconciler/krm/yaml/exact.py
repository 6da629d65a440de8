"""Composed nodes with exact positions, also of aliases and of the end of their content.

libyaml's composer hands out an anchored node again where its alias stands, so a document with
anchors is composed here, from events; all others by the composer, which is three times faster.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml import MappingNode, ScalarNode, SequenceNode
from yaml._yaml import CParser

from reconciler.krm.yaml.compose import (
    UNTAGGED,
    AliasNode,
    RawNode,
    compose,
    error_at,
    may_have_anchor,
    too_deep,
    translated,
)
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.limits import YamlLimits

ExactNode = RawNode | AliasNode


def compose_exact(text: str, limits: YamlLimits) -> Iterator[ExactNode]:
    """Yield the root of every document that has one, with aliases as `AliasNode`.

    Raises:
        YamlError: The text is not YAML, or goes over a limit.
    """
    roots: Iterator[ExactNode] = compose(text, limits)
    if not may_have_anchor(text):
        return roots
    for _ in roots:
        """Composing checks every limit, so that what follows may be simple."""
    return _EventComposer(text, limits).roots()


class _EventComposer:
    """Composes nodes from events, so that aliases keep their own places."""

    def __init__(self, text: str, limits: YamlLimits) -> None:
        self._text = text
        self._parser = CParser(text)
        self._limits = limits
        self._anchors: dict[str, RawNode] = {}

    def roots(self) -> Iterator[ExactNode]:
        """Yield what `compose_exact` promises."""
        try:
            for event in iter(self._next, None):
                if isinstance(event, yaml.DocumentStartEvent):
                    self._anchors.clear()
                    root = self._node(self._next(), 0)
                    if not _is_nothing(root):
                        yield root
        except yaml.YAMLError as error:
            raise translated(error, self._text) from error

    def _next(self) -> Any:
        return self._parser.get_event()

    def _node(self, event: Any, depth: int) -> ExactNode:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if not isinstance(event, yaml.CollectionStartEvent):
            raise YamlError("The text ends within a document")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, depth)
        return self._mapping(event, depth)

    def _alias(self, event: Any) -> AliasNode:
        if event.anchor not in self._anchors:
            raise error_at(event.start_mark, f"Found undefined alias {event.anchor!r}")
        return AliasNode(event.anchor, self._anchors[event.anchor], event.start_mark, event.end_mark)

    def _scalar(self, event: Any) -> ScalarNode:
        plain = event.implicit[0] and not event.tag
        tag = UNTAGGED if plain else "" if event.tag in (None, "!") else event.tag
        node = ScalarNode(tag, event.value, event.start_mark, event.end_mark, event.style)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _sequence(self, event: Any, depth: int) -> SequenceNode:
        node = SequenceNode(event.tag or "", [], event.start_mark, event.end_mark, event.flow_style)
        self._open(node, event, depth)
        while not isinstance(part := self._next(), yaml.SequenceEndEvent):
            node.value.append(self._node(part, depth + 1))
        node.end_mark = part.end_mark
        return node

    def _mapping(self, event: Any, depth: int) -> MappingNode:
        node = MappingNode(event.tag or "", [], event.start_mark, event.end_mark, event.flow_style)
        self._open(node, event, depth)
        while not isinstance(part := self._next(), yaml.MappingEndEvent):
            key = self._node(part, depth + 1)
            node.value.append((key, self._node(self._next(), depth + 1)))
        node.end_mark = part.end_mark
        return node

    def _open(self, node: RawNode, event: Any, depth: int) -> None:
        if depth >= self._limits.max_depth:
            raise too_deep(node, self._limits.max_depth)
        if event.anchor:
            self._anchors[event.anchor] = node


def is_block(node: ExactNode) -> bool:
    """Tell whether a node is a collection in block style."""
    return isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style


def is_zero_width(node: ExactNode) -> bool:
    """Tell whether a node is a value that the text leaves out."""
    return node.start_mark.index == node.end_mark.index


def content_end(text: str, node: ExactNode) -> int:
    """Return where the last character of a node's content ends.

    A block collection of libyaml ends where the next token starts, and a block scalar after
    its trailing blank lines; this is the end of the last line that has content. The line break
    itself never belongs to it.
    """
    while isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style:
        last: Any = node.value[-1]
        node = last[1] if isinstance(node, MappingNode) else last
    end = node.end_mark.index
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        return _block_scalar_end(text, node.start_mark.index, end)
    return end


def _block_scalar_end(text: str, start: int, end: int) -> int:
    header = _BLOCK_HEADER.match(text, start)
    if header is not None and "+" in header[1]:
        return end - 1 if text[end - 1 : end] == "\n" else end
    return start + len(text[start:end].rstrip(" \t\r\n"))


_BLOCK_HEADER: Final = re.compile(r"(?:[!&]\S*\s+)*[|>]([-+0-9]*)")


def dash_offsets(text: str, sequence: SequenceNode) -> list[int]:
    """Return where the dash of each item of a block sequence stands."""
    offsets: list[int] = []
    position = _match_end(_PROPERTIES, text, sequence.start_mark.index)
    for item in sequence.value:
        dash = _match_end(_GAP, text, position)
        offsets.append(dash)
        position = max(dash + 1, content_end(text, item))
    return offsets


def properties_end(text: str, node: ExactNode) -> int:
    """Return where a node's own text starts behind its anchor and tag."""
    if text[node.start_mark.index : node.start_mark.index + 1] not in ("&", "!"):
        return int(node.start_mark.index)
    return min(_match_end(_PROPERTIES, text, node.start_mark.index), int(node.end_mark.index))


_SPACE: Final = r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*"
_GAP: Final = re.compile(_SPACE)
_PROPERTIES: Final = re.compile(rf"(?:[&!][^\s,\[\]{{}}]*(?=[\s,\]}}]|\Z){_SPACE})*")


def _match_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position


def _is_nothing(node: ExactNode) -> bool:
    return isinstance(node, ScalarNode) and node.tag == UNTAGGED and not node.value and is_zero_width(node)
