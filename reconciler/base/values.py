"""Values that are compared by some of their fields, held once, made late, or written as JSON."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import msgspec
import orjson
from msgspec import Struct

from reconciler.base.text import Text

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def grouped(pairs: Iterable[tuple[H, T]]) -> dict[H, list[T]]:
    """Return the values of each key; keys and values are in the order of the pairs."""
    groups: dict[H, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def reachable(start: Iterable[H], following: Callable[[H], Iterable[H]]) -> Iterator[H]:
    """Yield everything that a start leads to, each once: the start itself, and then the nearest first."""
    queue = list(dict.fromkeys(start))
    seen = set(queue)
    for item in queue:
        yield item
        queue += (new := [other for other in dict.fromkeys(following(item)) if other not in seen])
        seen.update(new)


class Refused(NamedTuple):
    """A result that there is not, and why: a sentence, or the end of one."""

    why: Text


class PartlyCompared(Struct, frozen=True, eq=False):
    """Base of values that are equal whatever the fields in `UNCOMPARED` hold, such as a place in a file."""

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _compared(type(self))(self) == _compared(type(self))(other)

    def __ne__(self, other: object) -> bool:
        # Structs without `eq` differ by identity.
        return not self == other

    def __hash__(self) -> int:
        return hash(_compared(type(self))(self))

    def __lt__(self, other: Self) -> bool:
        return bool(_compared(type(self))(self) < _compared(type(self))(other))


@cache
def _compared(kind: type[PartlyCompared]) -> "attrgetter[Any]":
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in kind.UNCOMPARED))


def whole_number(text: str) -> int | None:
    """Return the number that a text of others spells in at most 18 digits, None for any other text. Total."""
    return int(text) if len(text) < 19 and text.isascii() and text.isdecimal() else None  # noqa: PLR2004 - fits


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of records: immutable, camelCase on disk, unknown fields refused."""


R = TypeVar("R")
_SURE_DEPTH = 200
"""Less nested values can be written."""
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_INTEGER = b"0" * 19
"""Digits of a long number, all of them taken for zero: an expression searches a text ten times slower."""


def read_record(data: bytes | str, model: type[R]) -> R:
    """Return the record that a JSON text has.

    Raises:
        ValueError: It is none, or none that could be written again; the message names the field.
    """
    try:
        record = msgspec.json.decode(data, type=model)
        text = data if isinstance(data, bytes) else data.encode()
        if text.count(b"{") + text.count(b"[") > _SURE_DEPTH or _LONG_INTEGER in text.translate(_DIGITS):
            canonical_json(record)
    except TypeError as error:
        raise ValueError(f"It cannot be written again: {error}") from error
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"Invalid JSON: {error}") from error
    return record


def canonical_json(value: Any) -> bytes:
    """Return a record or plain data as JSON: sorted keys, two-space indent, final newline. Deterministic."""
    plain = msgspec.to_builtins(value)
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


K = TypeVar("K")
V = TypeVar("V")


class LazyMapping(Mapping[K, V]):
    """A mapping that `make` returns at the first use, and that never changes after.

    `make` must be pure: whether and when it is called changes nothing but time.
    """

    def __init__(self, make: Callable[[], Mapping[K, V]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[K, V]:
        return self._make()

    def __getitem__(self, key: K) -> V:
        return self._made[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, key: object) -> bool:
        return key in self._made

    def __repr__(self) -> str:
        return repr(self._made)


class LazyItems(Sequence[T]):
    """A sequence of which `read` returns each item when it is looked up. `read` must be pure."""

    def __init__(self, read: Callable[[int], T], count: int) -> None:
        self._read, self._count = read, count

    def __getitem__(self, place: Any) -> Any:
        return self._read(range(self._count)[place])

    def __len__(self) -> int:
        return self._count
