"""Write values as new YAML text that every reader types alike, in the indentation of the file."""

import math
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import orjson
from msgspec import Struct

from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.krm.yaml.compose import YamlError
from reconciler.krm.yaml.load import ScalarError, type_plain

_DASH: Final = 2
_DEEPEST: Final = 200
_LARGEST: Final = 2**63
_LONGEST_KEY: Final = 1000
_UNPRINTABLE: Final = regex(  # few characters: a class of all others takes 4 ms to compile
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
)
_NOT_PLAIN: Final = regex(
    r"[\s#&*!|>'\"%@`,\[\]{}?:]"  # an indicator or space at the start
    r"|-(?:\s|\Z)"
    r"|(?:---|\.\.\.)(?:\s|\Z)"
    r"|.*(?::(?:\s|\Z)|\s#|[\t\n]|\s\Z)",
    re.DOTALL,
)
_NOT_PLAIN_IN_FLOW: Final = regex(r"[,?\[\]{}]|:\Z")
_READ_OTHERWISE: Final = regex(
    r"=|<<|~"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"  # a date of YAML 1.1
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # a number to base 60 of YAML 1.1
    r"|[-+]?(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?0[xobXOB][0-9a-fA-F_]+"
    r"|[-+]?\.?(?:inf|Inf|INF|nan|NaN|NAN)"
)


class Style(StrEnum):
    """Style of a node."""

    PLAIN = "plain"
    SINGLE = "single"
    DOUBLE = "double"
    LITERAL = "literal"
    FOLDED = "folded"
    BLOCK = "block"
    FLOW = "flow"


class Indentation(Struct, frozen=True):
    """Indentation of a file: the width of one level, and whether lists start in the column of their key."""

    width: int = 2
    compact_lists: bool = True


DEFAULT_INDENTATION: Final = Indentation()


class Raw(Struct, frozen=True):
    """YAML text to insert unchanged, except that it is indented to its new position.

    In `SetValue` it is the text of one value. In `AddKey` and `InsertItem` it is the whole entry:
    head comments, `key: value` or `- value`, line comment, foot comments. The first line starts at
    column 0, and there is no line break at the end.
    """

    text: str


def emit(value: Any, indentation: Indentation = DEFAULT_INDENTATION, *, flow: bool = False) -> str:
    """Return a value as YAML text without a line break at its end.

    Strings that a YAML 1.1 or 1.2 reader would take for another type are quoted; strings of several
    lines become literal blocks. The order of keys is kept.

    Raises:
        YamlError: The value has no exact form in YAML as Kubernetes reads it.
    """
    if flow:
        return _flow(value, _DEEPEST)
    return "\n".join(_lines(value, indentation, _DEEPEST))


def emit_entry(name: str, value: Any, indentation: Indentation = DEFAULT_INDENTATION) -> str:
    """Return `name: value` as a block entry, without a line break at its end.

    Raises:
        YamlError: As `emit`.
    """
    return "\n".join(_entry(name, value, indentation, _DEEPEST))


def emit_item(value: Any, indentation: Indentation = DEFAULT_INDENTATION) -> str:
    """Return `- value` as a block item, without a line break at its end.

    Raises:
        YamlError: As `emit`.
    """
    return "\n".join(_item(value, indentation, _DEEPEST))


def is_collection(value: Any) -> bool:
    """Tell whether a value needs lines of its own: a mapping or list that is not empty."""
    return isinstance(value, (dict, list, tuple)) and len(value) > 0


def write_scalar(value: Any, *, like: Style = Style.PLAIN, flow: bool = False, indent: int = 2) -> str:
    """Return a scalar as text; the lines of a block scalar after its header are indented by `indent`.

    A string keeps the style `like` where possible; otherwise it is plain if every reader takes it
    for a string, a literal block if it has several lines, else double-quoted.

    Raises:
        YamlError: The value has no exact form in YAML as Kubernetes reads it.
    """
    if not isinstance(value, str):
        return _write_other(value)
    block = not flow and "\r" not in value and not _has_unprintable(value) and value.strip("\n") != ""
    if block and (like in (Style.LITERAL, Style.FOLDED) or (like is Style.PLAIN and "\n" in value)):
        return _write_block(value, folded=like is Style.FOLDED, indent=indent)
    if like is Style.SINGLE and "\n" not in value and not _has_unprintable(value):
        return "'" + value.replace("'", "''") + "'"
    if like is Style.PLAIN and is_plain(value, flow=flow):
        return value
    return _write_double(value)


