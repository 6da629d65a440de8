"""Type a scalar exactly as Kubernetes reads it.

Kubernetes converts YAML to JSON with sigs.k8s.io/yaml and reads the JSON: YAML 1.1 booleans
are booleans, a leading zero means octal, dates stay strings, and a float without a fraction
becomes an integer on its way through JSON.

Source: sigs.k8s.io/yaml goyaml.v2/resolve.go and yaml.go (convertToJSONableObject);
apimachinery util/json (integers that fit 64 bits, else float64).
"""

import base64
import binascii
import math
import re
from collections.abc import Callable
from typing import Final

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
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})\Z")
_RADIX: Final = re.compile(r"([-+]?)0(?:[xX]([0-9a-fA-F]{1,16})|[bB]([01]{1,64})|[oO]?([0-7]{1,22}))\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_TIMESTAMP: Final = re.compile(
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
