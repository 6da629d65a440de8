"""Versions and constraints: the original spelling, two orders, and the grammars of Masterminds and Carvel."""

import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

import semver
from msgspec import Struct

from reconciler.base.lazy import regex
from reconciler.base.text import plural

_UINT64 = 2**64
_LONGEST = 256
"""Of a version, in characters. Source: npm node-semver, MAX_LENGTH."""
_LONGEST_RANGE = 4096
_LOOSE = regex(
    r"v?(?P<major>[0-9]+)(?:\.(?P<minor>[0-9]+))?(?:\.(?P<patch>[0-9]+))?"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)


class VersionError(ValueError):
    """A text that is no version, or no constraint, in the grammar it was read in."""


def check_length(text: str, most: int = _LONGEST_RANGE) -> None:
    """Refuse a text that is too long for a range of versions, or for a version.

    Raises:
        VersionError: It has more characters than `most`.
    """
    if len(text) > most:
        raise VersionError(f"{text[:40]!r}... has more than {plural(most, 'character')}")


@dataclass(frozen=True, slots=True)
class Version:
    """A version in its original spelling, which is its identity; `number` is its value.

    `height` is SemVer's precedence, then build metadata, numbers before words: the tie-break of dialects.

    Source: kapp-controller as vendored, carvel-dev/semver Version.Compare.
    """

    text: str
    number: semver.Version = field(compare=False)
    height: tuple[Any, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        pre = self.prerelease
        key = (*self.core, not pre, _identifiers(pre), _identifiers(self.build))
        object.__setattr__(self, "height", key)

    def __str__(self) -> str:
        return self.text

    @property
    def core(self) -> tuple[int, int, int]:
        """Major, minor and patch."""
        return (self.number.major, self.number.minor, self.number.patch)

    @property
    def prerelease(self) -> tuple[str, ...]:
        """The pre-release identifiers; empty for a release."""
        return _split(self.number.prerelease)

    @property
    def build(self) -> tuple[str, ...]:
        """The identifiers of the build metadata."""
        return _split(self.number.build)

    @property
    def is_release(self) -> bool:
        """Whether this is no pre-release."""
        return bool(self.height[3])

    @property
    def is_partial(self) -> bool:
        """Whether the text leaves out minor or patch, as the moving tags `v1` and `v1.2` do."""
        return self.text.removeprefix("v") != str(self.number)


def _split(identifiers: str | None) -> tuple[str, ...]:
    return tuple(identifiers.split(".")) if identifiers else ()


@functools.lru_cache(maxsize=65536)
def parse_strict(text: str) -> Version:
    """Read SemVer 2.0 as written, without a leading `v`.

    Raises:
        VersionError: The text is something else, too long, or a number is above 64 bits.
    """
    check_length(text, _LONGEST)
    if not text.isascii() or not semver.Version.is_valid(text) or text.endswith("\n"):
        raise VersionError(f"{text!r} is not a semantic version")
    return Version(text, _within_64_bits(text, semver.Version.parse(text)))


@functools.lru_cache(maxsize=65536)
def parse_loose(text: str) -> Version:
    """Read a version the way Masterminds does: optional `v`, missing parts and leading zeros are fine.

    Raises:
        VersionError: Even read loosely the text is no version.

    Source: Masterminds/semver version.go, NewVersion.
    """
    check_length(text, _LONGEST)
    match = _LOOSE.fullmatch(text)
    if match is None or any(
        part.isdigit() and part != "0" and part[0] == "0" for part in _split(match["pre"])
    ):
        raise VersionError(f"{text!r} is not a version")
    major, minor, patch = (int(match[name] or 0) for name in ("major", "minor", "patch"))
    return Version(
        text, _within_64_bits(text, semver.Version(major, minor, patch, match["pre"], match["build"]))
    )


def whole_version(text: str) -> Version | None:
    """Return a version; None of what is none, or a part of one, as moving tags are."""
    try:
        version = parse_loose(text)
    except VersionError:
        return None
    return None if version.is_partial else version


def parse_relaxed(text: str) -> Version:
    """Read SemVer 2.0 with at most one leading `v`, as Carvel reads the versions of packages.

    Raises:
        VersionError: The text is no such version.
    """
    return Version(text, parse_strict(text.removeprefix("v")).number)


def _within_64_bits(text: str, number: semver.Version) -> semver.Version:
    numeric = [int(part) for part in _split(number.prerelease) if part.isdigit()]
    if max(number.major, number.minor, number.patch, *numeric, 0) >= _UINT64:
        raise VersionError(f"A number in {text!r} is above 64 bits")
    return number


def _identifiers(parts: tuple[str, ...]) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in parts)


