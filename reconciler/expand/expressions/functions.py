"""The portable engine's functions: CEL's standard library and its strings extension on Python values."""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import re2

from reconciler.expand.expressions import times
from reconciler.expand.expressions.literals import INT_MAX, INT_MIN, Uint
from reconciler.expand.expressions.values import (
    NUMBERS,
    Duration,
    FaultError,
    MapValue,
    Timestamp,
    TypeValue,
    equal,
    fit_int,
    fit_uint,
    format_double,
    kind_of,
    less,
)

_OVERLOAD = "no such overload"
_SPACE = " \t\n\v\f\r"
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)


def call(functions: Mapping[str, Callable[..., Any]], name: str, arguments: list[Any]) -> Any:
    """Apply a function or operator, without regard to how it is written.

    Raises:
        FaultError: No overload fits the values, or the function fails on them.
    """
    function = functions.get(name)
    if function is None:
        raise FaultError(f"undeclared reference to '{name}'")
    try:
        return function(*arguments)
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError) as error:
        raise FaultError(_OVERLOAD) from error


def _strings(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> Any:
        if all(isinstance(argument, str) for argument in arguments):
            return function(*arguments)
        raise FaultError(_OVERLOAD)

    return checked


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(left: Any, right: Any) -> Any:
        kind = kind_of(left)
        if kind != kind_of(right) or kind not in NUMBERS:
            raise FaultError(_OVERLOAD)
        if kind == "double":
            return function(left, right)
        result = function(int(left), int(right))
        return fit_int(result) if kind == "int" else fit_uint(result)

    return checked


def _add(left: Any, right: Any) -> Any:
    kinds = (kind_of(left), kind_of(right))
    if kinds in {("string", "string"), ("bytes", "bytes"), ("list", "list")}:
        return left + right
    if kinds == ("duration", "timestamp"):
        left, right, kinds = right, left, ("timestamp", "duration")
    if kinds == ("timestamp", "duration"):
        return times.timestamp(left.nanoseconds + right.nanoseconds)
    if kinds == ("duration", "duration"):
        return Duration(fit_int(times.clamp(left) + times.clamp(right)))
    return _arithmetic(operator.add)(left, right)


def _subtract(left: Any, right: Any) -> Any:
    kinds = (kind_of(left), kind_of(right))
    if kinds == ("timestamp", "duration"):
        return times.timestamp(left.nanoseconds - times.clamp(right))
    if kinds == ("timestamp", "timestamp"):
        return Duration(fit_int(left.nanoseconds - right.nanoseconds))
    if kinds == ("duration", "duration"):
        return Duration(fit_int(times.clamp(left) - times.clamp(right)))
    return _arithmetic(operator.sub)(left, right)


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, float) and isinstance(right, float):
        return _divide_doubles(left, right)

    def truncate(one: int, other: int) -> int:
        if other == 0:
            raise FaultError("division by zero")
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) == (other < 0) else -quotient

    return _arithmetic(truncate)(left, right)


def _divide_doubles(left: float, right: float) -> float:
    try:
        return left / right
    except ZeroDivisionError:
        if left == 0 or left != left:  # noqa: PLR0124 - not a number
            return -float("nan")
        negative = (format_double(left)[0] == "-") != (format_double(right)[0] == "-")
        return float("-inf") if negative else float("inf")


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        raise FaultError(_OVERLOAD)

    def truncate(one: int, other: int) -> int:
        if other == 0:
            raise FaultError("modulus by zero")
        rest = abs(one) % abs(other)
        return -rest if one < 0 else rest

    return _arithmetic(truncate)(left, right)


def _negate(value: Any) -> Any:
    if kind_of(value) == "int":
        return fit_int(-value)
    if kind_of(value) == "double":
        return -value
    raise FaultError(_OVERLOAD)


def _not(value: Any) -> bool:
    if isinstance(value, bool):
        return not value
    raise FaultError(_OVERLOAD)


