"""Select one of the published versions as each dialect does, from the functions that resolution calls."""

from collections.abc import Iterable

from reconciler.dependencies.model.packages import VersionRange
from reconciler.dependencies.versions.constraint import parse_masterminds
from reconciler.dependencies.versions.version import (
    Version,
    VersionError,
    VersionPolicy,
    parse_loose,
    parse_relaxed,
    rank,
)


def select_carvel(texts: Iterable[str], selection: VersionRange) -> str | None:
    """Return the highest version that the selection admits; what does not parse is no candidate."""
    parsed = _readable(texts, relaxed=True)
    return _first(rank(version for version in parsed if selection.allows(version)))


def select_crossplane(
    tags: Iterable[str],
    constraints: Iterable[str],
    *,
    installed: str | None = None,
    allow_downgrade: bool = False,
) -> str | None:
    """Return the tag that satisfies every parent: the highest, or the nearest to what is installed.

    Moving tags such as `v1` are never candidates.

    Source: crossplane internal/controller/pkg/resolver, findDependencyVersionToInstall and -ToUpdate.
    Differs: upstream looks at one parent when it installs, and takes moving tags when it updates.
    """
    parsed = [parse_masterminds(text) for text in constraints]
    versions = [version for version in _readable(tags) if not version.is_partial]
    fitting = [version for version in versions if all(c.allows(version) for c in parsed)]
    origin = parse_loose(installed) if installed else None
    if origin is not None and not allow_downgrade:
        fitting = [version for version in fitting if version.height >= origin.height]
    return _first(rank(fitting, VersionPolicy.NEAREST, origin=origin))


def select_porter(tags: Iterable[str], constraints: str, strategy: str, *, default_tag: str) -> str | None:
    """Return the tag that Porter's version strategy picks; `exact` is the tag that the author named.

    Source: porter docs, dependency version ranges; pre-releases are never picked.
    """
    if strategy == VersionPolicy.EXACT:
        return default_tag
    constraint = parse_masterminds(constraints)
    releases = [version for version in _readable(tags) if not version.prerelease]
    fitting = (version for version in releases if constraint.allows(version))
    return _first(rank(fitting, VersionPolicy(strategy), origin=parse_loose(default_tag)))


def _first(ranked: tuple[Version, ...]) -> str | None:
    return ranked[0].text if ranked else None


def _readable(texts: Iterable[str], *, relaxed: bool = False) -> list[Version]:
    versions = []
    for text in texts:
        try:
            versions.append(parse_relaxed(text) if relaxed else parse_loose(text))
        except VersionError:
            continue
    return versions
