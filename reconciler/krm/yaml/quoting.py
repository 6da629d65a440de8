"""Writing one scalar so that every reader gives back the value that we meant."""

import math
import re
from enum import StrEnum
from typing import Any, Final

import orjson

from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.scalars import ScalarError, type_plain


class Style(StrEnum):
    """How a node is written."""

    PLAIN = "plain"
    SINGLE = "single"
    DOUBLE = "double"
    LITERAL = "literal"
    FOLDED = "folded"
    BLOCK = "block"
    FLOW = "flow"


_UNPRINTABLE: Final = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_NOT_PLAIN: Final = re.compile(
    r"[\s#&*!|>'\"%@`,\[\]{}?:]"  # an indicator or space at the start
    r"|-(?:\s|\Z)"
    r"|(?:---|\.\.\.)(?:\s|\Z)"
    r"|.*(?::(?:\s|\Z)|\s#|[\t\n]|\s\Z)",
    re.DOTALL,
)
_NOT_PLAIN_IN_FLOW: Final = re.compile(r"[,?\[\]{}]|:\Z")
_READ_OTHERWISE: Final = re.compile(
    r"=|<<|~"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"  # a date of YAML 1.1
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # a number to base 60 of YAML 1.1
    r"|[-+]?(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?0[xobXOB][0-9a-fA-F_]+"
    r"|[-+]?\.?(?:inf|Inf|INF|nan|NaN|NAN)"
)
_LARGEST: Final = 2**63


def write_scalar(value: Any, *, like: Style = Style.PLAIN, flow: bool = False, indent: int = 2) -> str:
    """Return a scalar as text; lines after the first are indented by `indent`, for a block scalar.

    A string keeps the style `like` if it can be written so; otherwise it is plain if every reader
    takes it for a string, a literal block if it has several lines, else double-quoted.

    Raises:
        YamlError: The value has no exact form in YAML as Kubernetes reads it.
    """
    if not isinstance(value, str):
        return _write_other(value)
    block = not flow and "\r" not in value and not _UNPRINTABLE.search(value) and value.strip("\n") != ""
    if block and (like in (Style.LITERAL, Style.FOLDED) or (like is Style.PLAIN and "\n" in value)):
        return _write_block(value, folded=like is Style.FOLDED, indent=indent)
    if like is Style.SINGLE and "\n" not in value and not _UNPRINTABLE.search(value):
        return "'" + value.replace("'", "''") + "'"
    if like is Style.PLAIN and is_plain(value, flow=flow):
        return value
    return _write_double(value)


def write_key(name: str, *, flow: bool = False) -> str:
    """Return a mapping key as text.

    Raises:
        YamlError: The key is no string, or is too long to be a simple key.
    """
    if not isinstance(name, str):
        raise YamlError(f"A key must be a string, not {type(name).__name__}")
    text = name if is_plain(name, flow=flow) else _write_double(name)
    if len(text) > _LONGEST_KEY:
        raise YamlError(f"A key of {len(text)} characters is too long")
    return text


_LONGEST_KEY: Final = 1000


def is_plain(text: str, *, flow: bool = False) -> bool:
    """Tell whether a string can be written without quotes and is read as a string by every reader."""
    if not text or _NOT_PLAIN.match(text) or _UNPRINTABLE.search(text):
        return False
    if _READ_OTHERWISE.fullmatch(text) or (flow and _NOT_PLAIN_IN_FLOW.search(text)):
        return False
    try:
        return isinstance(type_plain(text), str)
    except ScalarError:
        return False


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
    return _UNPRINTABLE.sub(_escape, quoted)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04X}"  # noqa: PLR2004 - the largest \u escape


def _write_block(text: str, *, folded: bool, indent: int) -> str:
    """Write a literal block, or a folded one where no line starts with a space."""
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    folded = folded and not re.search(r"^[ \t]", body, re.MULTILINE)
    if folded:
        body = re.sub(r"\n+", lambda run: run[0] + "\n", body)
    hint = str(indent) if text[0] in " \n\t" else ""
    chomp = "-" if ends == 0 else "" if ends == 1 else "+"
    pad = " " * indent
    lines = [pad + line if line else "" for line in body.split("\n")]
    lines += [""] * (ends - 1)
    return "\n".join([(">" if folded else "|") + hint + chomp, *lines])
