"""libyaml's parser behind guards: text in, raw nodes with marks out, never a crash.

The parser is C and recursive, so depth is bounded before it can overflow the stack;
and its errors become `YamlError`, so nobody above this module meets a PyYAML exception.
"""

import codecs
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import yaml
from yaml import MappingNode, ScalarNode, SequenceNode
from yaml._yaml import CParser

from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.limits import Aliases, YamlLimits

if TYPE_CHECKING:
    from yaml.error import Mark

RawNode = ScalarNode | SequenceNode | MappingNode
"""A node of libyaml. `tag` is a full tag, or `UNTAGGED` when the text gives none."""


@dataclass(eq=False, slots=True)
class AliasNode:
    """An alias where it stands; `value` is the node that it stands for."""

    anchor: str
    value: RawNode
    start_mark: "Mark"
    end_mark: "Mark"
    tag: str = ""


UNTAGGED: Final = "?"
"""The tag of a plain scalar without one; quoted scalars and collections without one have `""`."""

_ENCODINGS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAFE_OPENERS: Final = 1_000
_DEEP_LINE: Final = re.compile(r"\n[ \t?:-]{500}")
_DEEP_FIRST_LINE: Final = re.compile(r"[ \t?:-]{500}")
_MAYBE_ANCHOR: Final = re.compile(r"&(?<![^\s\[{,]&)[A-Za-z0-9_-]")
_NON_SPECIFIC: Final = re.compile(r"!(?<![^\s\[{,]!)(?=\s)")
_ANCHOR_OF_NODE: Final = re.compile(r"(?:![^\s]*\s+)?&")


def decode(data: bytes, limits: YamlLimits) -> tuple[str, str, bytes]:
    """Return the text without its byte order mark, the name of its encoding, and the mark (or nothing).

    Raises:
        YamlError: The data is too large or is not text.
    """
    if len(data) > limits.max_bytes:
        raise YamlError(
            f"The file has {len(data)} bytes; the limit is {limits.max_bytes}",
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
    """Yield the root node of every document that has one.

    Raises:
        YamlError: The text is not YAML, or goes over a limit.
    """
    suspicious = may_have_anchor(text)
    exclaimed = _NON_SPECIFIC.search(text) is not None
    large = _most_nodes(text) > limits.max_nodes
    count = 0
    for root in _roots(text, limits, large=large):
        if _is_empty(root):
            continue
        if exclaimed:
            _clear_non_specific(text, root)
        count += 1
        if count > limits.max_documents:
            raise error_at(root.start_mark, f"The file has more than {limits.max_documents} documents")
        if large or (suspicious and _has_anchor(text, root)):
            check_expansion(text, root, limits)
        yield root


def may_have_anchor(text: str) -> bool:
    """Tell whether anything in a text looks like an anchor; without one there is no alias either."""
    return _MAYBE_ANCHOR.search(text) is not None


def _roots(text: str, limits: YamlLimits, *, large: bool) -> Iterator[RawNode]:
    parser = _GuardedComposer(text, limits) if large or _may_be_deep(text) else _Composer(text)
    try:
        while parser.check_node():
            root = parser.get_node()
            if root is not None:
                yield cast("RawNode", root)
    except yaml.YAMLError as error:
        raise translated(error, text) from error


def _may_be_deep(text: str) -> bool:
    """Tell whether a text might nest deeply: each level needs an opening bracket or a longer line prefix."""
    return (
        text.count("{") + text.count("[") > _SAFE_OPENERS
        or _DEEP_LINE.search(text) is not None
        or _DEEP_FIRST_LINE.match(text) is not None
    )


def _most_nodes(text: str) -> int:
    """Return a bound on the number of nodes: each one needs an indicator of its own, but for the roots."""
    if len(text) < _SMALL:
        return len(text)
    return 2 * sum(map(text.count, ":,?{")) + sum(map(text.count, "-["))


_SMALL: Final = 1_000


class _Composer(CParser):
    """PyYAML's C composer without a resolver: we type scalars ourselves.

    The three hooks are called for each node; two are C functions, which cost nothing there.
    """

    def resolve(self, _kind: type, _value: object, implicit: object) -> str:
        """Return `UNTAGGED` for a plain scalar and `""` for what has no tag otherwise."""
        return UNTAGGED if type(implicit) is tuple and implicit[0] else ""

    descend_resolver: Callable[..., object] = staticmethod(operator.is_)
    ascend_resolver: Callable[..., object] = staticmethod(int)


class _GuardedComposer(_Composer):
    """The same, counting: for texts that might overflow the C stack by depth, or memory by their nodes."""

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


def too_deep(node: RawNode, max_depth: int) -> YamlError:
    """Return the error for a collection below the deepest allowed level."""
    return error_at(node.start_mark, f"Collections are nested more than {max_depth} levels deep")


def _too_many(node: RawNode, max_nodes: int) -> YamlError:
    return error_at(node.start_mark, f"The document has more than {max_nodes} nodes, aliases written out")


def error_at(mark: "Mark", message: str, *, hint: str = "") -> YamlError:
    """Return a `YamlError` at a mark of libyaml, which counts from 0."""
    return YamlError(message, line=mark.line + 1, column=mark.column + 1, hint=hint)


def check_expansion(text: str, root: RawNode, limits: YamlLimits) -> None:
    """Check a document's anchors, and its size with every alias written out, without writing them out.

    Raises:
        YamlError: An anchor where none is allowed, a value that contains itself, or too many nodes.
    """
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size_of(node: RawNode, depth: int) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            raise error_at(node.start_mark, "An anchored value contains itself")
        if depth > limits.max_depth + 1:
            raise too_deep(node, limits.max_depth)
        if limits.aliases is Aliases.REFUSE and _is_anchored(text, node):
            raise error_at(
                node.start_mark, "Anchors and aliases are not allowed here", hint="Write the value out."
            )
        total = 1
        open_nodes.add(id(node))
        for child in _children(node):
            total += size_of(child, depth + 1)
        open_nodes.discard(id(node))
        if total > limits.max_nodes:
            raise _too_many(node, limits.max_nodes)
        sizes[id(node)] = total
        return total

    size_of(root, 1)


def _children(node: RawNode) -> Iterator[RawNode]:
    if isinstance(node, SequenceNode):
        yield from node.value
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield key
            yield value


def _clear_non_specific(text: str, root: RawNode) -> None:
    """Make strings of scalars with the tag `!`, which the composer shows as if they had none."""
    for node in _walk(root):
        start = node.start_mark.index
        if node.tag == UNTAGGED and _NON_SPECIFIC.match(text, start) and node.end_mark.index > start:
            node.tag = ""


def _walk(root: RawNode) -> Iterator[RawNode]:
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        if id(node) not in seen:
            seen.add(id(node))
            todo.extend(_children(node))


def _has_anchor(text: str, root: RawNode) -> bool:
    """Tell whether any node of a tree has an anchor; without one there is no alias either."""
    return any(_is_anchored(text, node) for node in _walk(root))


def _is_anchored(text: str, node: RawNode) -> bool:
    """Tell whether a node's own text starts with an anchor, perhaps after its tag."""
    found = _ANCHOR_OF_NODE.match(text, node.start_mark.index)
    return found is not None and found.end() <= node.end_mark.index


def _is_empty(node: RawNode) -> bool:
    return (
        type(node) is ScalarNode
        and node.tag == UNTAGGED
        and not node.value
        and node.start_mark.index == node.end_mark.index
    )


def translated(error: yaml.YAMLError, text: str) -> YamlError:
    """Return the `YamlError` that says what libyaml found wrong."""
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
