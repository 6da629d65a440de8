"""Parsed documents with the exact position, style and comments of every node."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import Struct
from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.base.lazy import regex
from reconciler.krm.yaml.compose import (
    PACKAGE_LIMITS,
    UNTAGGED,
    ExactNode,
    YamlError,
    YamlLimits,
    close_scalar,
    compose_exact,
    content_end,
    dash_offsets,
    error_at,
    is_block,
    is_zero_width,
    properties_end,
)
from reconciler.krm.yaml.emit import DEFAULT_INDENTATION, Indentation, Style
from reconciler.krm.yaml.load import Path, construct, index_of, typed_key


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

    lines: dict[Owner, Lines] = msgspec.field(default_factory=dict)
    gaps: list[Gap] = msgspec.field(default_factory=list)

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


_COMMENT: Final = regex(r"(?<!\S)#[^\r\n]*")
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
        scalars: list[tuple[int, int]] = []  # a quoted `#` is no comment
        pending = [node] if self._comments(start, end) else []
        while pending:
            inner = pending.pop()
            if isinstance(inner, ScalarNode):
                scalars.append((inner.start_mark.index, inner.end_mark.index))
            elif isinstance(inner, MappingNode):
                pending += (part for pair in inner.value for part in pair)
            elif isinstance(inner, SequenceNode):
                pending += inner.value
        comments: Lines = ()
        for first, last in (*sorted(scalars), (end, end)):
            comments += self._comments(start, first)
            start = last
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


_SCALAR_STYLES: Final = {"'": Style.SINGLE, '"': Style.DOUBLE, "|": Style.LITERAL, ">": Style.FOLDED}
_COLLECTIONS: Final = frozenset((MappingNode, SequenceNode))
_DEEPEST: Final = 10_000
_CACHED_TREES: Final = 64
_KEPT_LENGTH: Final = 8192
"""In characters: a tree takes many times the memory of its text."""
_LINE_END: Final = regex(r"(?:[ \t]+(#[^\r\n]*)|[ \t]*)(?=[\r\n]|\Z)")
"""The text behind the last value of a line: nothing, or a comment."""


@dataclass(slots=True, eq=False)  # not frozen: made in hot loops, and assigned nowhere
class _Node:
    """A view of one node of libyaml, with its exact position in the text."""

    tree: "Tree" = field(repr=False)
    raw: Any = field(repr=False)

    @property
    def span(self) -> Span:
        """The extent of the node, from its anchor or tag to the last character of its content.

        Empty for a value that the text leaves out. Trailing blank lines do not belong to it.
        """
        return Span(self.raw.start_mark.index, content_end(self.tree.text, self.raw))

    @property
    def is_omitted(self) -> bool:
        """Whether the text leaves the value out, which makes it null."""
        return is_zero_width(self.raw)

    @property
    def text(self) -> str:
        """The text of the node, with anchor and tag."""
        return self.tree.text[slice(*self.span)]

    @property
    def content_start(self) -> int:
        """The offset where the node starts behind its anchor and tag."""
        return properties_end(self.tree.text, self.raw)

    @property
    def properties(self) -> str:
        """The node's anchor and tag as written, such as `&a !!str`; usually empty."""
        return self.tree.text[self.raw.start_mark.index : self.content_start].strip()

    @property
    def value(self) -> Any:
        """The node's value, typed as `load_documents` types it.

        Raises:
            YamlError: A duplicate key or an impossible value.
        """
        return construct(self.raw, _DEEPEST)


class Scalar(_Node):
    """A scalar; `content` is its text after unquoting and unfolding, before typing."""

    __slots__ = ()

    @property
    def content(self) -> str:
        """The text of the scalar after unquoting and unfolding, before typing."""
        return cast("str", self.raw.value)

    @property
    def style(self) -> Style:
        """The style of the scalar: plain, quoted, literal or folded."""
        return _SCALAR_STYLES.get(self.raw.style, Style.PLAIN)

    @property
    def tag(self) -> str:
        """The explicit tag in full, such as `tag:yaml.org,2002:int`, or ""."""
        return "" if self.raw.tag == UNTAGGED else cast("str", self.raw.tag)


class Alias(_Node):
    """An alias; `value` is that of the anchored node."""

    __slots__ = ()

    @property
    def anchor(self) -> str:
        """The name of the anchor."""
        return cast("str", self.raw.anchor)


