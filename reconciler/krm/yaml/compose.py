"""Compose YAML text into libyaml's nodes with exact positions, within limits.

libyaml's composer is recursive C code, so depth is bounded before it can overflow the stack.
Its errors become `YamlError`. It returns an anchored node again for every alias, so texts with
anchors can also be composed from events, three times slower, with aliases as nodes of their own.
"""

import codecs
import operator
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, cast

import yaml
from msgspec import Struct
from yaml import MappingNode, ScalarNode, SequenceNode
from yaml._yaml import CParser

from reconciler.base.lazy import regex
from reconciler.base.text import plural

if TYPE_CHECKING:
    from yaml.error import Mark


class YamlError(ValueError):
    """A text that is not acceptable YAML or JSON; callers report it as a Problem of the file.

    `line` and `column` count from 1; 0 is unknown. `message` is one sentence without a trailing
    stop; `hint` is the next step and may be empty.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0, hint: str = "") -> None:
        where = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{where}{message}")
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint


class Aliases(StrEnum):
    """Policy for anchors and aliases."""

    REFUSE = "refuse"
    """Every anchor or alias is an error: manifests of Kubernetes objects never need one."""
    BOUNDED = "bounded"
    """Aliases are followed as long as the expanded document stays under `YamlLimits.max_nodes`."""


class YamlLimits(Struct, frozen=True, kw_only=True):
    """Bounds on one file. Sizes are in bytes; a node is one scalar, mapping or sequence.

    `max_nodes` bounds each document with its aliases expanded, so it also bounds the growth of an
    alias bomb.
    """

    max_bytes: int
    max_documents: int
    max_nodes: int
    max_depth: int = 100
    aliases: Aliases = Aliases.REFUSE


_MIB = 1024 * 1024
MANIFEST_LIMITS = YamlLimits(max_bytes=16 * _MIB, max_documents=20_000, max_nodes=1_000_000)
"""Limits of manifests: anchors are refused."""
SNAPSHOT_LIMITS = YamlLimits(max_bytes=512 * _MIB, max_documents=1_000_000, max_nodes=20_000_000)
"""Limits of exported cluster objects: many documents, anchors are refused."""
PACKAGE_LIMITS = YamlLimits(
    max_bytes=16 * _MIB, max_documents=20_000, max_nodes=1_000_000, aliases=Aliases.BOUNDED
)
"""Limits of package files: anchors are allowed and bounded."""
KPTFILE_LIMITS = YamlLimits(max_bytes=_MIB, max_documents=100, max_nodes=100_000, aliases=Aliases.BOUNDED)
"""Limits of Kptfiles, which every run reads, checks and edits: one value takes about 700 bytes of memory."""


RawNode = ScalarNode | SequenceNode | MappingNode
"""A node of libyaml. `tag` is a full tag, or `UNTAGGED` when the text gives none."""


class AliasNode(Struct, eq=False):
    """An alias with its own position; `value` is the anchored node."""

    anchor: str
    value: RawNode
    start_mark: "Mark"
    end_mark: "Mark"
    tag: str = ""


ExactNode = RawNode | AliasNode
UNTAGGED: Final = "?"
"""Tag of an untagged plain scalar; untagged quoted scalars and collections have `""`."""
# The mark of UTF-32 starts with that of UTF-16, so UTF-32 comes first.
_ENCODINGS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# So many levels fit on the stack of every thread; texts that may be deeper are composed with a guard.
_SAFE_OPENERS: Final = 1_000
_SMALL: Final = 1_000
_DEEP_LINE: Final = regex(r"\n[ \t?:-]{500}")
_DEEP_FIRST_LINE: Final = regex(r"[ \t?:-]{500}")
# The lookbehind follows the character, so that the search can skip to its next occurrence.
_MAYBE_ANCHOR: Final = regex(r"&(?<![^\s\[{,]&)[A-Za-z0-9_-]")
_NON_SPECIFIC: Final = regex(r"!(?<![^\s\[{,]!)(?=\s)")
_ANCHOR_OF_NODE: Final = regex(r"(?:![^\s]*\s+)?&")
_BLOCK_HEADER: Final = regex(r"(?:[!&]\S*\s+)*[|>]([-+0-9]*)")
_SPACE: Final = r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*"
_GAP: Final = regex(_SPACE)
_PROPERTIES: Final = regex(rf"(?:[&!][^\s,\[\]{{}}]*(?=[\s,\]}}]|\Z){_SPACE})*")


def decode(data: bytes, limits: YamlLimits) -> tuple[str, str, bytes]:
    """Return the text without its byte order mark, the name of its encoding, and the mark, if any.

    Raises:
        YamlError: The data is too large or is not text.
    """
    if len(data) > limits.max_bytes:
        raise YamlError(
            f"The file has {plural(len(data), 'byte')}; the limit is {limits.max_bytes}",
            hint="Split the file, or raise the limit.",
        )
    bom, encoding = next(((b, e) for b, e in _ENCODINGS if data.startswith(b)), (b"", "utf-8"))
    try:
        return data[len(bom) :].decode(encoding), encoding, bom
    except UnicodeDecodeError as error:
        before = data[len(bom) :][: error.start]
        line = before.count(b"\n") + 1 if encoding == "utf-8" else 0
        column = len(before) - (before.rfind(b"\n") + 1) + 1 if line else 0
        raise YamlError(
            f"The file is not valid {encoding.upper()}",
            line=line,
            column=column,
            hint="Save it as UTF-8; put binary data into binaryData or a !!binary value.",
        ) from error


def compose(text: str, limits: YamlLimits) -> Iterator[RawNode]:
    """Yield the root node of every document that is not empty.

    Raises:
        YamlError: The text is not YAML, or goes over a limit.
    """
    # One search of the text each decides which checks of its nodes can be skipped.
    may_be_anchored = _may_have_anchor(text)
    has_non_specific_tag = _NON_SPECIFIC.search(text) is not None
    large = _max_nodes(text) > limits.max_nodes
    count = 0
    for root in _roots(text, limits, large=large):
        if _is_empty(root):
            continue
        if has_non_specific_tag:
            # The composer returns scalars with the tag `!` like untagged ones, but they are strings.
            for node in _walk(root):
                start = node.start_mark.index
                if node.tag == UNTAGGED and _NON_SPECIFIC.match(text, start) and node.end_mark.index > start:
                    node.tag = ""
        count += 1
        if count > limits.max_documents:
            raise error_at(
                root.start_mark, f"The file has more than {plural(limits.max_documents, 'document')}"
            )
        if large or (may_be_anchored and any(_is_anchored(text, node) for node in _walk(root))):
            _check_expansion(text, root, limits)
        yield root


def compose_exact(text: str, limits: YamlLimits) -> Iterator[ExactNode]:
    """Yield the root of every document that is not empty, with aliases as `AliasNode`.

    Raises:
        YamlError: The text is not YAML, or goes over a limit.
    """
    roots: Iterator[ExactNode] = compose(text, limits)
    if not _may_have_anchor(text):
        return roots
    for _ in roots:
        pass  # this checks the text and every limit, so that the composer of events need not
    return _EventComposer(text, limits).roots()


def _may_have_anchor(text: str) -> bool:
    """Tell whether a text may contain an anchor; without one there is no alias either."""
    return _MAYBE_ANCHOR.search(text) is not None


def _check_expansion(text: str, root: RawNode, limits: YamlLimits) -> None:
    """Check the anchors of a document, and its size with every alias expanded, without expanding them.

    Raises:
        YamlError: A forbidden anchor, a value that contains itself, or too many nodes.
    """
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size_of(node: RawNode, depth: int) -> int:
        size = sizes.get(id(node))
        if size is not None:
            return size
        if id(node) in open_nodes:
            raise error_at(node.start_mark, "An anchored value contains itself")
        if depth > limits.max_depth + 1:
            raise too_deep(node, limits.max_depth)
        if limits.aliases is Aliases.REFUSE and _is_anchored(text, node):
            raise error_at(
                node.start_mark, "Anchors and aliases are not allowed here", hint="Write the value out."
            )
        size = 1
        open_nodes.add(id(node))
        for child in _children(node):  # a loop, not sum(): every frame counts against Python's limit
            size += size_of(child, depth + 1)
        open_nodes.discard(id(node))
        if size > limits.max_nodes:
            raise _too_many(node, limits.max_nodes)
        sizes[id(node)] = size
        return size

    size_of(root, 1)


def is_block(node: ExactNode) -> bool:
    """Tell whether a node is a collection in block style."""
    return isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style


def is_zero_width(node: ExactNode) -> bool:
    """Tell whether a node is a null that the text leaves out."""
    return node.start_mark.index == node.end_mark.index


def content_end(text: str, node: ExactNode) -> int:
    """Return the offset behind the last character of a node's content, without the line break.

    libyaml ends a block collection where the next token starts, and a block scalar after its
    trailing blank lines; this is the end of the last line with content.
    """
    while isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style:
        last: Any = node.value[-1]
        node = last[1] if isinstance(node, MappingNode) else last
    end = node.end_mark.index
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        header = _BLOCK_HEADER.match(text, node.start_mark.index)
        if header is not None and "+" in header[1]:  # trailing blank lines belong to the value
            return end - 1 if text[end - 1 : end] == "\n" else end
        return node.start_mark.index + len(text[node.start_mark.index : end].rstrip(" \t\r\n"))
    return end


def close_scalar(text: str, root: ExactNode | None) -> tuple[int, str] | None:
    """Return where a text has the chomping indicator of a block scalar that needs `-`, and the old one.

    At the end of a text without a final line break, `|` and `|+` read as `|-`; before other text they do not.
    None where the text ends otherwise.
    """
    node: Any = root
    if text.endswith("\n"):
        return None
    while isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style and node.value:
        last: Any = node.value[-1]
        node = last[1] if isinstance(node, MappingNode) else last
    if not isinstance(node, ScalarNode) or node.style not in ("|", ">") or node.end_mark.index < len(text):
        return None
    header = _BLOCK_HEADER.match(text, node.start_mark.index)
    if header is None or "-" in header[1] or "\n" not in text[header.end() :]:
        return None
    old = "+" if "+" in header[1] else ""
    return header.start(1) + header[1].find(old), old


def dash_offsets(text: str, sequence: SequenceNode) -> list[int]:
    """Return the offset of the dash of each item of a block sequence."""
    offsets: list[int] = []
    position = _match_end(_PROPERTIES, text, sequence.start_mark.index)
    for item in sequence.value:
        dash = _match_end(_GAP, text, position)
        offsets.append(dash)
        position = max(dash + 1, content_end(text, item))
    return offsets


def properties_end(text: str, node: ExactNode) -> int:
    """Return the offset where a node starts behind its anchor and tag."""
    if text[node.start_mark.index : node.start_mark.index + 1] not in ("&", "!"):
        return int(node.start_mark.index)
    return min(_match_end(_PROPERTIES, text, node.start_mark.index), int(node.end_mark.index))


def _match_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _roots(text: str, limits: YamlLimits, *, large: bool) -> Iterator[RawNode]:
    # Counting in Python makes composing several times slower.
    parser = _GuardedComposer(text, limits) if large or _may_be_deep(text) else _Composer(text)
    try:
        while parser.check_node():
            root = parser.get_node()
            if root is not None:
                yield cast("RawNode", root)
    except yaml.YAMLError as error:
        raise translated(error, text) from error


def _may_be_deep(text: str) -> bool:
    """Tell whether a text may nest deeply: each level needs an opening bracket or a longer line prefix."""
    return (
        text.count("{") + text.count("[") > _SAFE_OPENERS
        or _DEEP_LINE.search(text) is not None
        or _DEEP_FIRST_LINE.match(text) is not None
    )


def _max_nodes(text: str) -> int:
    """Return an upper bound on the number of nodes: each node but the root needs its own indicator."""
    if len(text) < _SMALL:
        return len(text)
    return 2 * sum(map(text.count, ":,?{")) + sum(map(text.count, "-["))


class _Composer(CParser):
    """PyYAML's C composer without a resolver: scalars are typed by `scalars`.

    The three hooks are called for each node; two of them are C functions, which cost nothing.
    """

    def resolve(self, _kind: type, _value: object, implicit: object) -> str:
        """Return `UNTAGGED` for an untagged plain scalar and `""` for other untagged nodes."""
        return UNTAGGED if type(implicit) is tuple and implicit[0] else ""

    descend_resolver: Callable[..., object] = staticmethod(operator.is_)
    ascend_resolver: Callable[..., object] = staticmethod(int)


class _GuardedComposer(_Composer):
    """A composer that counts depth and nodes, for texts that may overflow the C stack or memory."""

    def __init__(self, text: str, limits: YamlLimits) -> None:
        super().__init__(text)
        self._limits = limits
        self._depth = 0
        self._nodes = 0
        self.descend_resolver = self._descend
        self.ascend_resolver = self._ascend

    def _descend(self, parent: RawNode | None, _index: object) -> None:
        self._depth += 1
        self._nodes = self._nodes + 1 if parent is not None else 1
        if parent is None:
            return
        if self._depth > self._limits.max_depth + 1:
            raise too_deep(parent, self._limits.max_depth)
        if self._nodes > self._limits.max_nodes:
            raise _too_many(parent, self._limits.max_nodes)

    def _ascend(self) -> None:
        self._depth -= 1


class _EventComposer:
    """Composes nodes from events, so that aliases keep their own positions."""

    def __init__(self, text: str, limits: YamlLimits) -> None:
        self._parser = CParser(text)
        self._limits = limits
        self._anchors: dict[str, RawNode] = {}

    def roots(self) -> Iterator[ExactNode]:
        """Yield the root of every document that is not empty."""
        for event in iter(self._next, None):
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                root = self._node(self._next(), 0)
                if not _is_empty(root):
                    yield root

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
        while not isinstance(child := self._next(), yaml.SequenceEndEvent):
            node.value.append(self._node(child, depth + 1))
        node.end_mark = child.end_mark
        return node

    def _mapping(self, event: Any, depth: int) -> MappingNode:
        node = MappingNode(event.tag or "", [], event.start_mark, event.end_mark, event.flow_style)
        self._open(node, event, depth)
        while not isinstance(child := self._next(), yaml.MappingEndEvent):
            node.value.append((self._node(child, depth + 1), self._node(self._next(), depth + 1)))
        node.end_mark = child.end_mark
        return node

    def _open(self, node: RawNode, event: Any, depth: int) -> None:
        if depth >= self._limits.max_depth:
            raise too_deep(node, self._limits.max_depth)
        if event.anchor:
            self._anchors[event.anchor] = node


def _is_empty(node: ExactNode) -> bool:
    return type(node) is ScalarNode and node.tag == UNTAGGED and not node.value and is_zero_width(node)


def _children(node: RawNode) -> Iterator[RawNode]:
    if isinstance(node, SequenceNode):
        yield from node.value
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield key
            yield value


def _walk(root: RawNode) -> Iterator[RawNode]:
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if id(node) not in seen:
            seen.add(id(node))
            pending.extend(_children(node))


def _is_anchored(text: str, node: RawNode) -> bool:
    """Tell whether the text of a node starts with an anchor, perhaps after its tag."""
    match = _ANCHOR_OF_NODE.match(text, node.start_mark.index)
    return match is not None and match.end() <= node.end_mark.index


def error_at(mark: "Mark", message: str, *, hint: str = "") -> YamlError:
    """Return a `YamlError` at a mark of libyaml, which counts from 0."""
    return YamlError(message, line=mark.line + 1, column=mark.column + 1, hint=hint)


def too_deep(node: RawNode, max_depth: int) -> YamlError:
    """Return the error for a collection below the deepest allowed level."""
    return error_at(node.start_mark, f"Collections are nested more than {plural(max_depth, 'level')} deep")


def _too_many(node: RawNode, max_nodes: int) -> YamlError:
    return error_at(
        node.start_mark, f"The document has more than {plural(max_nodes, 'node')}, aliases written out"
    )


def translated(error: yaml.YAMLError, text: str) -> YamlError:
    """Return the `YamlError` for an error of libyaml."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.problem, error.context) if part)
        return error_at(mark, _sentence(message)) if mark else YamlError(_sentence(message))
    if isinstance(error, yaml.reader.ReaderError):
        before = text.encode()[: error.position].decode(errors="replace")
        return YamlError(
            f"Character U+{_code_point(error.character):04X} is not allowed in YAML",
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
            hint="Write it as an escape in a double-quoted string.",
        )
    return YamlError(_sentence(str(error)))


def _code_point(character: int | str | bytes) -> int:
    return character if isinstance(character, int) else ord(character[:1])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
