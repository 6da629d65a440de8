"""Edits of the inputs of a cluster, by which suggested changes are tried."""

import pytest

from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    ClusterState,
    InstallSlot,
    Instance,
    ObservedInstallation,
    ResolverSettings,
    SlotKind,
    build_catalogue,
)
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    VersionRange,
    version_range,
)
from reconciler.dependencies.solve.edits import (
    exact_need,
    version_in,
    widened,
    with_adopted,
    with_all,
    with_candidate,
    with_choices,
    with_declared,
    with_default,
    with_install,
    without_install,
)
from reconciler.dependencies.solve.lookup import any_version
from reconciler.dependencies.versions import parse_strict

DB = PackageId(Ecosystem.CARVEL, "db.io")
AWS = PackageId(Ecosystem.XPKG, "example.org/acme/aws")
BUNDLE = PackageId(Ecosystem.BUNDLE, "example.org/acme/bundle")


def candidate(version: str, id_: PackageId = DB, *, digest: str = "") -> Candidate:
    return Candidate(id_, parse_strict(version), digest=digest)


def install(name: str, namespace: str = "shop", kind: str = "PackageInstall") -> Install:
    return Install(namespace, name, Dialect.CARVEL, PackageNeed(DB, any_version(DB)), kind=kind)


ONE, TWO = install("one"), install("two")
INPUTS = ClusterInputs(
    (ONE, install("one", "other"), install("one", kind="App"), TWO), build_catalogue([candidate("1.0.0")])
)


def test_install_is_changed_or_removed_by_kind_namespace_and_name() -> None:
    same = install("one")

    changed = with_install(same, allow_downgrade=True)(INPUTS)
    removed = without_install(INPUTS, same)

    assert [install.allow_downgrade for install in changed.installs] == [True, False, False, False]
    assert changed.installs[1:] == removed.installs == INPUTS.installs[1:]
    assert changed.installs[0].need == ONE.need


def test_several_edits_are_made_in_turn() -> None:
    edit = with_all(iter([with_choices(discovery=True), with_choices(upgrade=frozenset({"db.io"}))]))

    expected = ResolverSettings(discovery=True, upgrade=frozenset({"db.io"}))
    assert edit(INPUTS).choices == edit(INPUTS).choices == expected
    assert with_all([])(INPUTS) is INPUTS


def test_default_of_an_interface_replaces_another_and_the_others_stay() -> None:
    inputs = with_choices(defaults=(("b", DB), ("c", DB)))(INPUTS)

    assert with_default("b", AWS)(inputs).choices.defaults == (("b", AWS), ("c", DB))
    assert with_default("a", AWS)(inputs).choices.defaults == (("a", AWS), ("b", DB), ("c", DB))


def test_version_is_published_beside_others_or_in_place_of_the_same() -> None:
    higher, again, other = candidate("2.0.0"), candidate("1.0.0", digest="new"), candidate("0.1.0", AWS)

    def packages(*published: Candidate) -> dict[PackageId, tuple[Candidate, ...]]:
        return dict(with_all(map(with_candidate, published))(INPUTS).catalogue.packages)

    assert packages(higher) == {DB: (candidate("1.0.0"), higher)}
    assert packages(again) == {DB: (again,)}
    assert list(packages(other).items()) == [(DB, (candidate("1.0.0"),)), (AWS, (other,))]
    assert packages() == INPUTS.catalogue.packages


@pytest.mark.parametrize(
    ("id_", "dialect", "namespace", "name"),
    [
        (DB, Dialect.CARVEL, "shop", "db.io"),
        (AWS, Dialect.CROSSPLANE, "", "aws"),
        (BUNDLE, Dialect.PORTER, "shop", "bundle"),
    ],
)
def test_package_is_declared_beside_what_needs_it_under_its_short_name(
    id_: PackageId, dialect: Dialect, namespace: str, name: str
) -> None:
    parent = Instance(DB, InstallSlot(SlotKind.INSTALL, "shop", ("one",)))

    declared = with_declared(candidate("1.0.0", id_), parent)(INPUTS).installs

    made = Install(namespace, name, dialect, PackageNeed(id_, any_version(id_)), kind="Install")
    assert declared == (*INPUTS.installs, made)


