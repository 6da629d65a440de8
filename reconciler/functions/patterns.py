"""Regular expressions as Go has them: linear time whatever the expression, so that none can stall a run."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, cast

import re2


class PatternError(ValueError):
    """An expression that is none."""


class Pattern(Protocol):
    """The part of a compiled expression that is used here."""

    @property
    def groups(self) -> int:
        """How many groups it has."""
        ...

    def search(self, text: str) -> "Match | None":
        """Return the first match, None if there is none."""
        ...

    def fullmatch(self, text: str) -> "Match | None":
        """Return the match of the whole text, None if there is none."""
        ...


class Match(Protocol):
    """The part of a match that is used here."""

    def groups(self) -> Sequence[str | None]:
        """Return the text of every group."""
        ...

    def group(self, number: int) -> str | None:
        """Return the text of one group; 0 is all of it."""
        ...


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Return a compiled expression.

    Raises:
        PatternError: The text is no expression of RE2.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return cast("Pattern", re2.compile(text, options))
    except re2.error as error:
        raise PatternError(f"{text!r} is no regular expression: {error}") from error


def quote(text: str) -> str:
    """Return an expression that matches exactly this text."""
    return cast("str", re2.escape(text))
