"""The constraint grammar of Masterminds/semver v3, which Crossplane and Porter use."""

import functools
import re

from reconciler.dependencies.versions.constraint import (
    Comparator,
    ComparatorSet,
    Constraint,
    Grammar,
    Operator,
    Wildcard,
)
from reconciler.dependencies.versions.version import VersionError, parse_loose

_VERSION = (
    r"v?(?:[0-9|xX*]+)(?:\.[0-9|xX*]+)?(?:\.[0-9|xX*]+)?"
    r"(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_SPACE = r"[\t\n\f\r ]"
_OPS = r"(?:=||!=|>|<|>=|=>|<=|=<|~|~>|\^)"
_RANGE = re.compile(rf"{_SPACE}*({_VERSION}){_SPACE}+-{_SPACE}+({_VERSION}){_SPACE}*")
_FIND = re.compile(rf"{_OPS}{_SPACE}*{_VERSION}")
_VALID = re.compile(
    rf"(?:{_SPACE}*{_OPS}{_SPACE}*{_VERSION}{_SPACE}*)"
    rf"(?:(?:{_SPACE}+|,{_SPACE}*){_OPS}{_SPACE}*{_VERSION}{_SPACE}*)*"
)
_ONE = re.compile(
    rf"{_SPACE}*(?P<op>{_OPS}){_SPACE}*"
    r"(?P<bound>v?(?P<major>[0-9|xX*]+)(?P<minor>\.[0-9|xX*]+)?(?P<patch>\.[0-9|xX*]+)?"
    r"(?P<pre>-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
    rf"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?){_SPACE}*"
)
_SPELLINGS = {
    "": Operator.EQ,
    "=>": Operator.GE,
    "=<": Operator.LE,
    "~>": Operator.TILDE,
}
_OPEN = frozenset({"", "x", "X", "*"})


@functools.lru_cache(maxsize=16384)
def parse(text: str) -> Constraint:
    """Read a constraint: comma or space is "and", `||` is "or", `a - b` is a closed range.

    Raises:
        VersionError: The text is no constraint; that includes the empty text.

    Source: Masterminds/semver v3 constraints.go, NewConstraint.
    """
    return Constraint(text, Grammar.MASTERMINDS, tuple(_group(text, part) for part in _spelled(text)))


def _spelled(text: str) -> list[str]:
    rewritten = text
    for match in _RANGE.finditer(text):
        rewritten = rewritten.replace(match[0], f">= {match[1]}, <= {match[2]} ", 1)
    return rewritten.split("||")


def _group(text: str, part: str) -> ComparatorSet:
    if not _VALID.fullmatch(part):
        raise VersionError(f"{text!r} is not a version constraint")
    return tuple(parse_comparator(comparator) for comparator in _FIND.findall(part) or [part])


def parse_comparator(text: str) -> Comparator:
    """Read one comparison such as `>=1.2`; the empty text allows any version.

    Raises:
        VersionError: The text is no comparison.
    """
    if not text:
        return Comparator(Operator.EQ, parse_loose("0.0.0"), Wildcard.MAJOR)
    match = _ONE.fullmatch(text)
    if match is None:
        raise VersionError(f"{text!r} is not a version constraint")
    op = _SPELLINGS.get(match["op"]) or Operator(match["op"])
    major, pre = match["major"], match["pre"] or ""
    minor, patch = ((match[name] or "").removeprefix(".") for name in ("minor", "patch"))
    if major in _OPEN:
        return Comparator(op, parse_loose(f"0.0.0{pre}"), Wildcard.MAJOR)
    if minor in _OPEN:
        return Comparator(op, parse_loose(f"{major}.0.0{pre}"), Wildcard.MINOR)
    if patch in _OPEN:
        return Comparator(op, parse_loose(f"{major}.{minor}.0{pre}"), Wildcard.PATCH)
    return Comparator(op, parse_loose(match["bound"]))