def precedence(version: Version) -> tuple[Any, ...]:
    """SemVer's precedence: a pre-release sorts before its release, build metadata does not count."""
    return version.height[:-1]


class VersionPolicy(StrEnum):
    """How to choose among the versions that every constraint allows."""

    HIGHEST = "highest"
    LOWEST = "lowest"
    NEAREST = "nearest"
    EXACT = "exact"
    MAX_PATCH = "max-patch"
    MAX_MINOR = "max-minor"
    MIN = "min"


def rank(
    versions: Iterable[Version],
    policy: VersionPolicy = VersionPolicy.HIGHEST,
    *,
    origin: Version | None = None,
) -> tuple[Version, ...]:
    """Order the acceptable versions by preference, best first.

    Total and order-free: equal versions are ordered by their text.

    Without an `origin`, the installed or default version, every policy but LOWEST and MIN means HIGHEST.
    """
    rising = sorted(versions, key=lambda version: (version.height, version.text))
    if policy in (VersionPolicy.LOWEST, VersionPolicy.MIN):
        return tuple(rising)
    falling = rising[::-1]
    if policy is VersionPolicy.HIGHEST or origin is None:
        return tuple(falling)
    if policy is VersionPolicy.NEAREST:
        upward = [version for version in rising if version.height >= origin.height]
        return (*upward, *(version for version in falling if version.height < origin.height))
    is_near: dict[VersionPolicy, Callable[[Version], bool]] = {
        VersionPolicy.EXACT: lambda version: version.number == origin.number,
        VersionPolicy.MAX_PATCH: lambda version: version.core[:2] == origin.core[:2],
        VersionPolicy.MAX_MINOR: lambda version: version.core[0] == origin.core[0],
    }
    return tuple(version for version in falling if is_near[policy](version))


class Grammar(StrEnum):
    """Which library's rules a constraint is read and judged by."""

    MASTERMINDS = "masterminds"
    CARVEL = "carvel"


class Operator(StrEnum):
    """A comparison; `~` and `^` exist in the Masterminds grammar only."""

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
            is_admitted = version.is_release or include_prerelease
            groups = (g for g in self.groups if is_admitted or not all(p.bound.is_release for p in g))
            return any(all(_satisfies(version, part) for part in group) for group in groups)
        # Plain loops: every version of an index is compared with every range.
        key = version.height
        for group in self.groups:
            for part in group:
                if not _COMPARE[part.op](key, part.bound.height):
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
_CONTENT = regex("sha256:.*|[0-9a-f]{40}", re.DOTALL)


def parse_constraint(text: str, grammar: Grammar) -> Constraint:
    """Read a constraint in the grammar of its dialect.

    Raises:
        VersionError: The text is no constraint in that grammar.
    """
    return parse_masterminds(text) if grammar is Grammar.MASTERMINDS else parse_carvel(text)


def is_digest(text: str) -> bool:
    """Tell whether a text pins content: the digest of an image, or a commit."""
    return _CONTENT.fullmatch(text) is not None


# Masterminds/semver v3, of Crossplane and Porter

