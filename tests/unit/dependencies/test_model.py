"""Values of the model of packages: their texts, and which implementation meets which need."""

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.model.cluster import (
    RefusedVersion,
    UnknownVariableError,
    build_catalogue,
    render_parameter,
)
from reconciler.dependencies.model.packages import (
    Dialect,
    Ecosystem,
    Interface,
    InterfaceNeed,
    PackageId,
    version_range,
)
from reconciler.dependencies.versions import parse_loose, parse_strict
from reconciler.names.problems import Problem

DB = PackageId(Ecosystem.CARVEL, "db.io")


def test_range_of_releases_admits_no_prerelease_that_it_names() -> None:
    first, second = (
        version_range(Dialect.PORTER, ">=1.0.0-rc.1", releases_only=only) for only in (False, True)
    )

    assert [range_.allows(parse_loose("1.0.0-rc.2")) for range_ in (first, second)] == [True, False]
    assert second.allows(parse_loose("1.0.0"))


# Interfaces


OUTPUTS = (("url", "string"), ("port", ""))


@pytest.mark.parametrize(
    ("fields", "need", "meets"),
    [
        ({}, {}, True),
        ({}, {"id": "io.y"}, False),
        ({"version": "1.2.0"}, {"range": ">=1.0.0"}, True),
        ({"version": "0.2.0"}, {"range": ">=1.0.0"}, False),
        ({"version": "0.2.0"}, {}, True),
        ({}, {"range": ">=1.0.0"}, False),
        ({"is_declared": True}, {"range": ">=1.0.0"}, True),
        ({"is_declared": True, "version": "0.2.0"}, {"range": ">=1.0.0"}, False),
        ({"is_declared": True}, {"id": "io.y"}, False),
        ({"is_declared": True}, {"outputs": (("url", ""),)}, True),
        ({"outputs": OUTPUTS}, {"outputs": (("url", ""),)}, True),
        ({"outputs": OUTPUTS}, {"outputs": (("url", "string"), ("port", "integer"))}, True),
        ({"outputs": OUTPUTS}, {"outputs": (("url", "integer"),)}, False),
        ({"outputs": OUTPUTS}, {"outputs": (("name", ""),)}, False),
        ({"outputs": OUTPUTS}, {"parameters": (("url", ""),)}, False),
        ({"parameters": OUTPUTS}, {"parameters": (("url", ""),)}, True),
        ({"credentials": OUTPUTS}, {"credentials": (("url", "string"),)}, True),
        ({"credentials": OUTPUTS}, {"outputs": (("url", ""),)}, False),
    ],
)
def test_interface_meets_a_need_of_its_name_version_and_shape(fields, need, meets) -> None:
    version = parse_strict(fields["version"]) if "version" in fields else None
    implemented = Interface("io.x", **{**fields, "version": version})
    range_ = version_range(Dialect.CARVEL, need.get("range", ""))
    assert implemented.meets(InterfaceNeed(**{"id": "io.x", **need, "range": range_})) is meets


# Parameters


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"plain"', "plain"),
        ('"{{ n }}"', 3),
        ('"${n}"', 3),
        ('"a-{{n}}-${ s }"', "a-3-x"),
        ('{"k": ["{{ s }}", 1, null], "{{ s }}": true}', {"k": ["x", 1, None], "{{ s }}": True}),
        ('"{ n }"', "{ n }"),
    ],
)
def test_templates_in_a_value_are_replaced(text: str, value: object) -> None:
    assert render_parameter(text, {"n": 3, "s": "x"}) == value


@pytest.mark.parametrize("text", ['"{{ other }}"', '"a ${other}"', '["{{ }}"]'])
def test_template_with_an_unknown_variable_is_no_value(text: str) -> None:
    with pytest.raises(UnknownVariableError):
        render_parameter(text, {"n": 3})


# Catalogues


@pytest.mark.parametrize(
    ("refused", "asked", "is_why"),
    [("1.0.0", "v1.0.0", True), ("v1.0.0", "1.0.0", True), ("2.0.0", "1.0.0", False), ("", "1.0.0", True)],
)
def test_version_is_refused_by_its_number_or_as_one_that_nobody_could_read(refused, asked, is_why) -> None:
    why = Problem(Location("a.yaml"), Reason.INVALID_MANIFEST, "It is wrong")
    catalogue = build_catalogue((), {DB.name: (RefusedVersion(refused, why),)})

    assert catalogue.refusal(DB, asked) == (why if is_why else None)
