"""Order the allowed versions of a package by preference."""

from collections.abc import Callable, Iterable
from enum import StrEnum

from reconciler.dependencies.versions.version import Version
from reconciler.dependencies.versions.version import precedence_with_build as height


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
    rising = sorted(versions, key=lambda version: (height(version), version.text))
    if origin is not None and not allow_downgrade:
        rising = [version for version in rising if height(version) >= height(origin)]
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
        upward = [version for version in rising if height(version) >= height(origin)]
        return upward + [version for version in falling if height(version) < height(origin)]
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