_VERSION = (
    r"v?(?:[0-9|xX*]+)(?:\.[0-9|xX*]+)?(?:\.[0-9|xX*]+)?"
    r"(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_SPACE = r"[\t\n\f\r ]"
_OPS = r"(?:=||!=|>|<|>=|=>|<=|=<|~|~>|\^)"
_RANGE = regex(rf"{_SPACE}*({_VERSION}){_SPACE}+-{_SPACE}+({_VERSION}){_SPACE}*")
_FIND = regex(rf"{_OPS}{_SPACE}*{_VERSION}")
_VALID = regex(
    rf"(?:{_SPACE}*{_OPS}{_SPACE}*{_VERSION}{_SPACE}*)"
    rf"(?:(?:{_SPACE}+|,{_SPACE}*){_OPS}{_SPACE}*{_VERSION}{_SPACE}*)*"
)
_ONE = regex(
    rf"{_SPACE}*(?P<op>{_OPS}){_SPACE}*"
    r"(?P<bound>v?(?P<major>[0-9|xX*]+)(?P<minor>\.[0-9|xX*]+)?(?P<patch>\.[0-9|xX*]+)?"
    r"(?P<pre>-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
    rf"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?){_SPACE}*"
)
_OPERATORS = {"": Operator.EQ, "=>": Operator.GE, "=<": Operator.LE, "~>": Operator.TILDE}
_OPEN = frozenset({"", "x", "X", "*"})


@functools.lru_cache(maxsize=16384)
def parse_masterminds(text: str) -> Constraint:
    """Read a constraint: comma or space is "and", `||` is "or", `a - b` is a closed range.

    Raises:
        VersionError: The text is no constraint; that includes the empty text.

    Source: Masterminds/semver v3 constraints.go, NewConstraint.
    """
    check_length(text)
    rewritten = text
    for match in _RANGE.finditer(text):
        rewritten = rewritten.replace(match[0], f">= {match[1]}, <= {match[2]} ", 1)
    groups = []
    for part in rewritten.split("||"):
        if not _VALID.fullmatch(part):
            raise VersionError(f"{text!r} is not a version constraint")
        groups.append(tuple(parse_comparator(comparator) for comparator in _FIND.findall(part) or [part]))
    return Constraint(text, Grammar.MASTERMINDS, tuple(groups))


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
    op = _OPERATORS.get(match["op"]) or Operator(match["op"])
    major, pre = match["major"], match["pre"] or ""
    minor, patch = ((match[name] or "").removeprefix(".") for name in ("minor", "patch"))
    if major in _OPEN:
        return Comparator(op, parse_loose(f"0.0.0{pre}"), Wildcard.MAJOR)
    if minor in _OPEN:
        return Comparator(op, parse_loose(f"{major}.0.0{pre}"), Wildcard.MINOR)
    if patch in _OPEN:
        return Comparator(op, parse_loose(f"{major}.{minor}.0{pre}"), Wildcard.PATCH)
    return Comparator(op, parse_loose(match["bound"]))


_MINOR, _WHOLE_CORE = 2, 3
_WIDTHS = {Wildcard.MINOR: 1, Wildcard.PATCH: _MINOR}
_FLOOR = frozenset({Operator.LT, Operator.GE})
_PLAIN = {
    Wildcard.NONE: frozenset(_COMPARE),
    Wildcard.MAJOR: _FLOOR | {Operator.NE, Operator.GT},
    Wildcard.MINOR: _FLOOR,
    Wildcard.PATCH: _FLOOR,
}
"""The operators that compare with the bound itself; `*` is 0.0.0."""


def _satisfies(version: Version, part: Comparator) -> bool:
    """Judge one comparison; an open minor or patch compares the parts before it."""
    here, there = precedence(version), precedence(part.bound)
    if part.op in _PLAIN[part.wildcard]:
        return _COMPARE[part.op](here, there)
    core, bound, width = here[:_WHOLE_CORE], there[:_WHOLE_CORE], _WIDTHS.get(part.wildcard, 0)
    match part.op:
        case Operator.NE:
            is_patch = part.wildcard is Wildcard.PATCH
            return core[:width] != bound[:width] or (is_patch and version.prerelease != part.bound.prerelease)
        case Operator.LE:
            return core[: width or _MINOR] <= bound[: width or _MINOR]
        case Operator.GT:
            return core[:width] > bound[:width]
        case Operator.CARET:
            is_major, is_minor = bound[0] > 0 or width == 1, bound[1] > 0 or width == _MINOR
            equal = 1 if is_major else _MINOR if is_minor else _WHOLE_CORE
        case _:  # a tilde, or an open version without an operator
            equal = 0 if bound == (0, 0, 0) and not width else width or _MINOR
    return here >= there and core[:equal] == bound[:equal]


# Carvel: blang's grammar, with build metadata in the order

_SPELLINGS = {
    "": Operator.EQ,
    "==": Operator.EQ,
    "!": Operator.NE,
    **{op.value: op for op in (Operator.EQ, Operator.NE, Operator.LT, Operator.LE, Operator.GT, Operator.GE)},
}
_BOUND = regex(r"(?P<op>[^0-9]*)(?P<bound>[0-9].*)", re.DOTALL)
_CORE = regex(r"[^-+]*")


@functools.lru_cache(maxsize=16384)
def parse_carvel(text: str) -> Constraint:
    """Read a range: a space is "and", ` || ` with spaces around it is "or".

    It is what kapp-controller ships, save that an `x` inside a pre-release is no wildcard.

    Raises:
        VersionError: The text is no range; that includes the empty text.

    Source: carvel-dev/semver v4 range.go, ParseRange.
    """
    check_length(text)
    groups: list[list[Comparator]] = [[]]
    for word in _carvel_words(text):
        if word != "||":
            groups[-1].extend(_expand(text, word))
        elif groups[-1]:
            groups.append([])
        else:
            raise VersionError(f"{text!r} has nothing before '||'")
    if not groups[-1]:
        raise VersionError(f"{text!r} has no version, or nothing after '||'")
    return Constraint(text, Grammar.CARVEL, tuple(map(tuple, groups)))


def _carvel_words(text: str) -> list[str]:
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


def _is_wildcard(word: str) -> bool:
    core = _CORE.match(word)
    return core is not None and "x" in core[0]


def _expand(text: str, word: str) -> list[Comparator]:
    match = _BOUND.fullmatch(word)
    if match is None:
        raise VersionError(f"{text!r}: {word!r} has no version")
    op, bound = match["op"], match["bound"]
    if not _is_wildcard(word):
        return [_comparator(text, op, bound)]
    floor = bound.replace(".x.x", ".x", 1).replace(".x", ".0", 1)
    floor += ".0" if floor.count(".") == 1 else ""
    if op not in _SPELLINGS:
        return [_comparator(text, "", floor)]
    match _SPELLINGS[op]:
        case Operator.GE | Operator.LT as plain:
            bounds = [(plain.value, floor)]
        case Operator.GT:
            bounds = [(">=", _ceiling(text, bound, floor))]
        case Operator.LE:
            bounds = [("<", _ceiling(text, bound, floor))]
        case Operator.NE:
            bounds = [("<", floor), (">=", _ceiling(text, bound, floor))]
        case _:
            bounds = [(">=", floor), ("<", _ceiling(text, bound, floor))]
    return [_comparator(text, *bound) for bound in bounds]


def _comparator(text: str, op: str, bound: str) -> Comparator:
    if op not in _SPELLINGS:
        raise VersionError(f"{text!r}: {op!r} is no operator here")
    try:
        return Comparator(_SPELLINGS[op], parse_strict(bound))
    except VersionError as error:
        raise VersionError(f"{text!r}: {error}") from None


def _ceiling(text: str, bound: str, floor: str) -> str:
    written, parts = bound.split("."), floor.split(".")
    if written[-1] != "x" or len(written) not in (_WHOLE_CORE - 1, _WHOLE_CORE):
        raise VersionError(f"{text!r}: {bound!r} is open in a place that cannot be")
    open_at = len(written) - 2
    if not parts[open_at].isdigit():
        raise VersionError(f"{text!r}: {bound!r} is not a version")
    parts[open_at] = str(int(parts[open_at]) + 1)
    return ".".join(parts)


Prereleases = tuple[str, ...] | None
"""Carvel's choice of pre-releases: None keeps none, empty keeps all, words keep those that contain one."""


def carvel_keeps(constraint: Constraint | None, prereleases: Prereleases, version: Version) -> bool:
    """Whether Carvel's `versionSelection` admits a version: its range, None for any, and its pre-releases.

    An exact constraint on a pre-release admits that pre-release without a word about it.

    Source: kapp-controller pkg/packageinstall, GetBestMatchingPackage; vendir versions/versions.go,
    FilterPrereleases.
    """
    if constraint is not None and not constraint.allows(version):
        return False
    if version.is_release:
        return True
    if prereleases is not None:
        return not prereleases or any(word and word in version.prerelease for word in prereleases)
    match constraint and constraint.groups:
        case ((only,),):
            return only.op is Operator.EQ and bool(only.bound.prerelease)
    return False


# Constraints that parse but can hardly be intended


@functools.lru_cache(maxsize=4096)
def lint_constraint(constraint: Constraint) -> tuple[str, ...]:
    """Return warnings about a constraint, in sentences without a full stop; mostly none.

    The warning about a range that can never match is exact: no version satisfies that range.
    """
    if constraint.digest:
        return ()
    findings = list(_spelling_doubts(constraint.text)) if constraint.grammar is Grammar.CARVEL else []
    # Where a comparison changes its answer lies a bound or the next version after one: trying those is exact.
    if not any(map(constraint.allows, probe_versions(constraint))):
        findings.append(f"No version can ever satisfy {constraint.text!r}")
    return tuple(findings)


def _spelling_doubts(text: str) -> Iterator[str]:
    if "-" in text.split(" "):
        yield (
            f"{text!r} is no range here: the lone '-' is ignored and both versions must be equal; "
            "write '>=LOW <=HIGH'"
        )
    for word in filter(_is_wildcard, _carvel_words(text)):
        match = _BOUND.fullmatch(word)
        if match is not None and match["op"] in ("!", "!="):
            yield f"{word!r} means below and above that range at once; write '<LOW || >=HIGH'"
        if word.count(".x") > 1:
            yield f"{word!r} means {word.replace('.x.x', '.0.x')!r} here"


def probe_versions(constraint: Constraint) -> Iterator[Version]:
    """Yield versions at and next to every bound of a constraint: it admits one of them, or none at all."""
    bounds = [part.bound for group in constraint.groups for part in group]
    yield from map(parse_strict, ("0.0.0-0", "0.0.0"))
    for bound in bounds:
        major, minor, patch = bound.core
        pre = f"-{bound.number.prerelease}" if bound.prerelease else ""
        build = f"+{bound.number.build}" if bound.build else ""
        core = f"{major}.{minor}.{patch}"
        texts = [
            f"{core}-0",
            core,
            f"{core}+0",
            f"{core}{pre}{build}",
            f"{core}{pre}+0",
            *([f"{core}{pre}.0", f"{core}{pre}.0+0"] if pre else []),
            *([f"{core}{pre}{build}.0"] if build else []),
        ]
        for following in ((major, minor, patch + 1), (major, minor + 1, 0), (major + 1, 0, 0)):
            plain = ".".join(map(str, following))
            texts += [plain, f"{plain}-0", f"{plain}+0"]
        for text in texts:
            try:
                yield parse_strict(text)
            except VersionError:  # one above the largest number
                continue


def only_prereleases(constraint: Constraint, versions: list[Version]) -> bool:
    """Whether pre-releases would satisfy this constraint if it admitted any, and nothing else does."""
    if any(map(constraint.allows, versions)):
        return False
    return any(v.prerelease and constraint.allows(v, include_prerelease=True) for v in versions)


def only_with_build(constraint: Constraint, versions: list[Version]) -> tuple[Version, ...]:
    """Return the versions that a bare Carvel version misses only because of their build metadata."""
    if constraint.grammar is not Grammar.CARVEL:
        return ()
    parts = (part for group in constraint.groups for part in group)
    exact = {p.bound.number for p in parts if p.op is Operator.EQ and not p.bound.build}
    return tuple(version for version in versions if version.build and version.number in exact)
