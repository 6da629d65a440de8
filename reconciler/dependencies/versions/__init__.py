"""Versions and constraints: one type, the grammar of each dialect, and preferences."""

import re

from reconciler.dependencies.versions import carvel, masterminds
from reconciler.dependencies.versions.carvel import CarvelSelection, Prereleases
from reconciler.dependencies.versions.constraint import Comparator, Constraint, Grammar, Operator, Wildcard
from reconciler.dependencies.versions.lint import lint_constraint
from reconciler.dependencies.versions.version import (
    Version,
    VersionError,
    VersionPolicy,
    choose,
    parse_loose,
    parse_relaxed,
    parse_strict,
    precedence,
    precedence_with_build,
    rank,
)

__all__ = [
    "CarvelSelection",
    "Comparator",
    "Constraint",
    "Grammar",
    "Operator",
    "Prereleases",
    "Version",
    "VersionError",
    "VersionPolicy",
    "Wildcard",
    "choose",
    "is_digest",
    "lint_constraint",
    "parse_constraint",
    "parse_digest_or_constraint",
    "parse_loose",
    "parse_relaxed",
    "parse_strict",
    "precedence",
    "precedence_with_build",
    "rank",
]

_DIGEST = "sha256:"
_COMMIT = re.compile("[0-9a-f]{40}")


def parse_constraint(text: str, grammar: Grammar) -> Constraint:
    """Read a constraint in the grammar of its dialect.

    Raises:
        VersionError: The text is no constraint in that grammar.
    """
    return masterminds.parse(text) if grammar is Grammar.MASTERMINDS else carvel.parse(text, grammar)


def is_digest(text: str) -> bool:
    """Tell whether a text pins content: the digest of an image, or a commit."""
    return text.startswith(_DIGEST) or _COMMIT.fullmatch(text) is not None


def parse_digest_or_constraint(text: str) -> Constraint:
    """Parse a dependency's version as Crossplane accepts it: a range, or the digest of one content.

    Raises:
        VersionError: The text is neither.
    """
    if is_digest(text):
        return Constraint(text, Grammar.MASTERMINDS, digest=text)
    return masterminds.parse(text)