def test_observed_installation_is_declared_and_not_observed_any_more() -> None:
    there = [ObservedInstallation("shop", f"n-{id_.ecosystem}", id_) for id_ in (DB, AWS, BUNDLE)]
    rest = (ObservedInstallation("x", "y", DB),)
    inputs = with_adopted([], (*there, *rest))(INPUTS)
    assert inputs.presence == ClusterState(installations=(*there, *rest))

    adopted = with_adopted(there, rest)(inputs)

    assert adopted.presence == ClusterState(installations=rest)
    dialects = (Dialect.CARVEL, Dialect.CROSSPLANE, Dialect.PORTER)
    assert adopted.installs == (
        *INPUTS.installs,
        *(
            Install("shop", item.name, dialect, PackageNeed(item.id, any_version(item.id)), kind="Install")
            for item, dialect in zip(there, dialects, strict=True)
        ),
    )


@pytest.mark.parametrize(
    ("dialect", "old", "version", "new"),
    [
        (Dialect.CARVEL, ">=1.0.0 <2.0.0", "2.5.0", ">=1.0.0 <=2.5.0"),
        (Dialect.CARVEL, ">=1.0.0 <2.0.0", "0.5.0", ">=0.5.0 <2.0.0"),
        (Dialect.CARVEL, "<2.0.0 >=1.0.0", "2.5.0", ">=1.0.0 <=2.5.0"),
        (Dialect.CARVEL, "<2.0.0", "2.5.0", "<=2.5.0"),
        (Dialect.CARVEL, ">=2.0.0", "1.5.0", ">=1.5.0"),
        (Dialect.CARVEL, ">=1.0.0 <2.0.0 || 3.0.0", "2.5.0", ">=1.0.0 <=2.5.0"),
        (Dialect.CARVEL, "1.0.0", "2.5.0", "2.5.0"),
        (Dialect.CARVEL, ">=1.0.0 <2.0.0 !=1.5.0", "1.5.0", ">=1.0.0 <=1.5.0"),
        (Dialect.CROSSPLANE, ">=v1.0.0, <v2.0.0", "2.5.0", ">=v1.0.0, <=2.5.0"),
        (Dialect.CROSSPLANE, ">=v1.0.0,<v2.0.0", "0.5.0", ">=0.5.0, <v2.0.0"),
        (Dialect.CROSSPLANE, "^1.0.0", "2.5.0", "2.5.0"),
        (Dialect.PORTER, "<2.0.0", "2.5.0", "<=2.5.0"),
    ],
)
def test_range_is_widened_by_the_bound_that_a_version_breaks(
    dialect: Dialect, old: str, version: str, new: str
) -> None:
    need = PackageNeed(DB, version_range(dialect, old))

    wider = widened(need, candidate(version))

    assert wider == PackageNeed(DB, version_range(dialect, new))
    assert wider.range.allows(parse_strict(version))


def test_widened_range_keeps_its_rule_of_prereleases() -> None:
    need = PackageNeed(DB, version_range(Dialect.CARVEL, ">=1.0.0", prereleases=("rc",)))

    assert widened(need, candidate("0.9.0-rc.1")) == PackageNeed(
        DB, version_range(Dialect.CARVEL, ">=0.9.0-rc.1", prereleases=("rc",))
    )


def test_digest_is_replaced_by_the_version() -> None:
    digest = f"sha256:{'0' * 64}"
    need = PackageNeed(AWS, version_range(Dialect.CROSSPLANE, digest))

    wider = widened(need, candidate("1.0.0", AWS))

    assert wider == PackageNeed(AWS, version_range(Dialect.CROSSPLANE, "1.0.0"))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (Dialect.CARVEL, "1.2.0"),
        (Dialect.CROSSPLANE, "=1.2.0"),
        (Dialect.PORTER, "=1.2.0"),
        (Dialect.KPT, "1.2.0"),
    ],
)
def test_exact_version_is_written_as_its_dialect_writes_it(dialect: Dialect, text: str) -> None:
    own = Install("shop", "one", dialect, PackageNeed(DB, version_range(dialect, ">=1.0.0")))

    assert exact_need(own, candidate("1.2.0")) == PackageNeed(DB, version_range(dialect, text))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("", "1.0.0"),
        (">=1.2.0", "2.0.0+0"),
        ("<1.2.0", "0.0.0"),
        (">=1.2.0 <1.3.0", "1.2.1+0"),
        ("1.2.0", "1.2.0"),
    ],
)
def test_version_in_a_range_is_one_near_its_bounds(text: str, version: str) -> None:
    range_ = version_range(Dialect.CARVEL, text)

    found = version_in(range_)

    assert found is not None
    assert found.text == version


def test_range_without_any_version_has_none() -> None:
    assert version_in(version_range(Dialect.CARVEL, ">2.0.0 <1.0.0")) is None
    assert version_in(VersionRange(Dialect.PORTER, "", ())) == parse_strict("1.0.0")
