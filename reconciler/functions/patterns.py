"""Regular expressions of Go and patterns of Git: RE2 needs linear time, so none of a user can stall a run."""

import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

import re2

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_IGNORE_BYTES: Final = 64 << 10
_IGNORE_LINES: Final = 1000
"""To compile a pattern takes a third of a millisecond, and RE2 has memory for some thousands."""


class PatternError(ValueError):
    """The text is no regular expression."""


Pattern = re.Pattern[str]
"""A compiled expression: RE2's has the methods of Python's that are used here."""


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


@lru_cache(maxsize=256)
def ignore_spec(data: bytes) -> "GitIgnoreSpec | None":
    """Return the patterns of a `.krmignore`; invalid lines are skipped, as by Git.

    None where they are too many or too long to be compiled.
    """
    if len(data) > _IGNORE_BYTES or data.count(b"\n") > _IGNORE_LINES:
        return None
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - 33 modules for what few packages have

    lines: list[str] = []
    for raw in data.decode(errors="replace").splitlines():
        # `a/**` hides the content of `a`, not `a` itself; pathspec takes it for both, `a/*` not.
        line = re.sub(r"/\*\*\s*\Z", "/*", raw)
        with suppress(ValueError, re.error):
            GitIgnoreSpec.from_lines([line], backend="simple")
            lines.append(line)
    try:
        return GitIgnoreSpec.from_lines(lines, backend="re2")
    except re2.error:
        return None
