"""Assign comments and blank lines to fields.

libyaml drops them, so they are recovered from the text between nodes. The owner of a comment is, by the
first rule that fits:

* behind content on one line: that field; a dash alone is no content;
* at the end of a collection, indented more than the key or dash that holds it: the collection;
* directly below a field, with a blank line before the next field of the same collection: that field;
* above the first field of the document and a blank line, or below the last one: the document;
* the next field.

Source: go-yaml v3 scannerc.go, yaml_parser_scan_comments, which kpt's merge follows.
Differs: go-yaml gives a comment at the end of a collection to the last field in it.
"""

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct, field
from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.compose import ExactNode, content_end, dash_offsets, is_block, is_zero_width


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


class CommentPosition(Enum):
    """CommentPosition of a comment relative to its owner."""

    ABOVE = "above"
    BEHIND = "behind"
    BELOW = "below"
    TAIL = "tail"
    """At the end of the collection that a field holds, or of the document."""
    INSIDE = "inside"
    """Between a key and its value, or in a flow collection: a part of that text."""


class Line(NamedTuple):
    """A comment, or a blank line with an empty text; `start` is the offset of the text."""

    start: int
    column: int
    text: str


Lines = tuple[Line, ...]
DOCUMENT: Final = -1
Owner = tuple[int, CommentPosition]
"""The offset of the key or dash of a field, or `DOCUMENT`, and the position of the comment."""


class Gap(NamedTuple):
    """The text between two consecutive fields, and the owners of its lines in their order.

    It is made of whole lines, except behind a dash and at the end of a text without a final line break.
    Behind a block scalar no line may be indented more than `limit`, and if the scalar `keeps` its final
    blank lines the gap may not start with one: the scalar would go on there.
    """

    start: int
    end: int
    owners: tuple[Owner, ...]
    limit: int
    keeps: bool


class CommentIndex(Struct):
    """All comments and blank lines of a document by owner, and the gaps between its fields."""

    lines: dict[Owner, Lines] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        """Yield the text of each comment, line by line."""
        for lines in self.lines.values():
            yield from (line.text for line in lines if line.text)

    def of(self, start: int) -> Comments:
        """Return the comments of a field, by the offset of its key or dash."""
        head, head_span = self.joined((start, CommentPosition.ABOVE))
        line, line_span = self.joined((start, CommentPosition.BEHIND))
        foot, foot_span = self.joined((start, CommentPosition.BELOW))
        return Comments(head, line, foot, head_span, line_span, foot_span)

    def joined(self, owner: Owner) -> tuple[str, Span | None]:
        """Return the comments of an owner as one text, and its span."""
        lines = self.lines.get(owner, ())
        places = [index for index, line in enumerate(lines) if line.text]
        if not places:
            return "", None
        lines = lines[places[0] : places[-1] + 1]
        span = Span(lines[0].start, lines[-1].start + len(lines[-1].text))
        return "\n".join(line.text for line in lines), span


_COMMENT: Final = re.compile(r"(?<!\S)#[^\r\n]*")
_SPACE: Final = " \t\r"
_NO_LIMIT: Final = 2**31
_ENDING: Final = (CommentPosition.BELOW, CommentPosition.TAIL)


class _Slot(NamedTuple):
    """A key or item of block style: its offset and column, and the number of the slot that holds it."""

    start: int
    column: int
    parent: int


def lines_of(text: str) -> Lines:
    """Return the lines of a text that has only comments, blank lines and markers."""
    return tuple(_Indexer(text).lines(0, len(text)))


def index_comments(text: str, root: ExactNode | None) -> CommentIndex:
    """Return every comment of a document with its owner."""
    indexer = _Indexer(text)
    if root is not None:
        indexer.visit(root, DOCUMENT)
    indexer.assign_end()
    return indexer.index


