"""CEL's values in Python for the portable engine: what Python has no type for, equality, order, text."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.expand.expressions.literals import INT_MAX, INT_MIN, UINT_MAX, Uint


class FaultError(Exception):
    """Evaluation failed; logic operators may absorb it, the engine turns it into a `Failure`."""


class TypeValue(NamedTuple):
    """A type as a value; parameters do not matter to equality."""

    name: str


class Timestamp(NamedTuple):
    """A point in time, in nanoseconds since 1970."""

    nanoseconds: int


class Duration(NamedTuple):
    """A length of time, in nanoseconds."""

    nanoseconds: int


@dataclass(frozen=True, slots=True)
class MapValue:
    """A map whose numeric keys are equal across types, and whose `true` is not 1."""

    entries: Mapping[tuple[str, Any], tuple[Any, Any]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[Any, Any]]) -> "MapValue":
        """Build a map, refusing equal keys and keys of other types."""
        entries: dict[tuple[str, Any], tuple[Any, Any]] = {}
        for key, value in pairs:
            identity = _identity(key)
            if identity is None or isinstance(key, float):
                raise FaultError(f"Invalid map key type: '{kind_of(key)}'")
            if identity in entries:
                raise FaultError("Duplicate key in map")
            entries[identity] = (key, value)
        return cls(entries)

    def find(self, key: Any) -> tuple[Any, Any] | None:
        """Return the entry with an equal key, if there is one."""
        identity = _identity(key)
        if identity is None:
            raise FaultError("no such overload")
        return self.entries.get(identity)

    def keys(self) -> Iterator[Any]:
        """Yield the keys, sorted by type and value."""
        return (self.entries[identity][0] for identity in sorted(self.entries))


_KINDS: Mapping[type, str] = {
    str: "string",
    bytes: "bytes",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    type(None): "null_type",
    list: "list",
    MapValue: "map",
    TypeValue: "type",
    Timestamp: "timestamp",
    Duration: "duration",
}
_SMALLEST_PLAIN, _DIGITS = -4, 6  # what %g prints without an exponent
NUMBERS = frozenset({"int", "uint", "double"})


def kind_of(value: Any) -> str:
    """Return the name of a value's type."""
    return _KINDS[type(value)]


def from_python(value: Any) -> Any:
    """Return an input value with its maps converted."""
    if isinstance(value, Mapping):
        return MapValue.of((key, from_python(item)) for key, item in value.items())
    return value


def fit_int(value: int) -> int:
    """Return an int if it fits into 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return int(value)
    raise FaultError("integer overflow")


def fit_uint(value: int) -> Uint:
    """Return an unsigned int if it fits into 64 bits."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise FaultError("unsigned integer overflow")


def equal(left: Any, right: Any) -> bool:
    """Compare deeply: numbers across types, everything else is equal only to its own type."""
    one, other = kind_of(left), kind_of(right)
    if one in NUMBERS and other in NUMBERS:
        return bool(_as_comparable(left, right) == _as_comparable(right, left))
    if one != other:
        return False
    if one == "list":
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    if one == "map":
        return left.entries.keys() == right.entries.keys() and all(
            equal(value, right.entries[key][1]) for key, (_, value) in left.entries.items()
        )
    return bool(left == right)


def less(left: Any, right: Any) -> bool:
    """Tell whether `left` is smaller; numbers compare across types."""
    one, other = kind_of(left), kind_of(right)
    if one in NUMBERS and other in NUMBERS:
        return bool(_as_comparable(left, right) < _as_comparable(right, left))
    if one != other or one in {"list", "map", "null_type", "type"}:
        raise FaultError("no such overload")
    if one == "string":
        return bool(left.encode() < right.encode())
    return bool(left < right)


def format_double(value: float) -> str:
    """Return a double as C's shortest %g would print it."""
    if math.isnan(value):
        return "-nan" if math.copysign(1, value) < 0 else "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits, _, exponent = f"{value!r}e0".partition("e")
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    scale = int(exponent.partition("e")[0]) + len(whole)
    significant = (whole + fraction).lstrip("0")
    scale -= len(whole + fraction) - len(significant)
    significant = significant.rstrip("0") or "0"
    if _SMALLEST_PLAIN <= scale - 1 < _DIGITS:
        padded = (
            significant.rjust(len(significant) - scale + 1, "0")
            if scale <= 0
            else significant.ljust(scale, "0")
        )
        point = max(scale, 1)
        return sign + (f"{padded[:point]}.{padded[point:]}" if padded[point:] else padded[:point])
    tail = f".{significant[1:]}" if significant[1:] else ""
    power = scale - 1
    return f"{sign}{significant[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02}"


def _as_comparable(value: Any, other: Any) -> Any:
    return float(value) if isinstance(other, float) or isinstance(value, float) else int(value)


def _identity(key: Any) -> tuple[str, Any] | None:
    kind = kind_of(key)
    if kind in NUMBERS:
        return ("number", key)
    return (kind, key) if kind in {"string", "bool"} else None
