"""Values of the model of packages: their texts, and which implementation meets which need."""

from typing import Any

import pytest

from reconciler.dependencies.model.cluster import (
    UnknownVariableError,
    build_catalogue,
    bundle_name,
    render_parameter,
    sharing_labels,
    written_values,
)
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Interface,
    InterfaceNeed,
    PackageId,
    PackageNeed,
    Platform,
    PlatformNeed,
    Requirement,
    VersionRange,
    dns_label,
    exact_range,
    version_range,
)
from reconciler.dependencies.versions import parse_loose, parse_strict

DB = PackageId(Ecosystem.CARVEL, "db.io")
ANY, RANGE = VersionRange(Dialect.CARVEL), version_range(Dialect.CARVEL, ">=1.0.0")
NEED, PLAIN = PackageNeed(DB, RANGE), PackageNeed(DB, ANY)
THING = Gvk("g.io", "v1", "Thing")
SLOT = Slot(SlotKind.SHARED, "shop", ("group", "a=b"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (DB, "carvel:db.io"),
        (THING, "g.io/v1/Thing"),
        (Gvk("", "v1", "ConfigMap"), "v1/ConfigMap"),
        (Gvk("g.io", "", "things"), "g.io/things"),
        (ANY, "any version"),
        (RANGE, ">=1.0.0"),
        (NEED, "db.io >=1.0.0"),
        (PLAIN, "db.io"),
        (ApiNeed(THING), "the API g.io/v1/Thing"),
        (ApiNeed(THING, NEED), "the API g.io/v1/Thing of db.io >=1.0.0"),
        (InterfaceNeed("io.x", ANY), "the interface io.x"),
        (InterfaceNeed("io.x", RANGE), "the interface io.x >=1.0.0"),
        (PlatformNeed(Platform.KUBERNETES, RANGE), "kubernetes >=1.0.0"),
        (Requirement((PLAIN, ApiNeed(THING))), "db.io or the API g.io/v1/Thing"),
        (Candidate(DB, parse_strict("1.0.0")), "db.io 1.0.0"),
        (SLOT, "shared/shop/group/a=b"),
        (Slot(SlotKind.CLUSTER), "cluster"),
        (Instance(*DB, SLOT), "carvel:db.io@shared/shop/group/a=b"),
        (Slot(SlotKind.INSTALL, path=("x",)), "install/x"),
        (
            Instance(ecosystem=Ecosystem.CARVEL, name="db.io", slot=Slot(SlotKind.CLUSTER)),
            "carvel:db.io@cluster",
        ),
    ],
)
def test_text_of_a_value(value: object, text: str) -> None:
    assert str(value) == text


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("x.io/acme/provider-aws", "acme-provider-aws"),
        ("https://x.io/acme/Provider_AWS.git", "acme-provider-aws-git"),
        ("https://git.example.org/mono//aws", "mono-aws"),
        ("plain", "plain"),
        ("x.io/-a-", "a"),
        (f"x.io/{'a' * 62}-b", "a" * 62),
        (f"x.io/{'a' * 80}", "a" * 63),
    ],
)
def test_name_of_an_image_is_its_path_as_a_label(image: str, label: str) -> None:
    assert dns_label(image) == label


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("dialect", "text", "written"),
    [
        (Dialect.CARVEL, "1.0.0", "1.0.0"),
        (Dialect.KPT, "1.0.0", "1.0.0"),
        (Dialect.CROSSPLANE, "v1.0.0", "=v1.0.0"),
        (Dialect.PORTER, "1.0.0", "=1.0.0"),
        (Dialect.PORTER, DIGEST, DIGEST),
    ],
)
def test_exact_version_is_equal_in_every_dialect(dialect: Dialect, text: str, written: str) -> None:
    exact = exact_range(dialect, text)

    assert exact.text == written
    is_digest = text == DIGEST
    assert exact.allows(parse_loose("1.0.0"), DIGEST)
    assert exact.allows(parse_loose("1.0.1"), DIGEST) is is_digest
    assert exact.allows(parse_loose("1.0.0"), "sha256:other") is not is_digest


