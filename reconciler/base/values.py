"""Values that are compared by some of their fields, and values that are held once."""

from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from msgspec import Struct

from reconciler.base.text import Text

T = TypeVar("T")


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


def share(value: T, held: T | None) -> T:
    """Return the value that is held already if it is equal: a fleet holds each value of a package once."""
    return held if held is not None and value == held else value


def whole_number(text: str) -> int | None:
    """Return the number that a text of others spells in at most 18 digits, None for any other text. Total."""
    return int(text) if len(text) < 19 and text.isascii() and text.isdecimal() else None  # noqa: PLR2004 - fits
