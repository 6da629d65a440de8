"""A document as a merge looks at it: nodes that remember their children, texts and comments."""

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.ids import group_of
from reconciler.krm.schema import Shape, declared_shape
from reconciler.krm.yaml.comments import NO_COMMENTS, Comments
from reconciler.krm.yaml.compose import UNTAGGED, content_end, dash_offsets
from reconciler.krm.yaml.emit import Raw, dedent_lines
from reconciler.krm.yaml.limits import YamlError
from reconciler.krm.yaml.load import Path, typed_key
from reconciler.krm.yaml.scalars import ScalarError, type_plain, type_tagged
from reconciler.krm.yaml.tree import Tree


class NodeKind(Enum):
    """What a node is."""

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
MERGE_COMMENT = re.compile(r"#\s*kpt-merge:\s*(?P<namespace>[^/\s]*)/(?P<name>\S*)\s*\Z")
"""`# kpt-merge: NAMESPACE/NAME` beside `metadata:`: the name that the resource has upstream."""
UPSTREAM_IDENTIFIER = "internal.kpt.dev/upstream-identifier"
"""kpt's annotation `GROUP|KIND|NAMESPACE|NAME`; functions read it, a merge does not."""


class Node:
    """One value of one side.

    `slot` is where its key or dash stands, -1 for the root; `in_flow` tells that it is part of a
    flow collection.
    """

    __slots__ = ("_fields", "_items", "_source", "in_flow", "kind", "raw", "slot", "tree")

    def __init__(self, tree: Tree, raw: Any, slot: int = -1, *, in_flow: bool = False) -> None:
        self.in_flow = in_flow
        self.tree = tree
        self.raw = raw
        self.slot = slot
        self.kind = _KINDS.get(type(raw), NodeKind.ALIAS)
        self._fields: dict[str, Field] | None = None
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
    def fields(self) -> "dict[str, Field]":
        """The fields of a mapping by typed key."""
        if self._fields is None:
            self._fields = {}
            flow = self.is_flow
            for key, value in self.raw.value if self.is_mapping else ():
                name = key.value if not key.tag else typed_key(key)
                self._fields[name] = Field(Node(self.tree, value, key.start_mark.index, in_flow=flow))
            if self.is_mapping and len(self._fields) < len(self.raw.value):
                raise YamlError("A key is set twice in one mapping", line=self.raw.start_mark.line + 1)
        return self._fields

    @property
    def items(self) -> "list[Node]":
        """The items of a sequence."""
        if self._items is None:
            raws = self.raw.value if self.is_sequence else []
            starts = dash_offsets(self.tree.text, self.raw) if raws and self.is_block else ()
            places = starts or (raw.start_mark.index for raw in raws)
            self._items = [
                Node(self.tree, raw, at, in_flow=self.is_flow) for raw, at in zip(raws, places, strict=True)
            ]
        return self._items

    @property
    def source(self) -> str:
        """The node as it is written, from the comments above a block to the end of its last line."""
        if self._source is None:
            text = self.tree.text
            end = text.find("\n", content_end(text, self.raw))
            self._source = text[self._start() : len(text) if end < 0 else end]
        return self._source

    def _start(self) -> int:
        """Return where the node starts; a block below its key starts right behind the key's line."""
        start = int(self.raw.start_mark.index)
        if self.is_block:
            text = self.tree.text
            below = text.find("\n", self.slot) + 1 if self.slot >= 0 else 0
            return below if 0 <= below <= start else start
        return start

    @property
    def end(self) -> int:
        """Where the node's own text ends; that of a block has the comment on its last line."""
        text = self.tree.text
        end = content_end(text, self.raw)
        return end + len(_rest_of_line(text, end)) if self.is_block else end

    @property
    def comments(self) -> Comments:
        """The comments of the key or dash that holds the node."""
        if self.slot < 0 or self.in_flow:
            return NO_COMMENTS
        line = self._line_comment()
        return self._all_comments() if line is None else Comments(line=line)

    def _all_comments(self) -> Comments:
        return self.tree.comments.by_start.get(self.slot, NO_COMMENTS)

    def _line_comment(self) -> str | None:
        """Return the comment behind the node if no other can belong to it, None where one has to look closer.

        Finding every comment of a document takes longer than merging it.
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
        """Return the node's text to be put in place of another value.

        The further lines of a scalar stand relative to its key or dash, those of a block relative to
        its start.
        """
        anchor = self.raw.start_mark.index if self.is_block or self.slot < 0 else self.slot
        written = self.tree.text[self.raw.start_mark.index : self.end]
        return Raw(dedent_lines(written, self.tree.column(anchor)))

    def as_slot(self) -> Raw:
        """Return the key or dash that holds the node, with the node and all its comments."""
        notes = self._all_comments()
        text = self.tree.text
        start = notes.head_span.start if notes.head_span else self.slot
        spans = (notes.line_span, notes.foot_span)
        end = max(self.end, *(span.end if span else _NO_END for span in spans))
        return Raw(dedent_lines(text[start:end], self.tree.column(self.slot)))

    def is_tied(self, path: Path, *, whole: bool) -> bool:
        """Tell whether an anchor or alias stands at `path` or above it, or for the whole value in it."""
        if "&" not in self.tree.text:
            return False
        node = self
        for step in path:
            if node.kind is NodeKind.ALIAS or node.has_anchor:
                return True
            child = node.fields.get(step) if isinstance(step, str) else None
            if child is not None:
                node = child.value
            elif isinstance(step, int) and step < len(node.items):
                node = node.items[step]
            else:
                return False
        return node.has_alias() if whole else node.kind is NodeKind.ALIAS or node.has_anchor

    @property
    def has_anchor(self) -> bool:
        """Whether the node is what aliases stand for."""
        return self.kind is not NodeKind.ALIAS and "&" in self.tree.view(self.raw).properties

    def has_null(self) -> bool:
        """Tell whether a null stands anywhere in the node."""
        return self.is_null or any(map(Node.has_null, self._children()))

    def has_alias(self) -> bool:
        """Tell whether an alias or anchor stands in the node's text."""
        if self.kind is NodeKind.ALIAS or self.has_anchor:
            return True
        source = self.source
        if "*" not in source and "&" not in source:
            return False
        return any(map(Node.has_alias, self._children()))

    def _children(self) -> "Iterator[Node]":
        yield from (field.value for field in self.fields.values())
        yield from self.items