class _Indexer:
    """Visits the fields of a document in the order of its text, and assigns the lines before each of them."""

    def __init__(self, text: str) -> None:
        self.index = CommentIndex()
        self._text = text
        self._slots: list[_Slot] = []
        self._end = -1
        """The offset behind the content before the next field, with the comment on its line."""
        self._limit, self._keeps = _NO_LIMIT, False

    def visit(self, node: ExactNode, parent: int) -> None:
        """Assign the comments in a node; `parent` is the number of the slot that holds it."""
        if isinstance(node, MappingNode) and not node.flow_style:
            for key, value in node.value:
                self._visit_slot(key.start_mark.index, key.end_mark.index, value, parent)
        elif isinstance(node, SequenceNode) and not node.flow_style:
            for dash, item in zip(dash_offsets(self._text, node), node.value, strict=True):
                self._visit_slot(dash, dash + 1, item, parent)
        elif parent == DOCUMENT:
            start = node.start_mark.index
            self._assign(start, [], ((DOCUMENT, CommentPosition.ABOVE),))
            self._visit_leaf(DOCUMENT, start, node)

    def assign_end(self) -> None:
        """Assign the lines below the last field."""
        ended: list[tuple[_Slot, _Slot]] = []
        owners: tuple[Owner, ...] = ((DOCUMENT, CommentPosition.TAIL),)
        if self._slots:
            ended, last = self._ended(DOCUMENT)
            owners = ((last.start, CommentPosition.BELOW), *owners)
        self._assign(len(self._text), ended, owners)

    def _visit_slot(self, start: int, key_end: int, value: ExactNode, parent: int) -> None:
        number = len(self._slots)
        ended: list[tuple[_Slot, _Slot]] = []
        owners: tuple[Owner, ...] = ((start, CommentPosition.ABOVE),)
        if not number:
            owners = ((DOCUMENT, CommentPosition.ABOVE), *owners)
        elif parent != number - 1:
            ended, previous = self._ended(parent)
            owners = ((previous.start, CommentPosition.BELOW), *owners)
        self._assign(start, ended, owners)
        self._slots.append(_Slot(start, start - self._line_start(start), parent))
        if not is_block(value):
            self._visit_leaf(start, key_end, value)
            return
        self._end, self._limit, self._keeps = key_end, _NO_LIMIT, False
        if self._text[start:key_end] != "-":  # what is behind a dash alone is above the first field
            self._end = self._line_end(key_end)
            self._add((start, CommentPosition.BEHIND), self._comments(key_end, self._end))
        self.visit(value, number)

    def _visit_leaf(self, owner: int, key_end: int, node: ExactNode) -> None:
        """Assign the comments beside and in a scalar, an alias or a flow collection."""
        start = node.start_mark.index
        end = key_end if is_zero_width(node) else content_end(self._text, node)
        self._end = self._line_end(end)
        self._limit, self._keeps = _NO_LIMIT, False
        is_block_scalar = isinstance(node, ScalarNode) and node.style in ("|", ">")
        if is_block_scalar:
            self._limit = self._slots[-1].column if self._slots else 0
            self._keeps = "+" in self._text[start : start + 3]
        if self._text.find("#", key_end, self._end) < 0:
            return
        inside, behind = self._comments(key_end, start), self._comments(end, self._end)
        if is_block_scalar:
            behind = self._comments(start, min(self._line_end(start), self._end))
        elif isinstance(node, (MappingNode, SequenceNode)):
            inside += self._comments_of_flow(node)
        if inside and not behind and inside[0].start < self._line_end(key_end):
            behind, inside = inside[:1], inside[1:]  # the value is on a line below its key
        self._add((owner, CommentPosition.BEHIND), behind)
        self._add((owner, CommentPosition.INSIDE), inside)

    def _comments_of_flow(self, node: ExactNode) -> Lines:
        start, end = node.start_mark.index, node.end_mark.index
        comments = self._comments(start, end)
        pending = [node] if comments else []
        while pending:
            inner = pending.pop()
            if isinstance(inner, ScalarNode):  # a quoted `#` is no comment
                span = inner.start_mark.index, inner.end_mark.index
                comments = tuple(line for line in comments if not span[0] <= line.start < span[1])
            elif isinstance(inner, MappingNode):
                pending += (part for pair in inner.value for part in pair)
            elif isinstance(inner, SequenceNode):
                pending += inner.value
        return comments

    def _ended(self, parent: int) -> tuple[list[tuple[_Slot, _Slot]], _Slot]:
        """Return the last slot of `parent`, and slot and holder of each collection in it that ends."""
        slot, ended = self._slots[-1], []
        while slot.parent != parent:
            holder = self._slots[slot.parent]
            ended.append((slot, holder))
            slot = holder
        return ended, slot

    def _assign(  # noqa: C901 - one gap from its first line to its last
        self, start: int, ended: list[tuple[_Slot, _Slot]], owners: tuple[Owner, ...]
    ) -> None:
        """Assign the lines before the field at `start`, or at the end of the text, to their owners in order.

        A last field has nothing below it: that is at the end of the collection, where it may come to be.
        """
        text, is_end = self._text, start == len(self._text)
        first, last = 0, start if is_end else self._line_start(start)
        if self._end >= 0:
            first = self._line_end(self._end) + 1
            dash_comment = text.find("#", self._end, first)
            if dash_comment >= 0:
                first, last = dash_comment, start
        inner = [(line.start, kind) for pair in ended for line, kind in zip(pair, _ENDING, strict=True)]
        lines: list[Line] = []
        if first >= last:  # no line; behind a dash not even a place for one
            first = last = first if first == last else start
        else:
            lines = self.lines(first, last)
        # Markers and directives of the document, and anchors on lines of their own, are no part of a gap.
        others = [number for number, line in enumerate(lines) if line.text and line.text[0] != "#"]
        if others and is_end:
            last = self._line_start(lines[others[0]].start)
            lines = lines[: others[0]]
        elif others:
            first = self._line_end(lines[others[-1]].start) + 1
            lines = lines[others[-1] + 1 :]
        self.index.gaps.append(Gap(first, last, (*inner, *owners), self._limit, self._keeps))
        if not lines:
            return
        for _, holder in ended:
            count = 0
            for number, line in enumerate(lines, 1):
                if line.text and line.column <= holder.column:
                    break
                count = number if line.text else count
            self._add((holder.start, CommentPosition.TAIL), lines[:count])
            lines = lines[count:]
        blank = [number for number, line in enumerate(lines) if not line.text]
        count = 0
        if blank and len(owners) > 1 and not is_end:
            count = blank[0] if owners[0][1] is CommentPosition.BELOW else blank[-1] + 1
        self._add(owners[0], lines[:count])
        self._add(owners[-1], lines[count:])

    def lines(self, start: int, end: int) -> list[Line]:
        """Return the lines of a part of the text; what ends behind a dash has no last line."""
        lines: list[Line] = []
        while start < end:
            line_end = min(self._line_end(start), end)
            content = self._text[start:line_end].lstrip(_SPACE)
            at = line_end - len(content)
            lines.append(Line(at, at - self._line_start(at), content.rstrip(_SPACE)))
            start = line_end + 1
        return lines if self._text[end - 1 : end] == "\n" or (lines and lines[-1].text) else lines[:-1]

    def _comments(self, start: int, end: int) -> Lines:
        """Return the comments of a text that has nothing else but space."""
        if self._text.find("#", start, end) < 0:
            return ()
        comments = _COMMENT.finditer(self._text, start, end)
        return tuple(Line(match.start(), 0, match[0].rstrip(_SPACE)) for match in comments)

    def _add(self, owner: Owner, lines: Iterable[Line]) -> None:
        if lines := tuple(lines):
            self.index.lines[owner] = lines

    def _line_start(self, offset: int) -> int:
        return self._text.rfind("\n", 0, offset) + 1

    def _line_end(self, offset: int) -> int:
        end = self._text.find("\n", offset)
        return len(self._text) if end < 0 else end
