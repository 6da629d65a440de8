"""The few colours of a report, and the two ways to lay them on."""

from collections.abc import Callable
from enum import StrEnum


class Colour(StrEnum):
    """A colour as its SGR parameter."""

    GREEN = "32"
    YELLOW = "33"
    RED = "31"
    CYAN = "36"
    MAGENTA = "35"
    BOLD = "1"
    DIM = "2"


Paint = Callable[[str, Colour], str]


def plain(text: str, _: Colour) -> str:
    """Return `text` as it is: the paint of files and pipes."""
    return text


def ansi(text: str, colour: Colour) -> str:
    """Return `text` in `colour` for a terminal that understands SGR."""
    return f"\x1b[{colour}m{text}\x1b[0m"
