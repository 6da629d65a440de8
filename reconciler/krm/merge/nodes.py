"""Nodes of a document for merging, with cached children, texts and comments, and identities of resources."""

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.base.lazy import regex
from reconciler.krm.schema import Shape, declared_shape
from reconciler.krm.yaml.compose import UNTAGGED, YamlError, content_end, dash_offsets
from reconciler.krm.yaml.emit import Raw, dedent_lines
from reconciler.krm.yaml.load import Path, ScalarError, type_plain, type_tagged, typed_key
from reconciler.krm.yaml.tree import CommentPosition, Comments, Tree
from reconciler.names.ids import group_of


class NodeKind(Enum):
    """Kind of a node."""

    MAPPING = "mapping"
    SEQUENCE = "sequence"
    SCALAR = "scalar"
    ALIAS = "alias"


_KINDS: Final[dict[type, NodeKind]] = {
    MappingNode: NodeKind.MAPPING,
    SequenceNode: NodeKind.SEQUENCE,
    ScalarNode: NodeKind.SCALAR,
}
_NO_END: Final = -1
_SCHEMA_COMMENT: Final = "# {"
_KEY_LINE: Final = regex(r"[\w./-]+:[ \t]+(#[^\n]*)")
MERGE_COMMENT = regex(r"#\s*kpt-merge:\s*(?P<namespace>[^/\s]*)/(?P<name>\S*)\s*\Z")
"""`# kpt-merge: NAMESPACE/NAME` beside `metadata:`: the name that the resource has upstream."""
ATTRIBUTION = "cnrm.cloud.google.com/blueprint"
"""Annotation of resources of Config Connector to which kpt adds its own name, as `kpt-pkg`."""
UPSTREAM_IDENTIFIER = "internal.kpt.dev/upstream-identifier"
"""kpt's annotation `GROUP|KIND|NAMESPACE|NAME`; functions read it, a merge does not."""


