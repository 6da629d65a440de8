"""Assign comments to fields.

libyaml drops comments, so they are recovered from the text between nodes and assigned to fields
by the rules of go-yaml, which kpt's merge follows:

* a comment behind content on one line is the line comment of that field; a dash alone is no content;
* comment lines directly below a field with a blank line after them are its foot comment, and so
  are indented lines above a field further left;
* all other comment lines are the head comment of the next field;
* comments above the first field and a blank line, or at the end after a blank line, belong to the document.

Source: go-yaml v3 scannerc.go, yaml_parser_scan_comments, yaml_parser_fetch_next_token; decode.go, mapping.
Differs: a comment inside a flow collection stays part of that collection's text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.compose import ExactNode, content_end, dash_offsets


class Span(NamedTuple):
    """A stretch of a text, in characters: `text[start:end]`."""

    start: int
    end: int


class Comments(NamedTuple):
    """The comments of one field: text with `#`, lines joined by newlines without indentation; "" for none.

    Spans cover the text from the first `#` to the end of the last line.
    """

    head: str = ""
    line: str = ""
    foot: str = ""
    head_span: Span | None = None
    line_span: Span | None = None
    foot_span: Span | None = None


NO_COMMENTS: Final = Comments()


class CommentIndex(Struct):
    """All comments of a document: by the offset of the key or dash, and those of the document itself."""

    by_start: dict[int, Comments] = field(default_factory=dict)
    head: str = ""
    foot: str = ""


class _Slot(NamedTuple):
    """A key or item of block style: offset, column, end of its content, index of its parent."""

    start: int
    column: int
    end: int
    parent: int


class _Line(NamedTuple):
    start: int
    end: int
    column: int


_COMMENT: Final = re.compile(r"(?<!\S)#[^\r\n]*")


def index_comments(text: str, root: ExactNode | None) -> CommentIndex:
    """Return every comment of a document with its owner."""
    index = CommentIndex()
    if "#" not in text:
        return index
    slots = _SlotCollector(text)
    if root is not None:
        slots.visit(root, -1)
    starts = [slot.start for slot in slots.slots]
    own_lines: list[tuple[int, _Line]] = []
    for line in slots.comment_lines():
        previous = bisect_right(starts, line.start) - 1
        if not text[line.start - line.column : line.start].strip(" \t-"):
            own_lines.append((previous, line))
        elif previous >= 0:
            span = Span(line.start, line.end)
            _add_comment(index, starts[previous], "line", text[line.start : line.end], span)
    for previous, group in groupby(own_lines, key=itemgetter(0)):
        _Gap(text, slots.slots, previous).assign([line for _, line in group], index)
    return index


class _SlotCollector:
    """Collects the slots of a document in order, and the leaves inside which a `#` is no comment."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.slots: list[_Slot] = []
        self._leaves: list[Span] = []

    def visit(self, node: ExactNode, parent: int) -> None:
        """Collect the slots of `node`; `parent` is the index of its own slot, or -1."""
        if isinstance(node, MappingNode) and not node.flow_style:
            for key, value in node.value:
                self._leaf(key)
                self.visit(value, self._add(key.start_mark.index, value, parent))
        elif isinstance(node, SequenceNode) and not node.flow_style:
            for dash, item in zip(dash_offsets(self.text, node), node.value, strict=True):
                self.visit(item, self._add(dash, item, parent))
        else:
            self._leaf(node)

    def comment_lines(self) -> Iterator[_Line]:
        """Yield every comment in order, one line each."""
        starts = [leaf.start for leaf in self._leaves]
        position = 0
        while match := _COMMENT.search(self.text, position):
            start, position = match.span()
            leaf = bisect_right(starts, start) - 1
            if leaf >= 0 and start < self._leaves[leaf].end:
                position = self._leaves[leaf].end
                continue
            column = start - self.text.rfind("\n", 0, start) - 1
            yield _Line(start, start + len(match[0].rstrip()), column)

    def _add(self, start: int, value: ExactNode, parent: int) -> int:
        column = start - self.text.rfind("\n", 0, start) - 1
        self.slots.append(_Slot(start, column, max(start, content_end(self.text, value)), parent))
        return len(self.slots) - 1

    def _leaf(self, node: ExactNode) -> None:
        start = node.start_mark.index
        if isinstance(node, ScalarNode) and node.style in ("|", ">"):
            start = self.text.find("\n", start)  # the line of its header may have a comment
        end = content_end(self.text, node)
        if start >= 0 and self.text.find("#", start, end) >= 0:
            self._leaves.append(Span(start, end))