def test_range_of_releases_admits_no_prerelease_that_it_names() -> None:
    first, second = (
        version_range(Dialect.PORTER, ">=1.0.0-rc.1", releases_only=only) for only in (False, True)
    )

    assert [range_.allows(parse_loose("1.0.0-rc.2")) for range_ in (first, second)] == [True, False]
    assert second.allows(parse_loose("1.0.0"))


# Requirements


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
def test_interface_meets_a_need_of_its_name_version_and_shape(
    fields: dict[str, Any], need: dict[str, Any], meets: bool
) -> None:
    version = parse_strict(fields["version"]) if "version" in fields else None
    implemented = Interface("io.x", **{**fields, "version": version})
    range_ = version_range(Dialect.CARVEL, need.get("range", ""))
    wanted = InterfaceNeed(**{"id": "io.x", **need, "range": range_})

    assert implemented.meets(wanted) is meets


# Bundles


def slot(kind: SlotKind, *path: str) -> Slot:
    return Slot(kind, "shop", path)


@pytest.mark.parametrize(
    ("where", "name", "labels"),
    [
        (slot(SlotKind.FOR, "press", "db"), "press-db", ("", {})),
        (slot(SlotKind.SHARED, "group"), "group-mysql", ("group", {})),
        (slot(SlotKind.SHARED), "mysql", ("", {})),
        (slot(SlotKind.NAMESPACE), "mysql", ("", {})),
        (slot(SlotKind.SHARED, "group", "b=2", "a=1"), "group-mysql-7ae498", ("group", {"a": "1", "b": "2"})),
        (slot(SlotKind.SHARED, "group", "a=1", "b=2"), "group-mysql-7ae498", ("group", {"a": "1", "b": "2"})),
        (slot(SlotKind.SHARED, "a=1=2"), "mysql-e4bb04", ("", {"a": "1=2"})),
        (slot(SlotKind.SHARED, "group", "inputs=00ff"), "group-mysql-98a2e9", ("group", {})),
    ],
)
def test_name_of_a_shared_bundle_is_that_of_its_group_labels_and_inputs(
    where: Slot, name: str, labels: tuple[str, dict[str, str]]
) -> None:
    assert bundle_name("r.io/acme/mysql", where) == name
    assert sharing_labels(where) == labels
    assert list(sharing_labels(where)[1]) == sorted(labels[1])


# Parameters


def test_values_are_written_as_sorted_json() -> None:
    assert written_values({"b": {"y": 1, "x": [True]}, "a": "text"}) == (
        ("a", '"text"'),
        ("b", '{"x":[true],"y":1}'),
    )


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


def test_catalogue_sorts_versions_and_drops_the_greater_of_two_alike() -> None:
    low, high = Candidate(DB, parse_strict("1.9.0")), Candidate(DB, parse_strict("1.10.0"))
    first, second = (
        Candidate(DB, parse_strict("1.9.0"), source=source, digest=digest)
        for source, digest in (("a", "2"), ("b", "1"))
    )

    assert build_catalogue([high, low]).packages == build_catalogue([low, high]).packages == {DB: (low, high)}
    assert build_catalogue([second, first]).candidates(DB) == (first,)
    assert build_catalogue([low]).candidates(PackageId(Ecosystem.KPT, "db.io")) == ()
    assert build_catalogue([low, high]).places(DB, RANGE) == {0, 1}
    assert build_catalogue([low, high]).places(DB, version_range(Dialect.CARVEL, "1.10.0")) == {1}


def test_package_is_found_by_its_other_names_unless_a_package_has_that_name() -> None:
    other = PackageId(Ecosystem.CARVEL, "web.io")
    kpt = Candidate(PackageId(Ecosystem.KPT, "git.example//web"), parse_strict("1.0.0"), names=("web.io",))

    assert build_catalogue([kpt]).find(other) == kpt.id
    own = Candidate(other, parse_strict("1.0.0"))
    assert build_catalogue([kpt, own]).find(other) == other
    unknown = PackageId(Ecosystem.CARVEL, "gone.io")
    assert build_catalogue([kpt]).find(unknown) == unknown