class _Collection(_Node):
    __slots__ = ()

    @property
    def style(self) -> Style:
        """Block or flow."""
        return Style.FLOW if self.raw.flow_style else Style.BLOCK


class Mapping(_Collection):
    """A mapping in block or flow style."""

    __slots__ = ()

    @property
    def entries(self) -> tuple["Entry", ...]:
        """The entries in the order of the text."""
        return tuple(Entry(self.tree, self, index) for index in range(len(self.raw.value)))

    @property
    def last(self) -> "Entry | None":
        """The last entry, for a mapping in block style."""
        if self.raw.flow_style or not self.raw.value:
            return None
        return Entry(self.tree, self, len(self.raw.value) - 1)

    def find(self, name: str) -> "Entry | None":
        """Return the entry with this typed key."""
        index = index_of(self.raw, name)
        return None if index < 0 else Entry(self.tree, self, index)


class Sequence(_Collection):
    """A sequence in block or flow style."""

    __slots__ = ()

    @property
    def items(self) -> tuple["Item", ...]:
        """The items in the order of the text."""
        if self.raw.flow_style:
            return tuple(
                Item(self.tree, self, index, item.start_mark.index)
                for index, item in enumerate(self.raw.value)
            )
        dashes = dash_offsets(self.tree.text, self.raw)
        return tuple(Item(self.tree, self, index, dash) for index, dash in enumerate(dashes))

    @property
    def last(self) -> "Item | None":
        """The last item, for a sequence in block style."""
        return None if self.raw.flow_style or not self.raw.value else self.items[-1]


AnyNode = Scalar | Alias | Mapping | Sequence


@dataclass(slots=True, eq=False)  # not frozen: made in hot loops, and assigned nowhere
class Entry:
    """One key of a mapping with its value and its comments."""

    tree: "Tree" = field(repr=False)
    parent: Mapping = field(repr=False)
    index: int

    @property
    def name(self) -> str:
        """The typed key, as in the value of the mapping."""
        return typed_key(self.parent.raw.value[self.index][0])

    @property
    def key(self) -> AnyNode:
        """The key as a node."""
        return self.tree.view(self.parent.raw.value[self.index][0])

    @property
    def value(self) -> AnyNode:
        """The value as a node."""
        return self.tree.view(self.parent.raw.value[self.index][1])

    @property
    def start(self) -> int:
        """The offset where the key starts."""
        return int(self.parent.raw.value[self.index][0].start_mark.index)

    @property
    def comments(self) -> Comments:
        """The comments that belong to this key."""
        return self.tree.comments.of(self.start)


@dataclass(slots=True, eq=False)  # not frozen: made in hot loops, and assigned nowhere
class Item:
    """One item of a sequence with its comments; `start` is its dash, or in flow style the item itself."""

    tree: "Tree" = field(repr=False)
    parent: Sequence = field(repr=False)
    index: int
    start: int

    @property
    def value(self) -> AnyNode:
        """The item as a node."""
        return self.tree.view(self.parent.raw.value[self.index])

    @property
    def comments(self) -> Comments:
        """The comments that belong to this item."""
        return self.tree.comments.of(self.start)


Slot = Entry | Item
"""An entry of a mapping or an item of a sequence: it holds a value and has comments."""


