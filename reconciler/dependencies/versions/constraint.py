"""A parsed constraint: alternatives of comparators that must all hold."""

import operator
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any

from msgspec import Struct

from reconciler.dependencies.versions.version import (
    Order,
    Version,
    carvel_head_order,
    parse_loose,
    parse_strict,
    precedence,
    precedence_with_build,
)


class Grammar(StrEnum):
    """Which library's rules a constraint is read and judged by."""

    __hash__ = str.__hash__

    MASTERMINDS = "masterminds"
    CARVEL = "carvel"
    CARVEL_VENDORED = "carvel-vendored"
    CARVEL_HEAD = "carvel-head"
    BLANG = "blang"

    @property
    def order(self) -> Order:
        """The sort key of versions in this grammar."""
        return _ORDERS[self]

    def parse_version(self, text: str) -> Version:
        """Read a version as this grammar's library does.

        Raises:
            VersionError: The text is no version in this grammar.
        """
        return parse_loose(text) if self is Grammar.MASTERMINDS else parse_strict(text)


_ORDERS: dict[Grammar, Order] = {
    Grammar.MASTERMINDS: precedence,
    Grammar.BLANG: precedence,
    Grammar.CARVEL: precedence_with_build,
    Grammar.CARVEL_VENDORED: precedence_with_build,
    Grammar.CARVEL_HEAD: carvel_head_order,
}


class Operator(StrEnum):
    """A comparison; `~` and `^` exist in the Masterminds grammar only."""

    __hash__ = str.__hash__  # looked up for every comparison

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    TILDE = "~"
    CARET = "^"


class Wildcard(IntEnum):
    """The leftmost part of a bound that its author left open."""

    NONE = 0
    PATCH = 1
    MINOR = 2
    MAJOR = 3


class Comparator(Struct, frozen=True):
    """One comparison against one bound."""

    op: Operator
    bound: Version
    wildcard: Wildcard = Wildcard.NONE


ComparatorSet = tuple[Comparator, ...]
"""Comparators that must all hold."""


class Constraint(Struct, frozen=True):
    """A condition on versions, in its original spelling and the grammar it was written for.

    `digest` is set for a pin by content; no version satisfies it, only that digest does.
    """

    text: str
    grammar: Grammar
    groups: tuple[ComparatorSet, ...] = ()
    digest: str = ""

    def __str__(self) -> str:
        return self.text

    def allows(self, version: Version, *, digest: str = "", include_prerelease: bool = False) -> bool:
        """Whether `version` with content `digest` satisfies this constraint."""
        if self.digest:
            return digest == self.digest
        if self.grammar is Grammar.MASTERMINDS:
            for group in self.groups:
                if _allows_masterminds(group, version, include_prerelease=include_prerelease):
                    return True
            return False
        order = self.grammar.order
        key = order(version)
        for group in self.groups:
            for part in group:
                if not _COMPARE[part.op](key, order(part.bound)):
                    break
            else:
                return True
        return False


_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}


def _allows_masterminds(group: ComparatorSet, version: Version, *, include_prerelease: bool) -> bool:
    if not (version.is_release or include_prerelease) and all(part.bound.is_release for part in group):
        return False
    return all(_MASTERMINDS[part.op](version, part) for part in group)


def _equal(version: Version, part: Comparator) -> bool:
    if part.wildcard:
        return _tilde(version, part)
    return precedence(version) == precedence(part.bound)


def _not_equal(version: Version, part: Comparator) -> bool:
    bound = part.bound.core
    if part.wildcard and version.core[0] != bound[0]:
        return True
    if part.wildcard is Wildcard.MINOR:
        return False
    if part.wildcard and version.core[1] != bound[1]:
        return True
    if part.wildcard is Wildcard.PATCH:
        return version.prerelease != part.bound.prerelease
    if part.wildcard is Wildcard.MAJOR and version.core[2] != bound[2]:
        return True
    return precedence(version) != precedence(part.bound)


def _less(version: Version, part: Comparator) -> bool:
    return precedence(version) < precedence(part.bound)


def _less_or_equal(version: Version, part: Comparator) -> bool:
    if not part.wildcard:
        return precedence(version) <= precedence(part.bound)
    if version.core[0] != part.bound.core[0]:
        return version.core[0] < part.bound.core[0]
    return part.wildcard is Wildcard.MINOR or version.core[1] <= part.bound.core[1]


def _greater(version: Version, part: Comparator) -> bool:
    if part.wildcard and version.core[0] != part.bound.core[0]:
        return version.core[0] > part.bound.core[0]
    if part.wildcard is Wildcard.MINOR:
        return False
    if part.wildcard is Wildcard.PATCH:
        return version.core[1] > part.bound.core[1]
    return precedence(version) > precedence(part.bound)


def _greater_or_equal(version: Version, part: Comparator) -> bool:
    return precedence(version) >= precedence(part.bound)


def _tilde(version: Version, part: Comparator) -> bool:
    if _less(version, part):
        return False
    if part.bound.core == (0, 0, 0) and part.wildcard in (Wildcard.NONE, Wildcard.MAJOR):
        return True
    same_minor = part.wildcard is Wildcard.MINOR or version.core[1] == part.bound.core[1]
    return version.core[0] == part.bound.core[0] and same_minor


def _caret(version: Version, part: Comparator) -> bool:
    if _less(version, part):
        return False
    bound = part.bound.core
    if bound[0] > 0 or part.wildcard is Wildcard.MINOR:
        return version.core[0] == bound[0]
    if bound[1] > 0 or part.wildcard is Wildcard.PATCH:
        return version.core[:2] == bound[:2]
    return version.core == bound


_MASTERMINDS: dict[Operator, Callable[[Version, Comparator], bool]] = {
    Operator.EQ: _equal,
    Operator.NE: _not_equal,
    Operator.LT: _less,
    Operator.LE: _less_or_equal,
    Operator.GT: _greater,
    Operator.GE: _greater_or_equal,
    Operator.TILDE: _tilde,
    Operator.CARET: _caret,
}
