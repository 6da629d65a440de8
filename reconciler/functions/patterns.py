"""Regular expressions of Go: RE2 needs linear time, so no expression of a user can stall a run."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, cast

import re2


class PatternError(ValueError):
    """The text is no regular expression."""


class Pattern(Protocol):
    """The methods of a compiled expression that are used here."""

    @property
    def groups(self) -> int:
        """The number of groups."""
        ...

    def search(self, text: str) -> "Match | None":
        """Return the first match, None if there is none."""
        ...

    def fullmatch(self, text: str) -> "Match | None":
        """Return the match of the whole text, None if there is none."""
        ...


class Match(Protocol):
    """The methods of a match that are used here."""

    def groups(self) -> Sequence[str | None]:
        """Return the text of every group."""
        ...

    def group(self, number: int) -> str | None:
        """Return the text of one group; 0 is the whole match."""
        ...


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Return a compiled expression.

    Raises:
        PatternError: The text is no expression of RE2.
    """
    options = re2.Options()
    # RE2 writes errors of expressions to standard error by default.
    options.log_errors = False
    try:
        return cast("Pattern", re2.compile(text, options))
    except re2.error as error:
        raise PatternError(f"{text!r} is no regular expression: {error}") from error


def quote(text: str) -> str:
    """Return an expression that matches this text alone."""
    return cast("str", re2.escape(text))
