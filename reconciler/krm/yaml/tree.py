"""Parsed documents with the exact position, style and comments of every node.

Nodes are thin views of libyaml's nodes that compute everything on demand. Positions are character
offsets into `Tree.text`, which has no byte order mark.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, cast

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.comments import CommentIndex, CommentPosition, Comments, Span, index_comments
from reconciler.krm.yaml.compose import (
    UNTAGGED,
    ExactNode,
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
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlError, YamlLimits
from reconciler.krm.yaml.load import Path, construct, index_of, typed_key

_SCALAR_STYLES: Final = {"'": Style.SINGLE, '"': Style.DOUBLE, "|": Style.LITERAL, ">": Style.FOLDED}
_COLLECTIONS: Final = frozenset((MappingNode, SequenceNode))
_DEEPEST: Final = 10_000
_CACHED_TREES: Final = 64
_KEPT_LENGTH: Final = 8192
"""In characters: a tree takes many times the memory of its text."""
_LINE_END: Final = re.compile(r"(?:[ \t]+(#[^\r\n]*)|[ \t]*)(?=[\r\n]|\Z)")
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
    """A mapping or sequence."""

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
    """Return the indentation of the first nested mapping and the first list below a key, or the default."""
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