class Node:
    """One value of one side of a merge.

    `slot` is the offset of its key or dash, -1 for the root; `in_flow` tells whether it is part of a
    flow collection.
    """

    __slots__ = ("_children", "_items", "_source", "in_flow", "kind", "raw", "slot", "tree")

    def __init__(self, tree: Tree, raw: Any, slot: int = -1, *, in_flow: bool = False) -> None:
        self.in_flow = in_flow
        self.tree = tree
        self.raw = raw
        self.slot = slot
        self.kind = _KINDS.get(type(raw), NodeKind.ALIAS)
        self._children: dict[str, Node] | None = None
        self._items: list[Node] | None = None
        self._source: str | None = None

    @property
    def is_mapping(self) -> bool:
        """Whether the node is a mapping."""
        return self.kind is NodeKind.MAPPING

    @property
    def is_sequence(self) -> bool:
        """Whether the node is a sequence."""
        return self.kind is NodeKind.SEQUENCE

    @property
    def is_scalar(self) -> bool:
        """Whether the node has no children; an alias has none."""
        return self.kind is NodeKind.SCALAR or self.kind is NodeKind.ALIAS

    @property
    def is_flow(self) -> bool:
        """Whether the node is a collection in flow style."""
        return not self.is_scalar and bool(self.raw.flow_style)

    @property
    def is_block(self) -> bool:
        """Whether the node is a collection in block style."""
        return not self.is_scalar and not self.raw.flow_style

    @property
    def text(self) -> str:
        """The text of a scalar before typing; `*anchor` of an alias."""
        return f"*{self.raw.anchor}" if self.kind is NodeKind.ALIAS else str(self.raw.value)

    @property
    def is_plain(self) -> bool:
        """Whether the node is a scalar without quotes."""
        return self.kind is NodeKind.SCALAR and not self.raw.style

    @property
    def typed(self) -> Any:
        """The value of a scalar as Kubernetes types it."""
        if self.kind is NodeKind.ALIAS:
            return self
        tag, text = self.raw.tag, self.raw.value
        try:
            if tag is UNTAGGED:
                return type_plain(text)
            return type_tagged(tag, text) if tag else text
        except ScalarError:
            return text

    @property
    def is_null(self) -> bool:
        """Whether the node is a null."""
        return self.kind is NodeKind.SCALAR and self.typed is None

    @property
    def children(self) -> "dict[str, Node]":
        """The values of a mapping by typed key; empty for other nodes."""
        if self._children is None:
            self._children = {}
            flow = self.is_flow
            for key, value in self.raw.value if self.is_mapping else ():
                name = key.value if not key.tag else typed_key(key)
                self._children[name] = Node(self.tree, value, key.start_mark.index, in_flow=flow)
            # Composing finds no duplicate keys, and a merge may not lose one of them.
            if self.is_mapping and len(self._children) < len(self.raw.value):
                raise YamlError("A key is set twice in one mapping", line=self.raw.start_mark.line + 1)
        return self._children

    @property
    def items(self) -> "list[Node]":
        """The items of a sequence; empty for other nodes."""
        if self._items is None:
            raws = self.raw.value if self.is_sequence else []
            dashes = dash_offsets(self.tree.text, self.raw) if raws and self.is_block else ()
            starts = dashes or (raw.start_mark.index for raw in raws)
            self._items = [
                Node(self.tree, raw, start, in_flow=self.is_flow)
                for raw, start in zip(raws, starts, strict=True)
            ]
        return self._items

    @property
    def source(self) -> str:
        """The text of the node, from the comments above a block to the end of the line where it ends."""
        if self._source is None:
            text, end = self.tree.text, self.end
            self._source = text[self._start() : end] + _rest_of_line(text, end)
        return self._source

    def _start(self) -> int:
        """Return the offset of the node; a block below its key starts behind the line of the key."""
        start = int(self.raw.start_mark.index)
        if self.is_block:
            below = self.tree.text.find("\n", self.slot) + 1 if self.slot >= 0 else 0
            return below if 0 <= below <= start else start
        return start

    @property
    def end(self) -> int:
        """The offset behind the text of the node; a block includes the comments at its end."""
        text = self.tree.text
        end = content_end(text, self.raw)
        if not self.is_block:
            return end
        tail = self.tree.comments.joined((self.slot, CommentPosition.TAIL))[1]
        *_, last = self.values()
        return tail.end if tail else max(end + len(_rest_of_line(text, end)), last.end)

    @property
    def comments(self) -> Comments:
        """The comments of the key or dash that holds the node."""
        if self.slot < 0 or self.in_flow:
            return Comments()
        line = self._line_comment()
        return self._all_comments() if line is None else Comments(line=line)

    @property
    def line_comment(self) -> str:
        """The comment on the line of the key, for most blocks without indexing all comments."""
        match = _KEY_LINE.match(self.tree.text, self.slot) if self.is_block and self.slot >= 0 else None
        return match[1].rstrip() if match else self.comments.line

    def _all_comments(self) -> Comments:
        return self.tree.comments.of(self.slot)

    def _line_comment(self) -> str | None:
        """Return the comment behind the node if it has no other comment, None if that takes a closer look.

        Indexing the comments of a document takes longer than merging it.
        """
        text = self.tree.text
        start = text.rfind("\n", 0, self.slot) + 1
        above = text[text.rfind("\n", 0, start - 1) + 1 : start].strip() if start else "top"
        if (
            not above
            or above.startswith("#")
            or (self.kind is NodeKind.SCALAR and self.raw.style in ("|", ">"))
        ):
            return None
        end = text.find("\n", self.slot) if self.is_block else content_end(text, self.raw)
        rest = text[self.slot : end] if self.is_block else _rest_of_line(text, end).strip()
        if self.is_block:
            return None if "#" in rest else ""
        return rest if not rest or rest.startswith("#") else None

    @property
    def value(self) -> Any:
        """The value as data."""
        return self.tree.view(self.raw).value

    def as_value(self) -> Raw:
        """Return the text of the node, to replace another value; a block with the comments above its start.

        Lines of a scalar after the first are indented relative to its key or dash, those of a block
        relative to its start.
        """
        start = self.raw.start_mark.index
        anchor = start if self.is_block or self.slot < 0 else self.slot
        above = self.tree.text.find("#", self._start(), start) if self.slot >= 0 else -1
        written = self.tree.closed(start if above < 0 else above, self.end)
        return Raw(dedent_lines(written, self.tree.column(anchor)))

    def as_slot(self) -> Raw:
        """Return the text of the whole entry or item, with all its comments."""
        comments = self._all_comments()
        start = comments.head_span.start if comments.head_span else self.slot
        spans = (comments.line_span, comments.foot_span)
        end = max(self.end, *(span.end if span else _NO_END for span in spans))
        return Raw(dedent_lines(self.tree.closed(start, end), self.tree.column(self.slot)))

    def is_aliased(self, path: Path, *, whole: bool) -> bool:
        """Tell whether the value at `path` or above it has an anchor or alias; with `whole`, also below."""
        if "&" not in self.tree.text:  # without anchor there is no alias
            return False
        node = self
        for step in path:
            if node.kind is NodeKind.ALIAS or node.has_anchor:
                return True
            below = node.children.get(step) if isinstance(step, str) else None
            if below is not None:
                node = below
            elif isinstance(step, int) and step < len(node.items):
                node = node.items[step]
            else:
                return False
        return node.has_alias() if whole else node.kind is NodeKind.ALIAS or node.has_anchor

    @property
    def has_anchor(self) -> bool:
        """Whether the node has an anchor."""
        return self.kind is not NodeKind.ALIAS and "&" in self.tree.view(self.raw).properties

    def has_null(self) -> bool:
        """Tell whether the node is or contains a null."""
        return self.is_null or any(map(Node.has_null, self.values()))

    def has_alias(self) -> bool:
        """Tell whether the node is or contains an alias or anchor."""
        if self.kind is NodeKind.ALIAS or self.has_anchor:
            return True
        source = self.source
        if "*" not in source and "&" not in source:
            return False
        return any(map(Node.has_alias, self.values()))

    def values(self) -> "Iterator[Node]":
        """Yield the values of a mapping or the items of a sequence."""
        yield from self.children.values()
        yield from self.items