def _in(item: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(equal(item, other) for other in container)
    if isinstance(container, MapValue):
        return container.find(item) is not None
    raise FaultError(_OVERLOAD)


def _index(container: Any, key: Any) -> Any:
    if isinstance(container, list):
        if kind_of(key) not in NUMBERS or key != int(key):
            raise FaultError(_OVERLOAD)
        if not 0 <= key < len(container):
            raise FaultError(f"Index error: index={int(key)} size={len(container)}")
        return container[int(key)]
    if isinstance(container, MapValue):
        entry = container.find(key)
        if entry is None:
            raise FaultError(f"no such key: {key}")
        return entry[1]
    raise FaultError(_OVERLOAD)


def _size(value: Any) -> int:
    if isinstance(value, MapValue):
        return len(value.entries)
    if isinstance(value, str | bytes | list):
        return len(value)
    raise FaultError(_OVERLOAD)


@_strings
def _matches(text: str, pattern: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(text) is not None
    except re2.error as error:
        raise FaultError(f"error parsing regexp: {error}") from error


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        digits = value.strip(_SPACE)
        if not re.fullmatch(r"[+-]?[0-9]+", digits) or not INT_MIN <= int(digits) <= INT_MAX:
            raise FaultError("cannot convert string to int")
        return int(digits)
    if isinstance(value, Timestamp):
        return value.nanoseconds // times.SECOND
    if kind_of(value) not in {*NUMBERS, "bool"}:
        raise FaultError(_OVERLOAD)
    return fit_int(_truncate(value, INT_MIN, INT_MAX))


def _to_uint(value: Any) -> Uint:
    if isinstance(value, str):
        digits = value.strip(_SPACE)
        if not re.fullmatch(r"[+]?[0-9]+", digits):
            raise FaultError("cannot convert string to uint")
        return fit_uint(int(digits))
    if kind_of(value) not in NUMBERS:
        raise FaultError(_OVERLOAD)
    return fit_uint(_truncate(value, 0, 2**64))


def _truncate(value: Any, low: int, high: int) -> int:
    if isinstance(value, float) and not (low <= value < high):
        raise FaultError("double out of range")
    return int(value)


def _to_double(value: Any) -> float:
    if isinstance(value, str):
        text = value.strip(_SPACE)
        if not _FLOAT.fullmatch(text) and not _SPECIAL.fullmatch(text):
            raise FaultError("cannot convert string to double")
        return float(text)
    if kind_of(value) not in NUMBERS:
        raise FaultError(_OVERLOAD)
    return float(value)


def _to_string(value: Any) -> str:  # noqa: PLR0911 - one line per type
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return format_double(value)
        case int():
            return str(int(value))
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise FaultError("malformed UTF-8 bytes") from error
        case Timestamp():
            return times.format_timestamp(value)
        case Duration():
            return times.format_duration(value)
    raise FaultError(_OVERLOAD)


_BOOLS = dict.fromkeys(("true", "True", "TRUE", "t", "1"), True) | dict.fromkeys(
    ("false", "False", "FALSE", "f", "0"), False
)


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value in _BOOLS:
            return _BOOLS[value]
        raise FaultError("Type conversion error from 'string' to 'bool'")
    raise FaultError(_OVERLOAD)


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise FaultError(_OVERLOAD)


def _to_timestamp(value: Any) -> Timestamp:
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, str):
        return times.parse_timestamp(value)
    if kind_of(value) == "int":
        return times.timestamp(value * times.SECOND)
    raise FaultError(_OVERLOAD)


def _to_duration(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    if isinstance(value, str):
        return times.parse_duration(value)
    raise FaultError(_OVERLOAD)


def _getter(name: str) -> Callable[[Any], int]:
    def get(moment: Any) -> int:
        if isinstance(moment, Timestamp | Duration):
            return times.field_of(name, moment)
        raise FaultError(_OVERLOAD)

    return get


_GETTERS = (
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _arithmetic(operator.mul),
    "_/_": _divide,
    "_%_": _remainder,
    "-_": _negate,
    "!_": _not,
    "_<_": less,
    "_>_": lambda left, right: less(right, left),
    "_<=_": lambda left, right: less(left, right) or equal(left, right),
    "_>=_": lambda left, right: less(right, left) or equal(left, right),
    "_==_": equal,
    "_!=_": lambda left, right: not equal(left, right),
    "_in_": _in,
    "_[_]": _index,
    "size": _size,
    "startsWith": _strings(str.startswith),
    "endsWith": _strings(str.endswith),
    "contains": _strings(lambda text, part: part in text),
    "matches": _matches,
    "dyn": lambda value: value,
    "type": lambda value: TypeValue(kind_of(value)),
    "int": _to_int,
    "uint": _to_uint,
    "double": _to_double,
    "string": _to_string,
    "bytes": _to_bytes,
    "bool": _to_bool,
    "timestamp": _to_timestamp,
    "duration": _to_duration,
    **{name: _getter(name) for name in _GETTERS},
}
