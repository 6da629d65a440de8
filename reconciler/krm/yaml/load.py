"""Load YAML and JSON: bytes in, plain Python values typed as Kubernetes types them out.

Loading keeps no nodes. The position of a field is found by composing its document again, on demand.
"""

import base64
import binascii
import math
from collections.abc import Callable, Iterator
from json import JSONDecodeError, JSONDecoder
from sys import intern
from typing import Any, Final, cast

import msgspec
import orjson
from msgspec import Struct
from yaml import MappingNode, ScalarNode, SequenceNode

from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.base.values import PartlyCompared
from reconciler.krm.yaml.compose import (
    MANIFEST_LIMITS,
    SNAPSHOT_LIMITS,
    UNTAGGED,
    Aliases,
    AliasNode,
    RawNode,
    YamlError,
    YamlLimits,
    compose,
    decode,
    error_at,
)

Scalar = str | int | float | bool | None
"""A typed scalar."""

WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
"""Plain scalars without a digit that are no strings."""

NUMBER_STARTS: Final = frozenset("+-.0123456789")
"""First characters of numbers; any other plain scalar is a word of `WORDS` or a string."""

_INFINITE: Final = frozenset(
    sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")
) | frozenset((".nan", ".NaN", ".NAN"))
_DECIMAL: Final = regex(r"[-+]?(?:0|[1-9][0-9]{0,18})\Z")
_RADIX: Final = regex(r"([-+]?)0(?:[xX]([0-9a-fA-F]{1,16})|[bB]([01]{1,64})|[oO]?([0-7]{1,22}))\Z")
_FLOAT: Final = regex(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_TIMESTAMP: Final = regex(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}.*)?\Z"
)
_STANDARD: Final = "tag:yaml.org,2002:"
_INT64: Final = range(-(2**63), 2**63)
_INT64_FLOAT: Final = 2.0**63
_UINT64_MAX: Final = 2**64 - 1


class ScalarError(ValueError):
    """A scalar that Kubernetes refuses: infinite, or not of the type of its tag."""


def type_plain(text: str) -> Scalar:
    """Return the value of a plain scalar without a tag.

    Raises:
        ScalarError: The value has no JSON form (`.inf`, `.nan`).
    """
    if text in WORDS:
        return WORDS[text]
    if text[0] not in NUMBER_STARTS:
        return text
    return type_number(text)


def type_number(text: str) -> Scalar:
    """Return the value of a plain scalar that starts like a number: a number, or else a string.

    Raises:
        ScalarError: The value has no JSON form (`.inf`, `.nan`).
    """
    if _DECIMAL.match(text):
        return _fit(int(text))
    if text in _INFINITE:
        raise ScalarError(f"{text} has no JSON form")
    digits = text.replace("_", "")  # YAML 1.1 allows underscores anywhere in a number
    number = _parse_radix(digits) if digits[:1] != "." else None
    if number is None and (_DECIMAL.match(digits) or _FLOAT.match(digits)):
        number = _parse_float(digits)
    return text if number is None else number


def type_tagged(tag: str, text: str) -> Scalar:
    """Return the value of a scalar with an explicit tag, given in full (`tag:yaml.org,2002:int`).

    Tags that Kubernetes does not know are dropped, and the scalar is then a string.

    Raises:
        ScalarError: The text is no value of that type.
    """
    kind = tag.removeprefix(_STANDARD)
    if kind == tag:
        return text
    if kind == "binary":
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ScalarError("A !!binary value is not the base64 of a text") from error
    if kind == "timestamp" and _TIMESTAMP.match(text):
        return text
    if kind not in _CHECKED:
        return text
    value = type_plain(text)
    if kind != "timestamp" and _CHECKED[kind](value, text):
        return value
    raise ScalarError(f"This value is no !!{kind}")


def _is_integer(value: Scalar, text: str) -> bool:
    digits = text.replace("_", "")
    return type(value) is int and bool(_DECIMAL.match(digits) or _RADIX.match(digits))


_CHECKED: Final[dict[str, Callable[[Scalar, str], bool]]] = {
    "int": _is_integer,
    "float": lambda value, _: type(value) in (int, float),
    "bool": lambda value, _: type(value) is bool,
    "null": lambda value, _: value is None,
    "timestamp": lambda value, _: isinstance(value, str),
}