class Field:
    """One field of a mapping."""

    __slots__ = ("value",)

    def __init__(self, value: Node) -> None:
        self.value = value

    @property
    def comments(self) -> Comments:
        """The comments of the field."""
        return self.value.comments


def _rest_of_line(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start : len(text) if end < 0 else end].rstrip()


def root_of(tree: Tree) -> Node | None:
    """Return the root of a document, None of an empty one."""
    return None if tree.raw is None else Node(tree, tree.raw)


def is_same(one: Node | None, other: Node | None) -> bool:
    """Tell whether two values are the same data; comments, quotes and the order of keys do not count."""
    if one is None or other is None:
        return one is other
    if one.kind is not other.kind:
        return False
    if one.is_scalar:
        return one.text == other.text and _is_text(one) == _is_text(other)
    if one.is_sequence:
        return len(one.items) == len(other.items) and all(map(is_same, one.items, other.items))
    mine, theirs = one.fields, other.fields
    return mine.keys() == theirs.keys() and all(
        is_same(f.value, theirs[name].value) for name, f in mine.items()
    )


def is_rendered_same(one: Node, other: Node) -> bool:
    """Tell whether two values are the same data with the same comments."""
    if not is_same(one, other):
        return False
    if one.is_scalar and other.is_scalar:
        return one.comments.line == other.comments.line
    if not one.comments.line and not other.comments.line and "#" not in one.source + other.source:
        return True
    return [*_line_comments(one)] == [*_line_comments(other)]


def may_declare(tree: Tree | None) -> bool:
    """Tell whether a comment of a document may be a JSON schema."""
    return tree is not None and _SCHEMA_COMMENT in tree.text


def declared(*fields: Field | None) -> Shape | None:
    """Return the shape that a JSON schema in a field's comment declares, of the first side that has one."""
    for field in fields:
        for comment in (field.comments.line, field.comments.head) if field is not None else ():
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
    for child in node._children():  # noqa: SLF001 - its own module
        yield child.comments.line
        yield from _line_comments(child)


class Identity(NamedTuple):
    """A resource regardless of its version and of the file that it stands in."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return " ".join(part for part in (self.kind, where) if part) or "document"


def has_merge_comment(comment: str) -> bool:
    """Tell whether the line comment beside `metadata:` fixes a resource's identity."""
    return MERGE_COMMENT.match(comment) is not None


def identity_of(root: Node | None, comment: str = "") -> Identity:
    """Return the identity of a document by its root and the line comment beside its metadata.

    Names are taken as written: `name: n` is `n`, as in Kubernetes, though YAML 1.1 reads a boolean.

    Total: what is no resource has an identity of empty strings.

    Source: kpt internal/util/merge/merge3.go, ResourceMergeMatcher.
    """
    metadata = _child(root, "metadata")
    namespace, name = _text(_child(metadata, "namespace")), _text(_child(metadata, "name"))
    if found := MERGE_COMMENT.match(comment):
        namespace, name = found["namespace"], found["name"]
    return Identity(group_of(_text(_child(root, "apiVersion"))), _text(_child(root, "kind")), namespace, name)


def _child(node: Node | None, name: str) -> Node | None:
    field = node.fields.get(name) if node is not None and node.is_mapping else None
    return field.value if field is not None else None


def _text(node: Node | None) -> str:
    return node.text if node is not None and node.is_scalar and not node.is_null else ""
