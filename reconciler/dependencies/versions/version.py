"""One version type: the original spelling, SemVer's precedence and Carvel's order of builds."""

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import semver

_UINT64 = 2**64
_LOOSE = re.compile(
    r"v?(?P<major>[0-9]+)(?:\.(?P<minor>[0-9]+))?(?:\.(?P<patch>[0-9]+))?"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_CHUNKS = re.compile(r"[0-9]+|[^0-9]+")


class VersionError(ValueError):
    """A text that is no version, or no constraint, in the grammar it was read in."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version in its original spelling, which is its identity; `number` is its value."""

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


Order = Callable[[Version], Any]
"""A sort key: the meaning of "higher" in a grammar."""


def _split(identifiers: str | None) -> tuple[str, ...]:
    return tuple(identifiers.split(".")) if identifiers else ()


@functools.lru_cache(maxsize=65536)
def parse_strict(text: str) -> Version:
    """Read SemVer 2.0 as written, without a leading `v`.

    Raises:
        VersionError: The text is something else, or a number is above 64 bits.
    """
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
    match = _LOOSE.fullmatch(text)
    if match is None or any(_has_leading_zero(part) for part in _split(match["pre"])):
        raise VersionError(f"{text!r} is not a version")
    major, minor, patch = (int(match[name] or 0) for name in ("major", "minor", "patch"))
    return Version(
        text, _within_64_bits(text, semver.Version(major, minor, patch, match["pre"], match["build"]))
    )


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


def _has_leading_zero(part: str) -> bool:
    return part.isdigit() and len(part) > 1 and part[0] == "0"


def _identifiers(parts: tuple[str, ...]) -> tuple[tuple[int, int, str], ...]:
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def precedence(version: Version) -> tuple[Any, ...]:
    """SemVer's precedence: a pre-release sorts before its release, build metadata does not count."""
    return version.height[:-1]


def precedence_with_build(version: Version) -> tuple[Any, ...]:
    """SemVer's precedence, then build metadata, numbers before words; the tie-break of every dialect.

    Source: kapp-controller as vendored, carvel-dev/semver Version.Compare.
    """
    return version.height


def carvel_head_order(version: Version) -> Any:
    """Order versions as the newest carvel-dev/semver does, which is no longer SemVer's.

    Identifiers that name an unstable stage sort below numbers, and digits inside words sort as numbers.
    """
    return functools.cmp_to_key(_compare_head)(version)


def _compare_head(left: Version, right: Version) -> int:
    if left.core != right.core:
        return -1 if left.core < right.core else 1
    if bool(left.prerelease) != bool(right.prerelease):
        return -1 if left.prerelease else 1
    return _compare_lists(left.prerelease, right.prerelease) or _compare_lists(left.build, right.build)


def _compare_lists(lefts: tuple[str, ...], rights: tuple[str, ...]) -> int:
    for left, right in zip(lefts, rights, strict=False):
        if left != right:
            return _compare_identifiers(left, right)
    return (len(lefts) > len(rights)) - (len(lefts) < len(rights))


def _compare_identifiers(left: str, right: str) -> int:
    if left.isdigit() and right.isdigit():
        return (int(left) > int(right)) - (int(left) < int(right))
    if left.isdigit() or right.isdigit():
        word, sign = (right, -1) if left.isdigit() else (left, 1)
        return -sign if _names_a_stage(word, bare=False) else sign
    stages = _names_a_stage(left, bare=True), _names_a_stage(right, bare=True)
    if stages[0] != stages[1]:
        return -1 if stages[0] else 1
    return -1 if _naturally_less(left, right) else 1


def _names_a_stage(word: str, *, bare: bool) -> bool:
    lower = word.lower()
    return "rc" in lower or ((bare or "-" in lower) and ("alpha" in lower or "beta" in lower))


def _naturally_less(left_text: str, right_text: str) -> bool:
    lefts, rights = _CHUNKS.findall(left_text), _CHUNKS.findall(right_text)
    for left, right in zip(lefts, rights, strict=False):
        if left.isdigit() and right.isdigit():
            if int(left) != int(right):
                return int(left) < int(right)
        elif left != right:
            return bool(left < right)
    return len(lefts) < len(rights)


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
    allow_downgrade: bool = True,
) -> tuple[Version, ...]:
    """Order the acceptable versions by preference, best first.

    Total and order-free: equal versions are ordered by their text.

    Args:
        versions: The versions that every constraint allows.
        policy: The preference among them.
        origin: The installed or default version; without one every policy but LOWEST and MIN means HIGHEST.
        allow_downgrade: Whether a version below `origin` is acceptable at all.
    """
    rising = sorted(versions, key=lambda version: (version.height, version.text))
    if origin is not None and not allow_downgrade:
        rising = [version for version in rising if version.height >= origin.height]
    if policy in (VersionPolicy.LOWEST, VersionPolicy.MIN):
        return tuple(rising)
    falling = rising[::-1]
    if policy is VersionPolicy.HIGHEST or origin is None:
        return tuple(falling)
    return tuple(_around(rising, falling, policy, origin))


def _around(
    rising: list[Version], falling: list[Version], policy: VersionPolicy, origin: Version
) -> list[Version]:
    if policy is VersionPolicy.NEAREST:
        upward = [version for version in rising if version.height >= origin.height]
        return upward + [version for version in falling if version.height < origin.height]
    near: dict[VersionPolicy, Callable[[Version], bool]] = {
        VersionPolicy.EXACT: lambda version: version.number == origin.number,
        VersionPolicy.MAX_PATCH: lambda version: version.core[:2] == origin.core[:2],
        VersionPolicy.MAX_MINOR: lambda version: version.core[0] == origin.core[0],
    }
    return [version for version in falling if near[policy](version)]


def choose(
    versions: Iterable[Version],
    policy: VersionPolicy = VersionPolicy.HIGHEST,
    *,
    origin: Version | None = None,
    allow_downgrade: bool = True,
) -> Version | None:
    """Return the version that `rank` puts first, or None where none is acceptable."""
    return next(iter(rank(versions, policy, origin=origin, allow_downgrade=allow_downgrade)), None)