def _rest_of_line(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start : len(text) if end < 0 else end].rstrip()


def root_of(tree: Tree) -> Node | None:
    """Return the root of a document, None of an empty one."""
    return None if tree.raw is None else Node(tree, tree.raw)


def child(node: Node | None, name: str) -> Node | None:
    """Return the value of a field of a mapping, None if there is none."""
    return node.children.get(name) if node is not None else None


def is_same(left: Node | None, right: Node | None) -> bool:
    """Tell whether two values are the same data, whatever their comments, quotes and order of keys."""
    if left is None or right is None:
        return left is right
    if left.kind is not right.kind:
        return False
    if left.is_scalar:
        return left.text == right.text and _is_text(left) == _is_text(right)
    if left.is_sequence:
        return len(left.items) == len(right.items) and all(map(is_same, left.items, right.items))
    return left.children.keys() == right.children.keys() and all(
        is_same(value, right.children[name]) for name, value in left.children.items()
    )


def is_rendered_same(left: Node, right: Node) -> bool:
    """Tell whether two values are the same data with the same comments."""
    if not is_same(left, right):
        return False
    if left.is_scalar and right.is_scalar:
        return left.comments.line == right.comments.line
    if not left.comments.line and not right.comments.line and "#" not in left.source + right.source:
        return True
    return [*_line_comments(left)] == [*_line_comments(right)]


def is_printed_same(left: Node | None, right: Node | None) -> bool:
    """Tell whether kyaml prints two values alike, apart from comments and kpt's attribution.

    It prints keys in their order, and scalars and collections in their style, but breaks lines anew.
    """
    if left is None or right is None or left.kind is not right.kind:
        return left is right
    if left.is_scalar:
        return left.text == right.text and _written_as(left) == _written_as(right)
    if left.is_flow is not right.is_flow:
        return False
    if left.is_sequence:
        return len(left.items) == len(right.items) and all(map(is_printed_same, left.items, right.items))
    ours, theirs = (
        [pair for pair in side.children.items() if pair[0] != ATTRIBUTION] for side in (left, right)
    )
    return len(ours) == len(theirs) and all(
        mine[0] == other[0] and is_printed_same(mine[1], other[1])
        for mine, other in zip(ours, theirs, strict=True)
    )


def _written_as(scalar: Node) -> tuple[Any, Any]:
    """Return the tag and the style of a scalar; an alias has none.

    A block with a space at the end of a line is printed in quotes.
    """
    style = scalar.raw.style if scalar.kind is NodeKind.SCALAR else None
    quoted = style in ("|", ">") and (" \n" in scalar.text or scalar.text.endswith(" "))
    return getattr(scalar.raw, "tag", None), '"' if quoted else style


def may_have_schema(tree: Tree | None) -> bool:
    """Tell whether a comment of a document may be a JSON schema."""
    return tree is not None and _SCHEMA_COMMENT in tree.text


def shape_in_comments(*nodes: Node | None) -> Shape | None:
    """Return the shape that a JSON schema in a comment declares, of the first side with a schema."""
    for node in nodes:
        for comment in (node.comments.line, node.comments.head) if node is not None else ():
            text = comment.lstrip("# ")
            if text.startswith("{"):
                try:
                    schema = json.loads(text)
                except ValueError:
                    continue
                if isinstance(schema, dict):
                    return declared_shape(schema)
    return None


def _is_text(node: Node) -> bool:
    return type(node.typed) is str


def _line_comments(node: Node) -> Iterator[str]:
    for value in node.values():
        yield value.comments.line
        yield from _line_comments(value)


class Identity(NamedTuple):
    """Identity of a resource, independent of its version and its file."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return " ".join(part for part in (self.kind, where) if part) or "document"


def has_merge_comment(comment: str) -> bool:
    """Tell whether the line comment beside `metadata:` sets the identity of the resource."""
    return MERGE_COMMENT.match(comment) is not None


def identity_of(root: Node | None, comment: str = "") -> Identity:
    """Return the identity of a document, from its root and the line comment beside its metadata.

    Names are not typed: `name: n` is `n`, although YAML 1.1 reads a boolean. Total: a document that is
    no resource has an identity of empty strings.

    Source: kpt internal/util/merge/merge3.go, ResourceMergeMatcher.
    """
    metadata = child(root, "metadata")
    namespace, name = _text(child(metadata, "namespace")), _text(child(metadata, "name"))
    if match := MERGE_COMMENT.match(comment):
        namespace, name = match["namespace"], match["name"]
    return Identity(group_of(_text(child(root, "apiVersion"))), _text(child(root, "kind")), namespace, name)


def _text(node: Node | None) -> str:
    return node.text if node is not None and node.is_scalar and not node.is_null else ""
