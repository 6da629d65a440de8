"""One version type: the original spelling, SemVer's precedence and Carvel's order of builds."""

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import semver

from reconciler.base.text import plural

_UINT64 = 2**64
_LONGEST = 256
"""Of a version, in characters. Source: npm node-semver, MAX_LENGTH."""
_LONGEST_RANGE = 4096
_LOOSE = re.compile(
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
