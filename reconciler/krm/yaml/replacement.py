"""The unit of splicing: one stretch of text and what it becomes."""

from collections.abc import Iterable
from typing import NamedTuple


class Replacement(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


class CannotSpliceError(Exception):
    """An edit needs more than a splice; nothing is wrong with it."""


def splice(text: str, replacements: Iterable[Replacement]) -> str:
    """Return the text with all replacements made; new line breaks are written as the text writes its own.

    Raises:
        CannotSpliceError: Two replacements overlap.
    """
    crlf = "\r\n" in text
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(replacements):
        if start < done:
            raise CannotSpliceError
        parts += (text[done:start], new.replace("\n", "\r\n") if crlf else new)
        done = end
    parts.append(text[done:])
    return "".join(parts)
