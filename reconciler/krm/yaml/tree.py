"""A document as nodes with exact places, styles and comments: what edit and merge look at.

Nodes are thin views over libyaml's: nothing is computed before it is asked for. Places are
character offsets into `Tree.text`, which has no byte order mark.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.krm.yaml.comments import NO_COMMENTS, CommentIndex, Comments, Span, index_comments
from reconciler.krm.yaml.compose import UNTAGGED, error_at
from reconciler.krm.yaml.emit import Layout
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.exact import (
    ExactNode,
    compose_exact,
    content_end,
    dash_offsets,
    is_zero_width,
    properties_end,
)
from reconciler.krm.yaml.layout import detect_layout
from reconciler.krm.yaml.limits import PACKAGE_LIMITS, YamlLimits
from reconciler.krm.yaml.load import construct
from reconciler.krm.yaml.marks import Path, index_of, typed_key
from reconciler.krm.yaml.quoting import Style
from reconciler.krm.yaml.raw import Raw, dedent

_SCALAR_STYLES: Final = {"'": Style.SINGLE, '"': Style.DOUBLE, "|": Style.LITERAL, ">": Style.FOLDED}
_DEEPEST: Final = 10_000


@dataclass(slots=True, eq=False)  # not frozen: made in hot loops, and assigned nowhere
class Node:
    """What every node has."""

    tree: "Tree" = field(repr=False)
    raw: Any = field(repr=False)

    @property
    def span(self) -> Span:
        """Where the node stands, from its anchor or tag to the last character of its content.

        Empty where the text leaves the value out; trailing blank lines do not belong to it.
        """
        return Span(self.raw.start_mark.index, content_end(self.tree.text, self.raw))

    @property
    def is_omitted(self) -> bool:
        """Whether the text leaves the value out, which makes it null."""
        return is_zero_width(self.raw)

    @property
    def text(self) -> str:
        """The node as it is written, with anchor and tag."""
        return self.tree.text[slice(*self.span)]

    @property
    def content_start(self) -> int:
        """Where the node starts behind its anchor and tag."""
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


class Scalar(Node):
    """A scalar; `content` is its text after unquoting and unfolding, before typing."""

    __slots__ = ()

    @property
    def content(self) -> str:
        """The text of the scalar after unquoting and unfolding, before typing."""
        return cast("str", self.raw.value)

    @property
    def style(self) -> Style:
        """How the scalar is written."""
        return _SCALAR_STYLES.get(self.raw.style, Style.PLAIN)

    @property
    def tag(self) -> str:
        """The explicit tag in full, such as `tag:yaml.org,2002:int`, or ""."""
        return "" if self.raw.tag == UNTAGGED else cast("str", self.raw.tag)


class Alias(Node):
    """An alias; `value` is that of the node it stands for."""

    __slots__ = ()

    @property
    def anchor(self) -> str:
        """The name of the anchor."""
        return cast("str", self.raw.anchor)


class Mapping(Node):
    """A mapping in block or flow style."""

    __slots__ = ()

    @property
    def style(self) -> Style:
        """Block or flow."""
        return Style.FLOW if self.raw.flow_style else Style.BLOCK

    @property
    def entries(self) -> tuple["Entry", ...]:
        """The entries in the order of the text."""
        return tuple(Entry(self.tree, self, index) for index in range(len(self.raw.value)))

    @property
    def last(self) -> "Entry | None":
        """The last entry, for a mapping in block style."""
        return (
            None
            if self.raw.flow_style or not self.raw.value
            else Entry(self.tree, self, len(self.raw.value) - 1)
        )

    def find(self, name: str) -> "Entry | None":
        """Return the entry with this typed key."""
        index = index_of(self.raw, name)
        return None if index < 0 else Entry(self.tree, self, index)


class Sequence(Node):
    """A sequence in block or flow style."""

    __slots__ = ()

    @property
    def style(self) -> Style:
        """Block or flow."""
        return Style.FLOW if self.raw.flow_style else Style.BLOCK

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
        """Where the key starts."""
        return int(self.parent.raw.value[self.index][0].start_mark.index)

    @property
    def comments(self) -> Comments:
        """The comments that belong to this key."""
        return self.tree.comments.by_start.get(self.start, NO_COMMENTS)


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
        return self.tree.comments.by_start.get(self.start, NO_COMMENTS)


Slot = Entry | Item
"""A place that holds a value."""


@dataclass(frozen=True, eq=False)
class Tree:
    """One document as nodes. `text` is the document's own text, markers and directives included."""

    text: str
    raw: ExactNode | None = field(repr=False)

    @classmethod
    def parse(cls, text: str, limits: YamlLimits = PACKAGE_LIMITS) -> "Tree":
        """Parse the text of one document; a byte order mark is dropped.

        Raises:
            YamlError: The text is not YAML, goes over a limit, or has a second document.
        """
        text = text.removeprefix("\ufeff")
        roots = list(compose_exact(text, limits))
        if len(roots) > 1:
            raise error_at(roots[1].start_mark, "A document ends without a --- line after it")
        return cls(text, roots[0] if roots else None)

    def check(self) -> None:
        """Make sure that the document has a value, which composing alone does not tell.

        Raises:
            YamlError: A duplicate key or an impossible value.
        """
        _ = self.value

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
        """Every comment by its owner, and the document's own."""
        return index_comments(self.text, self.raw)

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What was found out about the document, by question: it is asked again where texts are shared."""
        return {}

    @cached_property
    def layout(self) -> Layout:
        """How the document is laid out, so that what is added looks like what is there."""
        return detect_layout(self.raw)

    def slot(self, path: Path) -> Slot | None:
        """Return the entry or item at `path`, if there is one; aliases are not followed."""
        holder: Any = None
        index = -1
        node: Any = self.raw
        for step in path:
            holder, index = node, index_of(node, step)
            if index < 0:
                return None
            node = node.value[index][1] if isinstance(node, MappingNode) else node.value[index]
        if holder is None:
            return None
        parent = self.view(holder)
        return (
            parent.items[index]
            if isinstance(parent, Sequence)
            else Entry(self, cast("Mapping", parent), index)
        )

    def find(self, path: Path) -> AnyNode | None:
        """Return the node at `path`; aliases are not followed."""
        if not path:
            return self.root
        slot = self.slot(path)
        return slot.value if slot else None

    def mark(self, path: Path = ()) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path`, else of its nearest ancestor there is."""
        for length in range(len(path), -1, -1):
            node = self.find(path[:length])
            if node is not None:
                return node.raw.start_mark.line + 1, node.raw.start_mark.column + 1
        return 1, 1

    def raw_slot(self, path: Path) -> Raw:
        """Return the whole entry or item at `path`, comments included, to be put elsewhere.

        Raises:
            YamlError: There is none, or it is in flow style.
        """
        slot = self.slot(path)
        if slot is None or slot.parent.style is Style.FLOW:
            raise YamlError(f"No block entry at {path!r}", line=self.mark(path)[0], column=self.mark(path)[1])
        start, end = self.extent(slot)
        return Raw(dedent(self.text[start:end], self.column(slot.start)))

    def extent(self, slot: Slot) -> Span:
        """Return where a block entry or item stands with its comments, without the final line break."""
        notes = slot.comments
        ends = (span.end for span in (notes.line_span, notes.foot_span) if span)
        end = max(self.key_end(slot), self.body_end(slot.value), *ends)
        return Span(notes.head_span.start if notes.head_span else slot.start, end)

    def body_end(self, node: AnyNode) -> int:
        """Return where a node ends with the comments inside it."""
        end = node.span.end
        inner = node.last if isinstance(node, (Mapping, Sequence)) else None
        return end if inner is None else max(end, self.extent(inner).end)

    def slot_end(self, slot: Slot) -> int:
        """Return where an entry or item ends, without comments."""
        return self.key_end(slot) if slot.value.is_omitted else slot.value.span.end

    def key_end(self, slot: Slot) -> int:
        """Return where the `:` of an entry ends (its key, if it has none), or the dash of an item."""
        if isinstance(slot, Item):
            return slot.start + (slot.parent.style is Style.BLOCK)
        end = slot.key.span.end
        colon = self.text.find(":", end)
        return colon + 1 if colon >= 0 and not self.text[end:colon].strip() else end

    def column(self, offset: int) -> int:
        """Return the column, from 0, of a place."""
        return offset - self.text.rfind("\n", 0, offset) - 1

    def view(self, node: ExactNode) -> AnyNode:
        """Return the view of a raw node."""
        if isinstance(node, ScalarNode):
            return Scalar(self, node)
        if isinstance(node, MappingNode):
            return Mapping(self, node)
        return Sequence(self, node) if isinstance(node, SequenceNode) else Alias(self, node)