def _fit(value: int) -> int | float:
    return value if value in _INT64 else float(value)


def _parse_radix(digits: str) -> int | float | None:
    """Parse Go's integer literals with a base: 0x1F, 0b11, 0o17, 017; None where Go's parser fails."""
    match = _RADIX.match(digits)
    if match is None:
        return None
    sign, hexadecimal, binary, octal = match.groups()
    value = int(hexadecimal, 16) if hexadecimal else int(binary, 2) if binary else int(octal, 8)
    if sign == "-":
        return -value if -value in _INT64 else None
    if value > _UINT64_MAX or (sign and value not in _INT64):
        return None
    return _fit(value)


def _parse_float(digits: str) -> int | float | None:
    """Parse a decimal number as Go does, with the type that it has after JSON; None if it is infinite."""
    value = float(digits)
    if math.isinf(value):
        return None
    if value.is_integer() and -_INT64_FLOAT <= value < _INT64_FLOAT:
        return int(value)  # Go writes 1.0 as 1 in JSON, which reads back as an integer
    return value


def key_text(value: Scalar) -> str:
    """Return the JSON object key for a typed YAML key.

    Raises:
        ScalarError: The key is null.

    Source: sigs.k8s.io/yaml yaml.go, convertToJSONableObject.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise ScalarError("A key must not be null")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


Path = tuple[str | int, ...]
"""A field path: keys of mappings and indexes of sequences, from the document's root."""
_ANYTHING = YamlLimits(
    max_bytes=2**62, max_documents=2**62, max_nodes=2**62, max_depth=500, aliases=Aliases.BOUNDED
)
_typed_json = msgspec.json.Decoder(float_hook=type_number).decode
_LONG_INTEGER: Final = regex(rb"[0-9]{19}")
"""Fewer digits always fit into an int64."""
_TYPED_NUMBER: Final = regex(rb"[0-9]{19}|[0-9][.eE]")
_ESCAPES: Final = {"x": 4, "u": 6, "U": 10}


