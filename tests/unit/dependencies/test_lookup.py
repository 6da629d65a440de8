"""Where a package may be installed, what is visible from where, and how a user changes a need."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    ClusterState,
    ObservedInstallation,
    ResolverSettings,
    build_catalogue,
)
from reconciler.dependencies.model.instances import Instance, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    InstallationType,
    Interface,
    Override,
    PackageId,
    PackageNeed,
    Requirement,
    Share,
    Sharing,
    version_range,
)
from reconciler.dependencies.solve.alternatives import (
    CandidateLookup,
    RequirementContext,
    any_version,
    effective_requirement,
    installation_matches,
    is_visible,
    new_slots,
    slot_places,
    with_rendered_labels,
)
from reconciler.dependencies.versions import parse_loose, parse_strict
from tests.support.dependency_worlds import pin as locked_as

AWS = PackageId(Ecosystem.XPKG, "x.io/aws")
DB = PackageId(Ecosystem.CARVEL, "db.io")
LOG = PackageId(Ecosystem.CARVEL, "log.io")
MYSQL = PackageId(Ecosystem.BUNDLE, "r.io/mysql")
THING = Gvk("g.io", "v1", "Thing")
CLUSTER = Slot(SlotKind.CLUSTER)
HERE = RequirementContext("shop", ("press",))


def need(package: PackageId = DB, text: str = "") -> PackageNeed:
    dialect = Dialect.PORTER if package is MYSQL else Dialect.CARVEL
    return PackageNeed(package, version_range(dialect, text))


def install(name: str = "mine", namespace: str = "shop", package: PackageId = DB, **fields: Any) -> Install:
    return Install(namespace, name, Dialect.CARVEL, need(package), **fields)


def candidate(package: PackageId, version: str, **fields: Any) -> Candidate:
    return Candidate(package, parse_loose(version), **fields)


# How a user's install changes a need

BOTH = Requirement((need(DB, ">=1.0.0"), ApiNeed(THING), need(LOG)), alias="data", aliases=("", "api", ""))
OTHER = version_range(Dialect.CARVEL, "2.0.0")
THERE = Location("f.yaml", 7)


@pytest.mark.parametrize(
    ("overrides", "ranges", "declined", "location"),
    [
        ([], (">=1.0.0", ""), (), Location("")),
        ([Override("other.io", OTHER, None, THERE)], (">=1.0.0", ""), (), Location("")),
        ([Override("db.io", OTHER, None, THERE)], ("2.0.0", ""), (), THERE),
        ([Override("data", OTHER, None, THERE)], ("2.0.0", "2.0.0"), (), THERE),
        ([Override("db.io", None, False)], (">=1.0.0", ""), (0,), Location("")),
        ([Override("api", None, False)], (">=1.0.0", ""), (1,), Location("")),
        (
            [Override("data", None, False), Override("log.io", None, True)],
            (">=1.0.0", ""),
            (0, 1),
            Location(""),
        ),
    ],
)
def test_override_concerns_the_alternatives_of_its_package_or_its_alias(
    overrides: list[Override], ranges: tuple[str, str], declined: tuple[int, ...], location: Location
) -> None:
    changed = effective_requirement(BOTH, install(overrides=tuple(overrides)))

    first, api, last = changed.alternatives
    assert isinstance(first, PackageNeed)
    assert isinstance(last, PackageNeed)
    assert (first.range.text, last.range.text) == ranges
    assert api == ApiNeed(THING)
    assert (changed.declined, changed.install, changed.location) == (declined, True, location)


def test_nothing_is_installed_where_every_alternative_is_declined() -> None:
    def may_install(**fields: Any) -> tuple[bool, tuple[int, ...]]:
        changed = effective_requirement(BOTH, install(**fields))
        return changed.install, changed.declined

    assert may_install(overrides=(Override("data", None, False),)) == (False, ())
    assert may_install(install_dependencies=False) == (False, ())
    wanted = (Override("log.io", None, True),)
    assert may_install(install_dependencies=False, overrides=wanted) == (True, (0, 1))
    assert effective_requirement(BOTH, None) is effective_requirement(BOTH, install()) is BOTH


def test_labels_are_rendered_with_the_name_of_the_users_or_the_generated_installation() -> None:
    labels = (("b", "{{ installation.name }}"), ("a", "{{ installation.namespace }}"))
    wanted = Requirement((need(),), share=Share(labels=labels))
    parent = Instance(*MYSQL, Slot(SlotKind.FOR, "shop", ("press", "db")))

    def rendered(context: RequirementContext) -> dict[str, str]:
        return dict(with_rendered_labels(wanted, parent, context).share.labels)

    assert rendered(RequirementContext("shop", install=install())) == {"a": "shop", "b": "mine"}
    assert rendered(RequirementContext("shop")) == {"a": "shop", "b": "press-db"}
    plain = Requirement((need(),))
    assert with_rendered_labels(plain, parent, HERE) is plain


# What is visible

LABELLED = Share(Sharing.NAMESPACE, labels=(("app", "blog"),))
GROUPED = Share(Sharing.NAMESPACE, group="g")
BLOG, GROUP = {"app": "blog", "x": "y"}, {"sh.porter.SharingGroup": "g"}


@pytest.mark.parametrize(
    ("package", "namespace", "labels", "share", "visible"),
    [
        (AWS, "", {}, Share(), True),
        (AWS, "other", {}, Share(), True),
        (DB, "shop", {}, Share(), True),
        (DB, "", {}, Share(), False),
        (DB, "other", {}, Share(), False),
        (MYSQL, "shop", {}, Share(Sharing.NAMESPACE), True),
        (MYSQL, "", {}, Share(Sharing.NAMESPACE), True),
        (MYSQL, "other", {}, Share(Sharing.NAMESPACE), False),
        (MYSQL, "shop", {}, Share(Sharing.GLOBAL), True),
        (MYSQL, "", {}, Share(Sharing.GLOBAL), True),
        (MYSQL, "shop", {}, Share(Sharing.EXCLUSIVE), False),
        (MYSQL, "shop", BLOG, Share(Sharing.EXCLUSIVE, labels=(("app", "blog"),)), True),
        (MYSQL, "shop", BLOG, LABELLED, True),
        (MYSQL, "shop", {"app": "shop"}, LABELLED, False),
        (MYSQL, "shop", {}, LABELLED, False),
        (MYSQL, "shop", GROUP, GROUPED, True),
        (MYSQL, "shop", {}, GROUPED, False),
    ],
)
def test_installation_is_visible_by_namespace_and_labels(
    package: PackageId, namespace: str, labels: dict[str, str], share: Share, visible: bool
) -> None:
    pairs = tuple(labels.items())
    own = install(namespace=namespace, package=package, labels=pairs)
    seen = ObservedInstallation(namespace, "x", package, parse_loose("1.0.0"), labels=pairs)

    assert is_visible(own, package, share, HERE) is visible
    assert installation_matches(seen, need(package), package, share, HERE) is visible


@pytest.mark.parametrize(
    ("version", "digest", "text", "matches"),
    [
        ("1.0.0", "", ">=1.0.0", True),
        ("0.9.0", "", ">=1.0.0", False),
        (None, "", "", False),
        ("1.0.0", f"sha256:{'0' * 64}", f"sha256:{'0' * 64}", True),
        ("1.0.0", "", f"sha256:{'0' * 64}", False),
    ],
)
def test_installation_matches_in_a_version_that_is_asked_for(
    version: str | None, digest: str, text: str, matches: bool
) -> None:
    seen = ObservedInstallation("", "aws", AWS, parse_loose(version) if version else None, digest)
    wanted = PackageNeed(AWS, version_range(Dialect.CROSSPLANE, text))

    assert installation_matches(seen, wanted, AWS, Share(), HERE) is matches
    assert not installation_matches(seen, wanted, DB, Share(), HERE)


# Slots

ONCE = InstallationType.ONE_PER_CLUSTER


def versions(package: PackageId, *once: bool) -> tuple[Candidate, ...]:
    kinds = {True: ONCE, False: InstallationType.ONE_PER_NAMESPACE}
    return tuple(
        candidate(package, f"{number}.0.0", installation=kinds[one]) for number, one in enumerate(once)
    )


EVERY = frozenset({0, 1})


@pytest.mark.parametrize(
    ("package", "once", "slots"),
    [
        (AWS, (False, False), [(CLUSTER, EVERY)]),
        (DB, (False, False), [(Slot(SlotKind.NAMESPACE, "shop"), EVERY)]),
        (DB, (True, True), [(CLUSTER, EVERY)]),
        (DB, (True, False), [(CLUSTER, {0}), (Slot(SlotKind.NAMESPACE, "shop"), {1})]),
        (DB, (), [(Slot(SlotKind.NAMESPACE, "shop"), set())]),
    ],
)
def test_versions_fit_into_the_slots_of_their_kind(
    package: PackageId, once: tuple[bool, ...], slots: list[tuple[Slot, frozenset[int]]]
) -> None:
    own = versions(package, *once)

    assert list(new_slots(package, own, Requirement((need(package),)), HERE)) == slots
    assert {slot: slot_places(Instance(*package, slot), own) for slot, _ in slots} == dict(slots)


@pytest.mark.parametrize(
    ("share", "slot"),
    [
        (Share(Sharing.EXCLUSIVE), Slot(SlotKind.FOR, "shop", ("press", "db"))),
        (Share(Sharing.NAMESPACE), Slot(SlotKind.SHARED, "shop")),
        (Share(Sharing.GLOBAL), Slot(SlotKind.SHARED)),
        (Share(), Slot(SlotKind.SHARED)),
        (
            Share(Sharing.NAMESPACE, "g", (("a", "b"),), (("inputs", "00"),)),
            Slot(SlotKind.SHARED, "shop", ("g", "a=b", "inputs=00")),
        ),
    ],
)
def test_bundle_has_a_slot_of_its_sharing(share: Share, slot: Slot) -> None:
    wanted = Requirement((need(MYSQL),), alias="db", share=share)

    assert [found for found, _ in new_slots(MYSQL, (), wanted, HERE)] == [slot]
    assert slot_places(Instance(*MYSQL, slot), versions(MYSQL, True, False)) == EVERY


# Look-ups


def lookup(*installs: Install, **fields: Any) -> CandidateLookup:
    published = [candidate(DB, text) for text in ("1.0.0", "2.0.0")]
    return CandidateLookup(
        ClusterInputs(installs, build_catalogue([*published, *fields.pop("more", ())]), **fields)
    )


SLOT = Slot(SlotKind.NAMESPACE, "shop")


def pin(version: str, slot: Slot = SLOT, package: PackageId = DB) -> Resolved:
    return locked_as(Instance(*package, slot), candidate(package, version))


def test_locked_version_stays_a_candidate_when_it_is_not_published_any_more() -> None:
    instance = Instance(*DB, SLOT)
    gone = lookup(pins=(pin("1.5.0"),))
    there = lookup(pins=(pin("2.0.0"),))

    assert [(c.version.text, c.unavailable) for c in gone.candidates(instance)] == [
        ("1.0.0", False),
        ("2.0.0", False),
        ("1.5.0", True),
    ]
    assert (gone.locked(instance), there.locked(instance), lookup().locked(instance)) == (2, 1, None)
    assert len(there.candidates(instance)) == 2
    assert gone.allowed(instance, version_range(Dialect.CARVEL, "<2.0.0")) == {0, 2}
    assert lookup().allowed(instance, version_range(Dialect.CARVEL, "<2.0.0")) == {0}
    upgraded = lookup(pins=(pin("1.5.0"),), choices=ResolverSettings(upgrade=frozenset({"db.io"})))
    # It may move, and not below that.
    assert (upgraded.locked(instance), upgraded.pinned(instance)) == (None, 2)


def test_providers_are_known_where_discovery_is_on() -> None:
    more = [candidate(LOG, "1.0.0", provides=(THING,), interfaces=(Interface("io.x"),))] * 2
    on = ResolverSettings(discovery=True)

    assert lookup(more=more).providers == {}
    assert lookup(more=more, choices=on).providers == {THING: [LOG], "io.x": [LOG]}


def seen(package: PackageId, name: str, namespace: str = "") -> ObservedInstallation:
    return ObservedInstallation(namespace, name, package, parse_loose("1.0.0"))


def test_installation_of_somebody_else_is_in_the_way_in_the_slot_of_the_cluster() -> None:
    theirs = ClusterState(installations=(seen(AWS, "theirs"),))
    instance = Instance(*AWS, CLUSTER)

    assert lookup(presence=theirs).foreign(instance) == seen(AWS, "theirs")
    assert lookup(presence=theirs).foreign(Instance(*DB, CLUSTER)) is None
    assert lookup(presence=theirs).foreign(Instance(*AWS, SLOT)) is None
    assert lookup(presence=theirs, pins=(pin("1.0.0", CLUSTER, AWS),)).foreign(instance) is None
    assert lookup(install("aws", "", AWS), presence=theirs).foreign(instance) is None


def test_api_is_ours_if_the_lock_or_a_manifest_brought_it() -> None:
    maker = candidate(LOG, "1.0.0", provides=(THING,))
    owned = ClusterState(owners=((THING.group_kind, LOG),))

    assert not lookup(more=[maker]).is_ours(THING)
    assert lookup(install(package=LOG), more=[maker]).is_ours(THING)
    assert not lookup(install(package=LOG, external=True), more=[maker]).is_ours(THING)
    assert lookup(more=[maker], pins=(pin("1.0.0", package=LOG),)).is_ours(THING)
    assert not lookup(more=[maker], pins=(pin("2.0.0", package=LOG),)).is_ours(THING)
    assert not lookup(presence=owned).is_ours(THING)
    assert lookup(install(package=LOG), presence=owned).is_ours(THING)
    assert lookup(pins=(pin("2.0.0", package=LOG),), presence=owned).is_ours(THING)
    narrow = Install("shop", "x", Dialect.CARVEL, need(LOG, ">=2.0.0"))
    assert not lookup(narrow, more=[maker]).is_ours(THING)


@pytest.mark.parametrize(
    ("package", "dialect"),
    [
        (AWS, Dialect.CROSSPLANE),
        (DB, Dialect.CARVEL),
        (MYSQL, Dialect.PORTER),
        (PackageId(Ecosystem.KPT, "x"), Dialect.KPT),
    ],
)
def test_any_version_of_a_package_admits_prereleases(package: PackageId, dialect: Dialect) -> None:
    range_ = any_version(package)

    assert (range_.dialect, str(range_)) == (dialect, "any version")
    assert range_.allows(parse_strict("1.0.0-rc.1"))