class _Gap:
    """The comment lines between the content of one field and the next field."""

    def __init__(self, text: str, slots: list[_Slot], previous: int) -> None:
        self._text = text
        self._slots = slots
        self._previous = previous
        self._next = slots[previous + 1] if previous + 1 < len(slots) else None

    def assign(self, lines: list[_Line], index: CommentIndex) -> None:
        """Assign the lines to the previous field, to the next field, or to the document."""
        paragraphs = list(self._paragraphs(lines))
        if self._previous >= 0:
            while paragraphs and self._is_foot(paragraphs[0], first=paragraphs[0][0] is lines[0]):
                self._add_foot(index, paragraphs.pop(0))
        if not paragraphs:
            return
        if self._next is None:
            index.foot = self._join(paragraphs)
            return
        own = len(paragraphs)
        if self._previous < 0:
            own = 0 if self._blank_between(paragraphs[-1][-1].end, self._next.start) else 1
            index.head = self._join(paragraphs[: len(paragraphs) - own])
        if own:
            head = paragraphs[-own:]
            span = Span(head[0][0].start, head[-1][-1].end)
            _add_comment(index, self._next.start, "head", self._join(head), span)

    def _paragraphs(self, lines: list[_Line]) -> Iterator[list[_Line]]:
        """Split at blank lines, and where the indentation drops below the column of the previous field."""
        edge = self._slots[self._previous].column if self._previous >= 0 else 0
        paragraph: list[_Line] = []
        for line in lines:
            if paragraph and (
                self._blank_between(paragraph[-1].end, line.start)
                or line.column < edge != paragraph[0].column != line.column
            ):
                yield paragraph
                paragraph = []
            paragraph.append(line)
        yield paragraph

    def _is_foot(self, paragraph: list[_Line], *, first: bool) -> bool:
        below = self._next
        before = self._slots[self._previous]
        touches = first and not self._blank_between(before.end, paragraph[0].start)
        if below is None:
            return touches
        if touches and self._blank_between(paragraph[-1].end, below.start):
            return True
        return below.column < before.column and paragraph[0].column > below.column

    def _add_foot(self, index: CommentIndex, paragraph: list[_Line]) -> None:
        """Assign a paragraph to the previous field, or to its ancestor in the column of the comment."""
        owner = self._slots[self._previous]
        while owner.column > paragraph[0].column and owner.parent >= 0:
            owner = self._slots[owner.parent]
        span = Span(paragraph[0].start, paragraph[-1].end)
        _add_comment(index, owner.start, "foot", self._join([paragraph]), span)

    def _blank_between(self, start: int, end: int) -> bool:
        return self._text.count("\n", start, end) > 1

    def _join(self, paragraphs: list[list[_Line]]) -> str:
        return "\n\n".join(
            "\n".join(self._text[line.start : line.end] for line in paragraph) for paragraph in paragraphs
        )


def _add_comment(index: CommentIndex, start: int, kind: str, text: str, span: Span) -> None:
    """Add a comment to a field; a second one of the same kind is joined to the first."""
    comments = index.by_start.get(start, NO_COMMENTS)
    old: str = getattr(comments, kind)
    old_span: Span | None = getattr(comments, f"{kind}_span")
    joined = f"{old}\n\n{text}" if old else text
    whole = Span(old_span.start, span.end) if old_span else span
    changed: dict[str, Any] = {kind: joined, f"{kind}_span": whole}
    index.by_start[start] = comments._replace(**changed)
