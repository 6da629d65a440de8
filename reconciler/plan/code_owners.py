"""Owners of a path by a CODEOWNERS file: the last pattern that matches decides, in each section. Pure.

Source: GitHub's documentation of code owners, and GitLab's for sections with default owners.
Differs: addresses of email are left out, which no forge takes as reviewers. Gitea's file has expressions
instead of patterns; its server asks the owners by itself.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from reconciler.base.lazy import lazy_pattern

_SECTION = lazy_pattern(r"\^?\[([^\]]+)\](?:\[\d+\])?\s*(.*)")
_OWNER = lazy_pattern(r"@([A-Za-z0-9_][A-Za-z0-9_./-]*)")


class _Entry(NamedTuple):
    pattern: re.Pattern[str]
    owners: tuple[str, ...]


def find_code_owners(text: str, path: str) -> tuple[str, ...]:
    """Return the users and teams that own the file at `path`, sorted; a malformed line owns nothing."""
    owners: dict[str, tuple[str, ...]] = {}
    for section, entry in _parse(text):
        if entry.pattern.fullmatch(path):
            owners[section] = entry.owners
    return tuple(sorted({name for names in owners.values() for name in names}))


@lru_cache(maxsize=64)
def _parse(text: str) -> tuple[tuple[str, _Entry], ...]:
    return tuple(_entries(text))


def _entries(text: str) -> Iterator[tuple[str, _Entry]]:
    section, default = "", _owners("")
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if header := _SECTION.fullmatch(stripped):
            section, default = header[1].lower(), _owners(header[2])
            continue
        # A space in a pattern is escaped.
        pattern, *rest = re.split(r"(?<!\\)\s+", stripped, maxsplit=1)
        expression = _expression(pattern.replace("\\ ", " ").replace("\\#", "#"))
        names = rest[0].partition("#")[0].strip() if rest else ""
        owners = _owners(names) if names else default
        if expression is not None:
            yield section, _Entry(expression, owners)


def _owners(text: str) -> tuple[str, ...]:
    return tuple(match[1] for word in text.split() if (match := _OWNER.fullmatch(word)))


def _expression(pattern: str) -> re.Pattern[str] | None:
    """Return the paths that a pattern names; None for what GitHub refuses: negation and character ranges.

    As in .gitignore a pattern with a slash inside starts at the root, and a directory is all that is below;
    but `docs/*` names only the files in it.
    """
    if pattern.startswith("!") or "[" in pattern:
        return None
    anchored = "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    parts = re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?)", body)
    wild = {"**/": "(?:[^/]+/)*", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(wild.get(part) or re.escape(part) for part in parts)
    below = "/.+" if pattern.endswith("/") else "" if body.endswith("/*") else "(?:/.+)?"
    return re.compile(f"{'' if anchored else '(?:.*/)?'}{expression}{below}", re.DOTALL)
