"""Version ranges and version selections of Carvel: blang's grammar, with build metadata in the order."""

import functools
import re
from typing import NamedTuple

from reconciler.dependencies.versions.constraint import (
    Comparator,
    ComparatorSet,
    Constraint,
    Grammar,
    Operator,
)
from reconciler.dependencies.versions.version import Version, VersionError, parse_strict

Prereleases = tuple[str, ...] | None
"""Carvel's choice of pre-releases: None keeps none, empty keeps all, words keep those that contain one."""


def keeps_prerelease(version: Version, prereleases: Prereleases) -> bool:
    """Whether Carvel's choice of pre-releases keeps this version; releases always stay.

    Source: vendir versions/versions.go, FilterPrereleases.
    """
    if version.is_release:
        return True
    if prereleases is None:
        return False
    return not prereleases or any(word and word in version.prerelease for word in prereleases)


_SPELLINGS = {
    "": Operator.EQ,
    "==": Operator.EQ,
    "!": Operator.NE,
    **{op.value: op for op in (Operator.EQ, Operator.NE, Operator.LT, Operator.LE, Operator.GT, Operator.GE)},
}


_BOUND = re.compile(r"(?P<op>[^0-9]*)(?P<bound>[0-9].*)", re.DOTALL)


_CORE = re.compile(r"[^-+]*")


_WHOLE_CORE = 3


@functools.lru_cache(maxsize=16384)
def parse(text: str, grammar: Grammar = Grammar.CARVEL) -> Constraint:
    """Read a range: a space is "and", ` || ` with spaces around it is "or".

    `Grammar.CARVEL` is what kapp-controller ships, save that an `x` inside a pre-release is no
    wildcard; `CARVEL_VENDORED` keeps that defect.

    Raises:
        VersionError: The text is no range; that includes the empty text.

    Source: carvel-dev/semver v4 range.go, ParseRange.
    """
    groups: list[list[Comparator]] = [[]]
    for word in split_words(text):
        if word != "||":
            groups[-1].extend(_expand(text, word, grammar))
        elif groups[-1]:
            groups.append([])
        else:
            raise VersionError(f"{text!r} has nothing before '||'")
    if not groups[-1]:
        raise VersionError(f"{text!r} has no version, or nothing after '||'")
    return Constraint(text, grammar, tuple(tuple(group) for group in groups))


def split_words(text: str) -> list[str]:
    """Split at spaces, except after an operator; a word of one character is dropped, as upstream does."""
    words: list[str] = []
    start, last = 0, ""
    for position, char in enumerate(text):
        if char != " ":
            last = char
        elif last not in ("<", ">", "="):
            if start < position - 1:
                words.append(text[start:position])
            start = position + 1
    if start < len(text) - 1:
        words.append(text[start:])
    return [word.replace(" ", "") for word in words]


def _expand(text: str, word: str, grammar: Grammar) -> list[Comparator]:
    match = _BOUND.fullmatch(word)
    if match is None:
        raise VersionError(f"{text!r}: {word!r} has no version")
    op, bound = match["op"], match["bound"]
    if not is_wildcard(word, grammar):
        return [_comparator(text, op, bound)]
    floor = _floor(bound, grammar)
    if op not in _SPELLINGS:
        return [_comparator(text, "", floor)]
    return [_comparator(text, *bounds) for bounds in _open_bounds(text, _SPELLINGS[op], bound, floor)]


def _open_bounds(text: str, op: Operator, bound: str, floor: str) -> list[tuple[str, str]]:
    match op:
        case Operator.GE | Operator.LT:
            return [(op, floor)]
        case Operator.GT:
            return [(">=", _ceiling(text, bound, floor))]
        case Operator.LE:
            return [("<", _ceiling(text, bound, floor))]
        case Operator.NE:
            return [("<", floor), (">=", _ceiling(text, bound, floor))]
        case _:
            return [(">=", floor), ("<", _ceiling(text, bound, floor))]


def is_wildcard(word: str, grammar: Grammar) -> bool:
    """Tell whether an `x` in this word is a wildcard."""
    where = word if grammar in (Grammar.CARVEL_VENDORED, Grammar.BLANG) else _CORE.match(word)
    return "x" in (where if isinstance(where, str) else where[0] if where else "")


def _comparator(text: str, op: str, bound: str) -> Comparator:
    if op not in _SPELLINGS:
        raise VersionError(f"{text!r}: {op!r} is no operator here")
    try:
        return Comparator(_SPELLINGS[op], parse_strict(bound))
    except VersionError as error:
        raise VersionError(f"{text!r}: {error}") from None


def _floor(bound: str, grammar: Grammar) -> str:
    flat = bound.replace(".x.x", ".x", 1).replace(".x", ".0", 1)
    if flat.count(".") == 1:
        flat += ".0"
    return flat + "-0" if grammar is Grammar.CARVEL_HEAD else flat


def _ceiling(text: str, bound: str, floor: str) -> str:
    written, parts = bound.split("."), floor.split(".")
    if written[-1] != "x" or len(written) not in (_WHOLE_CORE - 1, _WHOLE_CORE):
        raise VersionError(f"{text!r}: {bound!r} is open in a place that cannot be")
    open_at = len(written) - 2
    if not parts[open_at].isdigit():
        raise VersionError(f"{text!r}: {bound!r} is not a version")
    parts[open_at] = str(int(parts[open_at]) + 1)
    return ".".join(parts)


class CarvelSelection(NamedTuple):
    """Carvel's `versionSelection`: a range (empty: no filter) and which pre-releases stay."""

    constraints: str = ""
    prereleases: Prereleases = None

    def keeps(self, version: Version) -> bool:
        """Whether this selection admits `version`.

        An exact constraint on a pre-release admits that pre-release without a word about it.

        Raises:
            VersionError: The range does not parse.

        Source: kapp-controller pkg/packageinstall, GetBestMatchingPackage.
        """
        if not self.constraints:
            return keeps_prerelease(version, self.prereleases)
        constraint = parse(self.constraints)
        if not constraint.allows(version):
            return False
        if version.is_release or keeps_prerelease(version, self.prereleases):
            return True
        return self.prereleases is None and _is_one_prerelease(constraint.groups)


def _is_one_prerelease(groups: tuple[ComparatorSet, ...]) -> bool:
    if len(groups) != 1 or len(groups[0]) != 1:
        return False
    part = groups[0][0]
    return part.op is Operator.EQ and bool(part.bound.prerelease)
