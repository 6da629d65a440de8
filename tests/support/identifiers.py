"""Packages without kpt's merge comments and identifiers, for tests that are about something else."""

import re

_COMMENT = re.compile(r" # kpt-merge: .*$", re.MULTILINE)
_IDENTIFIER = re.compile(r"^ *internal\.kpt\.dev/upstream-identifier: .*\n", re.MULTILINE)
_EMPTY = re.compile(r"^( *)annotations:\n(?!\1 )", re.MULTILINE)


def without_identifiers(text: str) -> str:
    """Return the text of a resource file as it was before a clone wrote identifiers into it."""
    return _EMPTY.sub("", _IDENTIFIER.sub("", _COMMENT.sub("", text)))
