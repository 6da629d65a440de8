"""Select one of the published versions as each dialect does, from the functions that resolution calls."""

from collections.abc import Iterable

from reconciler.dependencies.versions import masterminds
from reconciler.dependencies.versions.carvel import CarvelSelection
from reconciler.dependencies.versions.version import (
    Version,
    VersionError,
    VersionPolicy,
    choose,
    parse_loose,
    parse_relaxed,
)


def select_carvel(texts: Iterable[str], selection: CarvelSelection) -> str | None:
    """Return the highest version that the selection admits; what does not parse is no candidate."""
    parsed = _readable(texts, relaxed=True)
    best = choose(version for version in parsed if selection.keeps(version))
    return best.text if best else None


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
    parsed = [masterminds.parse(text) for text in constraints]
    versions = [version for version in _readable(tags) if not version.is_partial]
    fitting = [version for version in versions if all(c.allows(version) for c in parsed)]
    origin = parse_loose(installed) if installed else None
    best = choose(
        fitting, VersionPolicy.NEAREST, origin=origin, allow_downgrade=allow_downgrade or origin is None
    )
    return best.text if best else None


def select_porter(tags: Iterable[str], constraints: str, strategy: str, *, default_tag: str) -> str | None:
    """Return the tag that Porter's version strategy picks; `exact` is the tag that the author named.

    Source: porter docs, dependency version ranges; pre-releases are never picked.
    """
    if strategy == VersionPolicy.EXACT:
        return default_tag
    constraint = masterminds.parse(constraints)
    releases = [version for version in _readable(tags) if not version.prerelease]
    fitting = (version for version in releases if constraint.allows(version))
    best = choose(fitting, VersionPolicy(strategy), origin=parse_loose(default_tag))
    return best.text if best else None


def _readable(texts: Iterable[str], *, relaxed: bool = False) -> list[Version]:
    versions = []
    for text in texts:
        try:
            versions.append(parse_relaxed(text) if relaxed else parse_loose(text))
        except VersionError:
            continue
    return versions
