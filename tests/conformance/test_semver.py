"""Every row of the version vectors: what other libraries answer, we answer."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from reconciler.dependencies.model.packages import Dialect, VersionRange, version_range
from reconciler.dependencies.versions import (
    Constraint,
    Grammar,
    Version,
    VersionError,
    VersionPolicy,
    parse_comparator,
    parse_constraint,
    parse_loose,
    parse_masterminds,
    parse_relaxed,
    parse_strict,
    rank,
)
from tests.support.conformance import absence, load_yaml, parameters, vector_files


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


Row = dict[str, Any]


def rows(section: str) -> list[Any]:
    """Return the rows of a section by dialect and source: a case of them names the rows that differ."""
    groups = defaultdict(list)
    for file in vector_files("semver.yaml"):
        for row in load_yaml(file).get(section, []):
            groups["-".join(row[key] for key in ("dialect", "source") if key in row) or "all"].append(row)
    return parameters(groups.items(), absent=absence(f"of section {section} in semver.yaml"))


OWN = {"masterminds": Grammar.MASTERMINDS}
"""Our grammars by the dialects of the vectors: that of Carvel answers for blang and for all of Carvel."""
DIFFERS = {
    # An x in a pre-release is no wildcard: kapp-controller issue 1518.
    "carvel-vendored": {("1.2.3-experimental", "")},
    # In what nothing ships yet an open part begins at its pre-releases, and stages sort below numbers.
    "carvel-head": {
        ("1.3.x", "1.3.0-0"),
        ("1.3.x", "1.4.0-0"),
        ("2.x", "2.0.0-0"),
        ("2.x", "3.0.0-0"),
        ("1.2.x", "1.3.0-0"),
        (">1.x", "2.0.0-alpha.1"),
        (">=1.2.3-0", "1.2.3-rc.2"),
        (">=1.2.3-rc.1", "1.2.3-experimental"),
    },
}
"""Rows with another answer, by dialect: the constraint, and the version or any."""


def is_other(dialect: str, row: Row) -> bool:
    own = DIFFERS.get(dialect, set())
    return not own.isdisjoint({(row["constraint"], row["version"]), (row["constraint"], "")})


def parse_version(text: str, grammar: Grammar) -> Version:
    return parse_loose(text) if grammar is Grammar.MASTERMINDS else parse_strict(text)


def answer(row: Row, grammar: Grammar) -> bool | str:
    if row.get("level") == "single":
        constraint = Constraint(row["constraint"], grammar, ((parse_comparator(row["constraint"]),),))
    elif not is_valid(lambda text: parse_constraint(text, grammar), row["constraint"]):
        return "invalid-constraint"
    else:
        constraint = parse_constraint(row["constraint"], grammar)
    if not is_valid(lambda text: parse_version(text, grammar), row["version"]):
        return "invalid-version"
    include = row.get("include_prerelease", False)
    return constraint.allows(parse_version(row["version"], grammar), include_prerelease=include)


def is_valid(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except VersionError:
        return False
    return True


@pytest.mark.parametrize("group", rows("upstream"))
def test_constraint_allows(group: list[Row]) -> None:
    def is_as_upstream(row: Row) -> bool:
        return answer(row, OWN.get(row["dialect"], Grammar.CARVEL)) is row["expected"]

    assert [row for row in group if is_as_upstream(row) is is_other(row["dialect"], row)] == []


@pytest.mark.parametrize("group", rows("constraint_validity"))
def test_constraint_is_valid(group: list[Row]) -> None:
    def parse(text: str) -> object:
        return parse_constraint(text, OWN.get(group[0]["dialect"], Grammar.CARVEL))

    assert [row for row in group if is_valid(parse, row["constraint"]) is not row["valid"]] == []


@pytest.mark.parametrize("group", rows("version_validity"))
def test_version_is_valid(group: list[Row]) -> None:
    parse = parse_loose if group[0]["dialect"] == "masterminds-loose" else parse_strict

    assert [row for row in group if is_valid(parse, row["version"]) is not row["valid"]] == []


DIALECTS = ("masterminds", "carvel-vendored", "carvel-head")


@pytest.mark.parametrize("group", rows("differential"))
def test_dialects_differ_as_their_libraries_do(group: list[Row]) -> None:
    pairs = [(row, dialect) for row in group for dialect in DIALECTS if dialect in row]

    differ = [
        (dialect, row["constraint"], row["version"])
        for row, dialect in pairs
        if answer(row, OWN.get(dialect, Grammar.CARVEL)) != row[dialect]
    ]

    assert differ == [
        (dialect, row["constraint"], row["version"]) for row, dialect in pairs if is_other(dialect, row)
    ]


def select(row: Row) -> str | None:
    match row["dialect"]:
        case "vendir" | "packageinstall":
            keep = None if row["prereleases"] is None else tuple(row["prereleases"])
            return select_carvel(
                row["versions"], version_range(Dialect.CARVEL, row["constraints"], prereleases=keep)
            )
        case "crossplane-install" | "crossplane-update":
            downgrade = row["downgrades"]
            return select_crossplane(
                row["versions"], row["constraints"], installed=row["installed"], allow_downgrade=downgrade
            )
        case dialect:
            assert dialect == "porter"
            return select_porter(
                row["versions"], row["constraints"], row["strategy"], default_tag=row["default_tag"]
            )


@pytest.mark.parametrize("group", rows("selection"))
def test_selection(group: list[Row]) -> None:
    assert [row for row in group if select(row) != row["expected"]] == []
