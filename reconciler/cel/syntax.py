"""Syntax tree of an expression, literals and their decoding, and errors with their offset in the text."""

import re
from collections.abc import Iterator

from msgspec import Struct

from reconciler.base.lazy import lazy_pattern

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
_ESCAPE = lazy_pattern(
    r"\\(?:(?P<simple>[abfnrtv\"'`\\?])|(?P<octal>[0-3][0-7]{2})|[xX](?P<hex>[0-9a-fA-F]{2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<bad>.))",
    re.DOTALL,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_END, _SURROGATES = 0x110000, range(0xD800, 0xE000)
_INTEGER = lazy_pattern(r"-?(?:0[xX][0-9a-fA-F]+|[0-9]+)")
_FLOAT = lazy_pattern(
    r"-?(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
)
_PORCH_NAMES = {
    "null": "'null_type'",
    "null_type": "'null_type'",
    "timestamp": "'Timestamp'",
    "duration": "'Duration'",
    "bytes": "Bytes",
    "double": "Double",
    "unordered list": "list",
}
"""Names of types as cel-go's conversion errors spell them."""


class Failure(Struct, frozen=True):
    """Why an expression was refused, or why its evaluation failed: a value, never raised.

    `offset` counts characters from the start of the expression; None where the whole
    expression is meant, as for every error of an evaluation.
    """

    message: str
    offset: int | None = None


class CelError(Exception):
    """Raised and caught inside this package only; `Environment` returns its `failure`."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.failure = Failure(message, offset)


def not_a_string(kind: str, offset: int | None = None) -> Failure:
    """Return the failure of an expression with a value that is no string, in the wording of Porch."""
    if kind in {"int", "uint"}:
        return Failure(f"unsupported type conversion from '{kind}' to string", offset)
    if kind == "type":
        return Failure("type conversion not supported for 'type'", offset)
    return Failure(f"type conversion error from {_PORCH_NAMES.get(kind, kind)} to 'string'", offset)


class Uint(int):
    """An unsigned integer, distinguished from an int by its type."""


Value = str | bytes | bool | int | float | None


class Literal(Struct, frozen=True):
    """A constant."""

    offset: int
    value: Value


class Name(Struct, frozen=True):
    """A variable or a type; one with a leading dot is not a macro's variable."""

    offset: int
    name: str


class Select(Struct, frozen=True):
    """`operand.field`, or `has(operand.field)` where `test` is set."""

    offset: int
    operand: "Node"
    field: str
    test: bool = False


class Call(Struct, frozen=True):
    """A function, method or operator as CEL spells it (`_+_`); a method's target is its first argument."""

    offset: int
    function: str
    arguments: tuple["Node", ...]
    method: bool = False


class ListOf(Struct, frozen=True):
    """A list literal."""

    offset: int
    items: tuple["Node", ...]


class MapOf(Struct, frozen=True):
    """A map literal."""

    offset: int
    entries: tuple[tuple["Node", "Node"], ...]


class Message(Struct, frozen=True):
    """A message literal; only the wrapper types of strings and numbers are valid."""

    offset: int
    name: str
    fields: tuple[tuple[str, "Node"], ...]


class Macro(Struct, frozen=True):
    """A comprehension; `arguments` are one body, or the filter and the body of a three-way `map`."""

    offset: int
    macro: str
    operand: "Node"
    variable: str
    arguments: tuple["Node", ...]


Node = Literal | Name | Select | Call | ListOf | MapOf | Message | Macro


def children(node: Node) -> Iterator[Node]:
    """Yield the direct children of a node."""
    match node:
        case Select(operand=operand):
            yield operand
        case Call(arguments=arguments) | ListOf(items=arguments):
            yield from arguments
        case MapOf(entries=entries):
            for key, value in entries:
                yield key
                yield value
        case Message(fields=fields):
            yield from (value for _, value in fields)
        case Macro(operand=operand, arguments=arguments):
            yield operand
            yield from arguments


def decode_string(text: str, offset: int) -> str | bytes:
    """Return the value of a string or bytes literal.

    Raises:
        CelError: An escape is not one of CEL's.
    """
    is_bytes = text[0] in "bB"
    body = text[1:] if is_bytes else text
    raw = body[0] in "rR"
    body = body[1:] if raw else body
    width = 3 if len(body) >= 6 and body[:3] in {'"""', "'''"} else 1  # noqa: PLR2004 - two fences
    inner = body[width:-width].replace("\r\n", "\n").replace("\r", "\n")
    start = offset + len(text) - len(body) + width
    if raw:
        return inner.encode() if is_bytes else inner
    return _unescape_bytes(inner, start) if is_bytes else _unescape(inner, start)


def decode_number(text: str, offset: int) -> int | float | Uint:
    """Return the value of a number literal, with its sign.

    Raises:
        CelError: The number is not one of CEL's, or does not fit.
    """
    if _FLOAT.fullmatch(text):
        return float(text)
    digits = text.rstrip("uU")
    if not _INTEGER.fullmatch(digits) or len(text) - len(digits) > 1:
        raise CelError(f"Syntax error: '{text}' is not a number", offset)
    value = int(digits, 16) if "x" in digits.lower() else int(digits)
    if digits != text:
        if not 0 <= value <= UINT_MAX:
            raise CelError("The unsigned integer is out of range", offset)
        return Uint(value)
    if not INT_MIN <= value <= INT_MAX:
        raise CelError("The integer is out of range", offset)
    return value


def _unescape(text: str, offset: int) -> str:
    def unescape(match: re.Match[str]) -> str:
        kind, code = match.lastgroup, match.group(match.lastgroup or 0)
        if kind == "simple":
            return _SIMPLE.get(code, code)
        if kind == "bad":
            raise CelError(f"Syntax error: unknown escape '\\{code}'", offset + match.start())
        point = int(code, 8 if kind == "octal" else 16)
        if point >= _END or point in _SURROGATES:
            raise CelError("Syntax error: an escape is no Unicode character", offset + match.start())
        return chr(point)

    return _ESCAPE.sub(unescape, text)


def _unescape_bytes(text: str, offset: int) -> bytes:
    out, last = [], 0
    for match in _ESCAPE.finditer(text):
        out.append(text[last : match.start()].encode())
        last = match.end()
        if match.lastgroup in {"octal", "hex"}:
            code = match.group(match.lastgroup)
            out.append(bytes([int(code, 8 if match.lastgroup == "octal" else 16)]))
        elif match.lastgroup in {"short", "long"}:
            raise CelError("Syntax error: bytes have no Unicode escapes", offset + match.start())
        else:
            out.append(_unescape(match.group(), offset + match.start()).encode())
    out.append(text[last:].encode())
    return b"".join(out)