class DocumentSource(Struct, frozen=True):
    """The text of one document within its file.

    `index` is the number of the document among those in `text[start:end]`. It differs from 0 only
    where a `%` directive applies to all documents of a file, so that they are composed together.
    """

    text: str | bytes
    start: int
    end: int
    line: int
    index: int = 0

    def mark(self, path: Path, *, of_key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of the value or key at `path`, or of the nearest ancestor."""
        _, root = self._compose()
        if root is None:
            return self.line, 1
        mark = _find(root, path, of_key=of_key).start_mark
        return mark.line + self.line, mark.column + 1

    def key_mark(self, path: Path) -> tuple[int, int]:
        """Return line and column, from 1, of the key at `path`; for items and absent fields, as `mark`."""
        return self.mark(path, of_key=True)

    def mark_inside(self, path: Path, offset: int) -> tuple[int, int]:
        """Return line and column of one character of the scalar at `path`; of a collection, its start."""
        text, root = self._compose()
        node = None if root is None else _find(root, path, of_key=False)
        if type(node) is not ScalarNode:
            return self.mark(path)
        start = node.start_mark.index
        written = text[start : node.end_mark.index]
        before = text[: start + offset_in_scalar(written, node.style, node.value, offset)]
        return before.count("\n") + self.line, len(before) - before.rfind("\n")

    def _compose(self) -> tuple[str, RawNode | None]:
        """Return the text and its nodes. The last document stays: fields of one are asked for in a row."""
        cached = _last_composed
        if not cached or cached[0][0] is not self:
            cached[:] = [(self, self._composed())]
        return cached[0][1]

    def _composed(self) -> tuple[str, RawNode | None]:
        part = self.text[self.start : self.end]
        text = part if isinstance(part, str) else part.decode(errors="replace")
        try:
            roots = list(compose(text, _ANYTHING))
        except YamlError:
            return text, None
        return text, roots[self.index] if self.index < len(roots) else None


_last_composed: list[tuple[DocumentSource, tuple[str, RawNode | None]]] = []
"""The document that was composed last, alone: a manifest of many targets is asked for each of them."""


class Document(PartlyCompared, frozen=True):
    """One document of a file: its value, and on demand the position of each field.

    `value` is made of dict, list, str, int, float, bool and None. `line` is the first line of
    the document's content in the file, from 1.
    """

    UNCOMPARED = frozenset({"source"})

    value: Any
    line: int
    source: DocumentSource

    def mark(self, path: Path = ()) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path`, or of its nearest existing ancestor."""
        return self.source.mark(path)

    def mark_inside(self, path: Path, offset: int) -> tuple[int, int]:
        """Return line and column, from 1, of the character at `offset` of the text at `path`."""
        return self.source.mark_inside(path, offset)

    def key_mark(self, path: Path) -> tuple[int, int]:
        """Return line and column, from 1, of the key at `path`; for items and absent fields, as `mark`."""
        return self.source.key_mark(path)


def load_documents(data: bytes, limits: YamlLimits = MANIFEST_LIMITS) -> tuple[Document, ...]:
    """Return the documents of a YAML or JSON file; empty and comment-only ones are left out.

    Total: hostile or malformed data is a `YamlError`, never another exception.

    Raises:
        YamlError: The data is not text, not YAML, has a duplicate key, a value that Kubernetes
            refuses, or goes over a limit.
    """
    if data[:1] == b"{" and data.rstrip()[-1:] == b"}" and _most_values(data) <= limits.max_nodes:
        try:
            return (load_json(data, limits),)  # orjson is far faster than libyaml
        except YamlError:
            pass  # flow style, or JSON that only a YAML parser accepts
    text, _, _ = decode(data, limits)
    return tuple(iterate_documents(text, limits))


def _most_values(data: bytes) -> int:
    """Return an upper bound on the number of values in JSON: each but the first is behind one of these."""
    return 1 + sum(map(data.count, (b",", b":", b"[", b"{")))


def iterate_documents(text: str, limits: YamlLimits = MANIFEST_LIMITS) -> Iterator[Document]:
    """Yield the documents of a YAML text one by one, so that a large file needs little memory.

    Raises:
        YamlError: As `load_documents`, when the iteration reaches the faulty document.
    """
    try:
        has_directive = text[:1] == "%" or "\n%" in text
        for index, root in enumerate(compose(text, limits)):
            value = construct(root, limits.max_depth)
            mark = root.start_mark
            if has_directive:
                source = DocumentSource(text, 0, len(text), 1, index)
            else:
                source = DocumentSource(text, mark.index - mark.column, root.end_mark.index, mark.line + 1)
            yield Document(value, mark.line + 1, source)
    except RecursionError as error:
        raise YamlError("The document is nested too deeply", hint="Lower the depth limit.") from error


def load_json(
    data: bytes, limits: YamlLimits = SNAPSHOT_LIMITS, *, check_duplicates: bool = True
) -> Document:
    """Return the one document of a JSON file.

    `check_duplicates` costs three times the parsing; leave it out for machine-written files.

    Raises:
        YamlError: The data is not JSON, has a duplicate key, or goes over a limit.
    """
    if len(data) > limits.max_bytes:
        raise YamlError(f"The file has {plural(len(data), 'byte')}; the limit is {limits.max_bytes}")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise YamlError(f"Not JSON: {error.msg}", line=error.lineno, column=error.colno) from error
    # Counting brackets costs nothing; only a text with many of them can be too deep.
    openers = data.count(b"{") + data.count(b"[")
    if openers > limits.max_depth and _depth(value, limits.max_depth) > limits.max_depth:
        raise YamlError(
            f"Collections are nested more than {plural(limits.max_depth, 'level')} deep", line=1, column=1
        )
    if _TYPED_NUMBER.search(data):
        try:
            value = json_value(data)
        except msgspec.DecodeError as error:
            raise YamlError(f"Not JSON: {error}") from error
    if check_duplicates:
        _check_duplicates(data)
    return Document(value, 1, DocumentSource(data, 0, len(data), 1))


def json_value(data: bytes | msgspec.Raw) -> Any:
    """Return a JSON value with its numbers typed as in Kubernetes, equal to the same value in YAML.

    Raises:
        DecodeError: It is no JSON, or has a number that no computer reads.
        UnicodeDecodeError: It is no text.
    """
    value = _typed_json(data)
    # msgspec decodes any integer; Kubernetes has int64 and float64.
    return _with_int64(value) if _LONG_INTEGER.search(bytes(data)) else value


def _with_int64(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_int64(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_with_int64(child) for child in value]
    return type_number(str(value)) if type(value) is int else value


def construct(root: RawNode | AliasNode, max_depth: int) -> Any:
    """Return the value of a composed node.

    Raises:
        YamlError: A duplicate or impossible key, an impossible value, or too much depth.
    """
    if isinstance(root, AliasNode):
        return construct(root.value, max_depth)
    if isinstance(root, MappingNode):
        return _mapping(root, max_depth)
    return _sequence(root, max_depth) if isinstance(root, SequenceNode) else _scalar(root)


def _mapping(node: MappingNode, depth: int) -> dict[str, Any]:  # noqa: C901, PLR0912 - the hot loop, inlined
    """Return the value of a mapping; `depth` is the number of levels that may still follow."""
    if not depth:
        raise error_at(node.start_mark, "Collections are nested too deeply")
    result: dict[str, Any] = {}
    inherited: set[str] = set()
    # Untagged strings, most keys and values, are typed here without a call.
    for key_node, value_node in node.value:
        key = key_node.value
        if key_node.tag:
            if key_node.tag == UNTAGGED and key == "<<":
                inherited |= _merge_into(result, value_node, depth)
                continue
            if key_node.tag != UNTAGGED or key in WORDS or key[0] in NUMBER_STARTS:
                key = typed_key(key_node)
        if type(key_node) is not ScalarNode:  # an alias, or a collection, which is an error
            key = typed_key(key_node)
        if key in result:
            if key not in inherited:
                raise error_at(key_node.start_mark, f"Key {key!r} is set twice in one mapping")
            inherited.discard(key)
        key = intern(key)  # most files have the same few keys
        text = value_node.value
        kind = type(value_node)
        if kind is ScalarNode:
            tag = value_node.tag
            if tag == UNTAGGED:
                if text in WORDS:
                    result[key] = WORDS[text]
                elif text[0] in NUMBER_STARTS:
                    result[key] = _scalar(value_node)
                else:
                    result[key] = text
            else:
                result[key] = _scalar(value_node) if tag else text
        else:
            result[key] = construct(value_node, depth - 1)
    return result


def _sequence(node: SequenceNode, depth: int) -> list[Any]:
    if not depth:
        raise error_at(node.start_mark, "Collections are nested too deeply")
    depth -= 1
    return [_scalar(item) if type(item) is ScalarNode else construct(item, depth) for item in node.value]


def _scalar(node: ScalarNode) -> Scalar:
    tag = node.tag
    text: str = node.value
    if not tag:
        return text
    try:
        return type_plain(text) if tag == UNTAGGED else type_tagged(tag, text)
    except ScalarError as error:
        raise error_at(node.start_mark, str(error)) from error


def _merge_into(result: dict[str, Any], node: RawNode | AliasNode, depth: int) -> set[str]:
    """Merge a `<<` value into a mapping: it overrides the keys above it, and the keys below override it.

    Returns the inherited keys, which the mapping may set again without being a duplicate.

    Source: sigs.k8s.io/yaml goyaml.v2/decode.go, merge.
    """
    node = node.value if isinstance(node, AliasNode) else node
    sources = reversed(node.value) if isinstance(node, SequenceNode) else (node,)
    inherited: set[str] = set()
    for source in sources:
        mapping = source.value if isinstance(source, AliasNode) else source
        if type(mapping) is not MappingNode:
            raise error_at(mapping.start_mark, "A merge needs a mapping or a sequence of mappings")
        values = _mapping(mapping, depth)
        result.update(values)
        inherited |= values.keys()
    return inherited


def typed_key(node: RawNode | AliasNode) -> str:
    """Return the string that a key node becomes in JSON.

    Raises:
        YamlError: The key is a collection, null, or has no JSON form.
    """
    if isinstance(node, AliasNode):
        return typed_key(node.value)
    if not isinstance(node, ScalarNode):
        raise error_at(node.start_mark, "A key must be a scalar")
    if _is_text(node):
        return str(node.value)
    try:
        if node.tag == UNTAGGED:
            return key_text(type_plain(node.value))
        return key_text(type_tagged(node.tag, node.value)) if node.tag else str(node.value)
    except ScalarError as error:
        raise error_at(node.start_mark, str(error)) from error


def index_of(node: RawNode | AliasNode, step: str | int) -> int:
    """Return the index of the entry with key `step`, or of the item numbered `step`; -1 if there is none."""
    if isinstance(node, MappingNode) and isinstance(step, str):
        # Most keys are strings; only if none fits, keys such as `on` or `0x1` are typed.
        for index, (key, _) in enumerate(node.value):
            if key.value == step and _is_key(key, step):
                return index
        rest = (
            (i, key)
            for i, (key, _) in enumerate(node.value)
            if type(key) is not ScalarNode or not _is_text(key)
        )
        return next((index for index, key in rest if _is_key(key, step)), -1)
    if isinstance(node, SequenceNode) and isinstance(step, int) and 0 <= step < len(node.value):
        return step
    return -1


def _is_key(node: RawNode | AliasNode, name: str) -> bool:
    return node.value == name if isinstance(node, ScalarNode) and _is_text(node) else typed_key(node) == name


def _is_text(node: ScalarNode) -> bool:
    """Tell cheaply that a scalar is a string: quoted, or neither a keyword nor like the start of a number."""
    text: str = node.value
    return not node.tag or (node.tag == UNTAGGED and text not in WORDS and text[0] not in NUMBER_STARTS)


def _find(root: RawNode, path: Path, *, of_key: bool) -> RawNode:
    node: Any = root
    for depth, step in enumerate(path, 1):
        index = index_of(node, step)
        if index < 0:
            return cast("RawNode", node)
        if isinstance(node, SequenceNode):
            node = node.value[index]
            continue
        key, value = node.value[index]
        if of_key and depth == len(path):
            return cast("RawNode", key)
        node = value
    return cast("RawNode", node)


def offset_in_scalar(written: str, style: str | None, value: str, offset: int) -> int:
    """Return the offset in `written` of the character `value[offset]`.

    Total: beyond the end, and where folding removed the character, it is the nearest one before.
    `written` is the scalar as it is in the file, with quotes or block header.
    """
    position = _content_start(written, style)
    margin = _margin(written[position:]) if style in {"|", ">"} else 0
    if margin:
        position = _skip_margin(written, position, margin)
    for index in range(min(offset, len(value))):
        position = _after(written, position, value[index], style, margin)
    return min(position, max(len(written) - 1, 0))


def _content_start(written: str, style: str | None) -> int:
    if style in {"|", ">"}:
        return written.find("\n") + 1
    return 1 if style in {"'", '"'} else 0


def _margin(block: str) -> int:
    lines = [line for line in block.split("\n") if line.strip(" ")]
    return len(lines[0]) - len(lines[0].lstrip(" ")) if lines else 0


def _skip_margin(written: str, position: int, margin: int) -> int:
    end = position
    while end < len(written) and end - position < margin and written[end] == " ":
        end += 1
    return end


def _after(written: str, position: int, character: str, style: str | None, margin: int) -> int:
    """Return the offset behind the text of one character of the value."""
    if position >= len(written):
        return position
    here = written[position]
    if style == '"' and here == "\\":
        return position + _ESCAPES.get(written[position + 1 : position + 2], 2)
    if style == "'" and here == "'":
        return position + 2
    if margin:
        return _skip_margin(written, position + 1, margin) if here == "\n" else position + 1
    if character in " \n" and here in " \t\n":
        # A folded line break takes the blanks around it along; within a line it is one blank only.
        end = position
        while end < len(written) and written[end] in " \t\r\n":
            end += 1
        return end if "\n" in written[position:end] else position + 1
    return position + 1


def _depth(value: Any, limit: int) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    if limit < 0:
        return 1
    children = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(child, limit - 1) for child in children), default=0)


def _check_duplicates(data: bytes) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise YamlError(f"Key {twice!r} is set twice in one object", line=1, column=1)

    try:
        JSONDecoder(object_pairs_hook=unique).decode(data.decode())
    except JSONDecodeError as error:
        raise YamlError("Not JSON", line=1, column=1) from error