def write_key(name: str, *, flow: bool = False) -> str:
    """Return a mapping key as text.

    Raises:
        YamlError: The key is no string, or is longer than 1,000 characters (YAML allows 1,024).
    """
    if not isinstance(name, str):
        raise YamlError(f"A key must be a string, not {type(name).__name__}")
    text = name if is_plain(name, flow=flow) else _write_double(name)
    if len(text) > _LONGEST_KEY:
        raise YamlError(f"A key of {plural(len(text), 'character')} is too long")
    return text


def is_plain(text: str, *, flow: bool = False) -> bool:
    """Tell whether every reader takes a string without quotes for this string."""
    if not text or _NOT_PLAIN.match(text) or _has_unprintable(text):
        return False
    if _READ_OTHERWISE.fullmatch(text) or (flow and _NOT_PLAIN_IN_FLOW.search(text)):
        return False
    try:
        return isinstance(type_plain(text), str)
    except ScalarError:
        return False


def dedent_lines(text: str, column: int) -> str:
    """Move a text, the first line of which starts at `column`, to column 0."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(_move(line, -column) for line in rest)])


def indent_lines(text: str, column: int) -> str:
    """Indent all lines but the first by `column`; blank lines stay blank."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(_move(line, column) for line in rest)])


def _lines(value: Any, indentation: Indentation, depth: int) -> Iterator[str]:
    """Yield the lines of a value; the content of a block scalar is indented relative to its parent.

    `depth` is the number of levels that may still follow.
    """
    if not depth:
        raise YamlError("The value is nested too deeply to be written")
    if not is_collection(value):
        yield from _flow(value, depth, indent=indentation.width).split("\n")
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _entry(name, child, indentation, depth - 1)
    else:
        for child in value:
            yield from _item(child, indentation, depth - 1)


def _entry(name: str, value: Any, indentation: Indentation, depth: int) -> Iterator[str]:
    key = write_key(name)
    lines = _lines(value, indentation, depth)
    if not is_collection(value):
        yield f"{key}: {next(lines)}"
        yield from lines
        return
    yield f"{key}:"
    width = indentation.width if isinstance(value, dict) or not indentation.compact_lists else 0
    yield from _indented(lines, width)


def _item(value: Any, indentation: Indentation, depth: int) -> Iterator[str]:
    lines = _lines(value, indentation, depth)
    yield f"- {next(lines)}"
    yield from _indented(lines, _DASH) if is_collection(value) else lines


def _indented(lines: Iterator[str], width: int) -> Iterator[str]:
    for line in lines:
        yield " " * width + line if line else line


def _flow(value: Any, depth: int, *, indent: int = 0) -> str:
    """Write a value on one line; with `indent`, a scalar may become a block scalar."""
    if not depth:
        raise YamlError("The value is nested too deeply to be written")
    if isinstance(value, dict):
        parts = (f"{write_key(name, flow=True)}: {_flow(child, depth - 1)}" for name, child in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(child, depth - 1) for child in value) + "]"
    return write_scalar(value, flow=not indent, indent=indent)


def _write_other(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -_LARGEST <= value < _LARGEST:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise YamlError(f"{str(value)[:40]} has no exact form in JSON", hint="Write it as a string.")


def _write_double(text: str) -> str:
    try:
        quoted = orjson.dumps(text).decode()
    except orjson.JSONEncodeError as error:
        raise YamlError("A string has a lone surrogate, which is no text") from error
    return _UNPRINTABLE.sub(_escape, quoted) if _has_unprintable(quoted) else quoted


def _has_unprintable(text: str) -> bool:
    # The pattern takes milliseconds to compile, and nearly every text is such ASCII.
    if text.isascii() and text.replace("\n", "").isprintable():
        return False
    return _UNPRINTABLE.search(text) is not None


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04X}"  # noqa: PLR2004 - the largest \u escape


def _write_block(text: str, *, folded: bool, indent: int) -> str:
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    folded = folded and not re.search(r"^[ \t]", body, re.MULTILINE)
    if folded:
        body = re.sub(r"\n+", lambda run: run[0] + "\n", body)
    # A reader derives the indentation from the first line, which must not start with a blank then.
    hint = str(indent) if text[0] in " \n\t" else ""
    chomp = "-" if ends == 0 else "" if ends == 1 else "+"
    pad = " " * indent
    lines = [pad + line if line else "" for line in body.split("\n")]
    lines += [""] * (ends - 1)
    return "\n".join([(">" if folded else "|") + hint + chomp, *lines])


def _move(line: str, by: int) -> str:
    if by >= 0:
        return " " * by + line if line.strip() else line
    have = len(line) - len(line.lstrip(" "))
    return line[min(have, -by) :]
