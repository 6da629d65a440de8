"""Every row of the version vectors: what other libraries answer, we answer."""

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.dependencies.versions import (
    CarvelSelection,
    Constraint,
    Grammar,
    VersionError,
    parse_constraint,
    parse_loose,
    parse_strict,
)
from reconciler.dependencies.versions.masterminds import parse_comparator
from tests.support.conformance import absence, load_yaml, parameters, vector_files
from tests.support.version_selection import select_carvel, select_crossplane, select_porter

Row = dict[str, Any]


def rows(section: str) -> list[Any]:
    found = [row for file in vector_files("semver.yaml") for row in load_yaml(file).get(section, [])]
    return parameters(
        ((f"{index:03}-{name(row)}", row) for index, row in enumerate(found)),
        absent=absence(f"of section {section} in semver.yaml"),
    )


def name(row: Row) -> str:
    return "-".join(str(row[key]) for key in ("dialect", "source", "constraint", "version") if key in row)


def allows(dialect: str, row: Row, version: str) -> bool:
    grammar = Grammar(dialect)
    parsed = grammar.parse_version(version)
    if row.get("level") == "single":
        single = Constraint(row["constraint"], grammar, ((parse_comparator(row["constraint"]),),))
        return single.allows(parsed)
    constraint = parse_constraint(row["constraint"], grammar)
    return constraint.allows(parsed, include_prerelease=row.get("include_prerelease", False))


def is_valid(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except VersionError:
        return False
    return True


@pytest.mark.parametrize("row", rows("upstream"))
def test_constraint_allows(row: Row) -> None:
    assert allows(row["dialect"], row, row["version"]) is row["expected"]


@pytest.mark.parametrize("row", rows("constraint_validity"))
def test_constraint_is_valid(row: Row) -> None:
    def parse(text: str) -> object:
        return parse_constraint(text, Grammar(row["dialect"]))

    assert is_valid(parse, row["constraint"]) is row["valid"]


@pytest.mark.parametrize("row", rows("version_validity"))
def test_version_is_valid(row: Row) -> None:
    parse = parse_loose if row["dialect"] == "masterminds-loose" else parse_strict

    assert is_valid(parse, row["version"]) is row["valid"]


DIALECTS = ("masterminds", "carvel-vendored", "carvel-head")


@pytest.mark.parametrize("row", rows("differential"))
def test_dialects_differ_as_their_libraries_do(row: Row) -> None:
    def answer(dialect: str) -> bool | str:
        if not is_valid(lambda text: parse_constraint(text, Grammar(dialect)), row["constraint"]):
            return "invalid-constraint"
        if not is_valid(Grammar(dialect).parse_version, row["version"]):
            return "invalid-version"
        return allows(dialect, row, row["version"])

    named = {dialect: row[dialect] for dialect in DIALECTS if dialect in row}
    assert {dialect: answer(dialect) for dialect in named} == named


def select(row: Row) -> str | None:
    match row["dialect"]:
        case "vendir" | "packageinstall":
            keep = None if row["prereleases"] is None else tuple(row["prereleases"])
            return select_carvel(row["versions"], CarvelSelection(row["constraints"], keep))
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


@pytest.mark.parametrize("row", rows("selection"))
def test_selection(row: Row) -> None:
    assert select(row) == row["expected"]