@dataclass(frozen=True, eq=False)
class Tree:
    """One document as nodes. `text` is the document's own text, markers and directives included."""

    text: str
    raw: ExactNode | None = field(repr=False)

    @classmethod
    def parse(cls, text: str, limits: YamlLimits = PACKAGE_LIMITS) -> "Tree":
        """Parse the text of one document; a byte order mark is dropped. Equal short texts share their tree.

        Raises:
            YamlError: The text is not YAML, goes over a limit, or has a second document.
        """
        text = text.removeprefix("\ufeff")
        return _shared_tree(text, limits) if len(text) <= _KEPT_LENGTH else cls._compose(text, limits)

    @classmethod
    def _compose(cls, text: str, limits: YamlLimits) -> "Tree":
        roots = list(compose_exact(text, limits))
        if len(roots) > 1:
            raise error_at(roots[1].start_mark, "A document ends without a --- line after it")
        return cls(text, roots[0] if roots else None)

    def check(self) -> None:
        """Check that the document has a value; composing alone does not detect duplicate keys.

        Raises:
            YamlError: A duplicate key or an impossible value.
        """
        _ = self._is_valid

    @cached_property
    def _is_valid(self) -> bool:
        _ = self.value
        return True

    @property
    def root(self) -> AnyNode | None:
        """The root node; None for a text without content."""
        return None if self.raw is None else self.view(self.raw)

    @property
    def value(self) -> Any:
        """The document's value, typed as `load_documents` types it.

        Raises:
            YamlError: A duplicate key or an impossible value.
        """
        return None if self.raw is None else construct(self.raw, _DEEPEST)

    @cached_property
    def comments(self) -> CommentIndex:
        """Every comment of the document by its owner, and those of the document itself."""
        return index_comments(self.text, self.raw)

    @cached_property
    def indentation(self) -> Indentation:
        """The indentation of the document, which added fields follow."""
        return _detect_indentation(self.raw)

    def closed(self, start: int = 0, end: int | None = None) -> str:
        """Return `text[start:end]` as it reads before other text: its last block scalar may need a `-`."""
        end = len(self.text) if end is None else end
        scalar = close_scalar(self.text, self.raw) if end == len(self.text) else None
        if scalar is None or scalar[0] < start:
            return self.text[start:end]
        at, old = scalar
        return f"{self.text[start:at]}-{self.text[at + len(old) : end]}"

    def slot(self, path: Path) -> Slot | None:
        """Return the entry or item at `path`, or None; aliases are not followed."""
        holder: Any = None
        index = -1
        node: Any = self.raw
        for step in path:
            holder, index = node, index_of(node, step)
            if index < 0:
                return None
            node = node.value[index][1] if type(node) is MappingNode else node.value[index]
        if holder is None:
            return None
        parent = self.view(holder)
        if isinstance(parent, Sequence):
            return parent.items[index]
        return Entry(self, cast("Mapping", parent), index)

    def find(self, path: Path) -> AnyNode | None:
        """Return the node at `path`; aliases are not followed."""
        if not path:
            return self.root
        slot = self.slot(path)
        return slot.value if slot else None

    def mark(self, path: Path = ()) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path`, or of its nearest existing ancestor."""
        for length in range(len(path), -1, -1):
            node = self.find(path[:length])
            if node is not None:
                return node.raw.start_mark.line + 1, node.raw.start_mark.column + 1
        return 1, 1

    def extent(self, slot: Slot) -> Span:
        """Return the span of a block entry or item with its comments, without the final line break."""
        comments = slot.comments
        ends = (span.end for span in (comments.line_span, comments.foot_span) if span)
        end = max(self.key_end(slot), self.value_end(slot), *ends)
        return Span(comments.head_span.start if comments.head_span else slot.start, end)

    def value_end(self, slot: Slot | None) -> int:
        """Return the offset where the value of a slot, or of the document, ends with the comments in it."""
        node = self.root if slot is None else slot.value
        if node is None:
            return len(self.text)
        inner = node.last if isinstance(node, (Mapping, Sequence)) else None
        if inner is None:
            return node.span.end
        tail = self.comments.joined((slot.start, CommentPosition.TAIL))[1] if slot is not None else None
        return tail.end if tail else max(node.span.end, self.extent(inner).end)

    def slot_end(self, slot: Slot) -> int:
        """Return the offset where an entry or item ends, without comments."""
        return self.key_end(slot) if slot.value.is_omitted else slot.value.span.end

    def key_end(self, slot: Slot) -> int:
        """Return the offset behind the `:` of an entry (behind its key, if it has none) or a dash."""
        if isinstance(slot, Item):
            return slot.start + (slot.parent.style is Style.BLOCK)
        end = slot.key.span.end
        colon = self.text.find(":", end)
        return colon + 1 if colon >= 0 and not self.text[end:colon].strip() else end

    def column(self, offset: int) -> int:
        """Return the column, from 0, of an offset."""
        return offset - self.text.rfind("\n", 0, offset) - 1

    def view(self, node: ExactNode) -> AnyNode:
        """Return the view of a raw node."""
        if isinstance(node, ScalarNode):
            return Scalar(self, node)
        if isinstance(node, MappingNode):
            return Mapping(self, node)
        return Sequence(self, node) if isinstance(node, SequenceNode) else Alias(self, node)


def end_line(text: str, line_break: str = "\n") -> str:
    """Return the text of a document, of YAML or not, as it reads before other text too."""
    if not text or text.endswith("\n"):
        return text
    try:
        return Tree.parse(text).closed() + line_break
    except YamlError:
        return text + line_break


@lru_cache(maxsize=_CACHED_TREES)
def _shared_tree(text: str, limits: YamlLimits) -> Tree:
    """Return the tree of a text; the steps of rendering read the same few documents in turn."""
    return Tree._compose(text, limits)  # noqa: SLF001 - of this module


def _detect_indentation(root: ExactNode | None) -> Indentation:
    indent = 0
    compact: bool | None = None
    pending: list[ExactNode] = [] if root is None else [root]
    while pending and not (indent and compact is not None):
        node = pending.pop()
        if isinstance(node, SequenceNode):
            pending.extend(reversed(node.value))
            continue
        if not isinstance(node, MappingNode):
            continue
        children = [value for _, value in node.value if type(value) in _COLLECTIONS and not value.flow_style]
        for child in children:
            width = child.start_mark.column - node.start_mark.column
            if isinstance(child, SequenceNode):
                compact = width == 0 if compact is None else compact
            elif width > 0:
                indent = indent or width
        pending.extend(reversed(children))
    return Indentation(
        indent or DEFAULT_INDENTATION.width, DEFAULT_INDENTATION.compact_lists if compact is None else compact
    )


class Field(NamedTuple):
    """A scalar or a sequence: its path, its node, and the slot that holds it."""

    path: Path
    node: Scalar | Sequence
    slot: Slot | None

    @property
    def name(self) -> str:
        """The path in the notation of functions: `spec.containers[0].image`."""
        return path_text(self.path)

    @property
    def comment(self) -> str:
        """The comment at the end of the line."""
        return line_comment(self.slot) if self.slot is not None else ""


def fields_of(tree: Tree, mark: str = "") -> list[Field]:
    """Return every scalar and sequence of a document in the order of its text; aliases are skipped.

    With `mark`, only fields with an extent that contains this text; the rest is not visited.
    """
    marks = [match.start() for match in re.finditer(re.escape(mark), tree.text)] if mark else None
    collector = _FieldCollector(tree, marks)
    collector.visit(tree.raw, (), None, len(tree.text))
    return collector.fields


def line_comment(slot: Slot) -> str:
    """Return the comment at the end of a slot's line: `slot.comments.line`, without indexing all comments.

    Indexing the comments of a document takes longer than all functions that read one of them.
    """
    tree, value = slot.tree, slot.value.raw
    if "#" not in tree.text or slot.parent.raw.flow_style:
        return ""
    match = None
    start, end = value.start_mark, value.end_mark
    if is_block(value):
        match = _LINE_END.match(tree.text, tree.key_end(slot))
    elif start.line == end.line and start.index != end.index and not _is_block_scalar(value):
        match = None if "\n" in tree.text[slot.start : start.index] else _LINE_END.match(tree.text, end.index)
    if match is None or (match[1] and is_block(value) and isinstance(slot, Item)):
        return slot.comments.line
    return (match[1] or "").rstrip()


def _is_block_scalar(node: Any) -> bool:
    return type(node) is ScalarNode and node.style in ("|", ">")


def path_text(path: Path) -> str:
    """Return a path in the notation of functions: `spec.containers[0].image`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class _FieldCollector:
    """Visits the nodes of libyaml, and makes views of scalars and sequences only."""

    def __init__(self, tree: Tree, marks: list[int] | None) -> None:
        self.fields: list[Field] = []
        self._tree = tree
        self._marks = marks

    def visit(self, node: Any, path: Path, slot: Slot | None, end: int) -> None:
        """Collect the fields of a node and of its children; `end` is the offset of the next node."""
        kind = type(node)
        if kind is ScalarNode:
            self.fields.append(Field(path, Scalar(self._tree, node), slot))
        elif kind is SequenceNode:
            self.fields.append(Field(path, Sequence(self._tree, node), slot))
            self._items(node, path, end)
        elif kind is MappingNode:
            tree, pairs = self._tree, node.value
            parent = Mapping(tree, node)
            last = len(pairs) - 1
            for index, (key, value) in enumerate(pairs):
                stop = pairs[index + 1][0].start_mark.index if index < last else end
                if self._marks is None or self._is_marked(key.start_mark.index, stop):
                    self.visit(value, (*path, typed_key(key)), Entry(tree, parent, index), stop)

    def _items(self, node: SequenceNode, path: Path, end: int) -> None:
        tree, values = self._tree, node.value
        if not values:
            return
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
