"""What is locked for a manifest stays while that has no solution, whatever package it names now."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.changes import MoveOp, version_changes
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate, ResolveOptions, read_locks
from reconciler.dependencies.lock.update import effective_locks, update_locks
from reconciler.dependencies.model.cluster import build_catalogue
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    world_of,
)
from tests.support.values import replace

Files = dict[str, bytes]
NO_OPTIONS = ResolveOptions()
DEV: Mapping[str, str] = {"dev": ""}


def decided(
    files: Files, *texts: str, options: ResolveOptions = NO_OPTIONS, clusters: Mapping[str, str] = DEV
) -> LockUpdate:
    """Decide the lock of the cluster dev, or of several by name, from what was written before."""
    text = "".join(texts)
    clusters = clusters if text else {}
    worlds = tuple(replace(world_of(text + own), cluster=name) for name, own in clusters.items())
    return update_locks(FleetInputs(worlds), read_locks(files) if files else FleetLocks(), options=options)


def pins(decision: LockUpdate, cluster: str = "dev") -> list[str]:
    (scope,) = (scope for scope in decision.scopes if scope.cluster == cluster)
    packages = scope.after.resolution.packages if scope.after else ()
    return [f"{one.instance.name} {one.version} as {one.object or one.instance.name}" for one in packages]


DB, DB2 = package("db.io", "1.0.0"), package("db.io", "2.0.0")
APP = package("app.io", "1.0.0", needs("db.io", "<2.0.0"))
CARVEL = APP + DB
WANTS = "{name: db, bundle: {reference: 'r.io/db:v1.0.0'}}"
PORTER = bundle("app", "1.0.0", f"{{requires: [{WANTS}]}}") + bundle("db", "1.0.0")
FAMILY = "[{provider: x.io/fam, version: '>=v1.0.0'}]"


def registry(host: str) -> str:
    """Return a family and one of its providers, with their kinds, in a registry."""
    s3 = crossplane("s3", "v1.0.0", FAMILY, "b.io/v1/Bucket").replace("kind: Configuration", "kind: Provider")
    fam = crossplane("fam", "v1.0.0", kinds="b.io/v1/Config").replace("kind: Configuration", "kind: Provider")
    return (s3 + fam).replace("x.io/", f"{host}/")


def asked(host: str, *take_over: str, name: str = "s3") -> str:
    """Return the manifest of a provider of a registry."""
    text = provider(name, "v1.0.0").replace("x.io/" + name, f"{host}/s3")
    notes = f", annotations: {{reconciler.dev/take-over: '{', '.join(take_over)}'}}" if take_over else ""
    return text.replace(f"{{name: {name}}}", f"{{name: {name}{notes}}}")


class Move(NamedTuple):
    reason: str
    packages: str
    before: str
    after: str
    subject: str


MOVES = [
    Move("Carvel", CARVEL, install("a", "app.io", ""), install("a", "ap.io", ""), "PackageInstall prod/a"),
    Move(
        "Carvel, with other settings at once",
        CARVEL + DB2,
        install(
            "a",
            "app.io",
            "",
            "dependencies: {override: [{refName: db.io, versionSelection: {constraints: '1.0.0'}}]}",
        ),
        install("a", "ap.io", ">9.0.0", "dependencies: {install: false}"),
        "PackageInstall prod/a",
    ),
    Move("Porter", PORTER, installation("a", "app"), installation("a", "ap"), "Installation prod/a"),
    Move(
        "Porter, bound by an alias to a bundle of a manifest",
        PORTER,
        installation("mine", "db")
        + installation("a", "app", more="custom: {reconciler.dev/dependencies: {db: mine}}"),
        installation("mine", "db")
        + installation("a", "ap", more="custom: {reconciler.dev/dependencies: {other: mine}}"),
        "Installation prod/a",
    ),
    Move(
        "Porter, what an alias is bound to",
        PORTER,
        installation("mine", "db")
        + installation("a", "app", more="custom: {reconciler.dev/dependencies: {db: mine}}"),
        installation("mine", "d")
        + installation("a", "app", more="custom: {reconciler.dev/dependencies: {db: mine}}"),
        "Installation prod/mine",
    ),
    Move("Crossplane, nowhere", registry("x.io"), asked("x.io"), asked("z.io"), "Provider s3"),
    Move("Crossplane, whose kinds another package has", registry("x.io") + registry("y.io"), asked("x.io"),
        asked("y.io"), "Provider s3"),
    Move("Crossplane, to what another manifest installs", registry("x.io") + crossplane("b", "v1.0.0"),
        provider("b", "v1.0.0") + asked("x.io"),
        provider("b", "v1.0.0") + asked("x.io").replace("x.io/s3", "x.io/b"), "Provider s3"),
]  # fmt: skip


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.reason)
def test_the_former_packages_may_be_gone_from_the_index(move: Move) -> None:
    before = decided({}, move.packages, move.before)

    assert pins(decided(before.files, package("other.io", "1.0.0"), move.after)) == pins(before)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.reason)
def test_upgrading_what_cannot_move_takes_nothing_away(move: Move) -> None:
    before = decided({}, move.packages, move.before)
    names = frozenset(pin.split()[0] for pin in pins(before))

    after = decided(before.files, move.packages, move.after, options=ResolveOptions(upgrade=names))

    assert pins(after) == pins(before)


def test_an_upgrade_that_no_version_allows_keeps_what_is_locked() -> None:
    database = install("db", "db.io", "")
    before = decided({}, CARVEL, install("app", "app.io", ""), database)

    upgrade = ResolveOptions(upgrade=frozenset({"app.io"}))
    after = decided(before.files, CARVEL, install("app", "app.io", ">=9.0.0"), database, options=upgrade)

    assert [problem.reason for problem in after.problems] == ["DependencyConflict"]
    assert pins(after) == pins(before)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.reason)
def test_what_is_locked_for_a_manifest_goes_with_it(move: Move) -> None:
    before = decided({}, move.packages, move.before)
    assert pins(decided(decided(before.files, move.packages, move.after).files, move.packages)) == []


def test_of_two_clusters_only_the_one_that_names_another_package_is_held() -> None:
    both = {"dev": install("a", "app.io", "<2.0.0"), "prod": install("a", "app.io", "<2.0.0")}
    before = decided({}, CARVEL, clusters=both)
    newer = package("app.io", "1.1.0", needs("db.io", "<2.0.0"))

    one = {"dev": install("a", "ap.io", ""), "prod": install("a", "app.io", "1.1.0")}
    after = decided(before.files, CARVEL, newer, clusters=one)

    assert pins(after, "dev") == pins(before, "dev")
    assert "app.io 1.1.0 as PackageInstall/a" in pins(after, "prod")


def test_nothing_waits_for_review_where_a_manifest_is_held() -> None:
    before = decided({}, CARVEL, install("a", "app.io", ""))
    after = decided(before.files, CARVEL, install("a", "ap.io", ""))

    for strict in (True, False):
        assert pins(effective_locks(after, strict=strict)) == pins(before)


# Moves between registries: one consent for all that a manifest brings

BOTH = registry("x.io/a") + registry("y.io/b")


def sister(host: str, *take_over: str) -> str:
    return asked(host, *take_over).replace("name: s3", "name: ec2").replace(f"{host}/s3", f"{host}/ec2")


def with_sisters(host: str) -> str:
    ec2 = crossplane("ec2", "v1.0.0", FAMILY, "b.io/v1/Vm").replace("kind: Configuration", "kind: Provider")
    return registry(host) + ec2.replace("x.io/", f"{host}/")


def test_a_move_is_one_change_of_each_object() -> None:
    before = decided({}, BOTH, asked("x.io/a"))

    moved = decided(before.files, BOTH, asked("y.io/b", "x.io/a/fam", "x.io/a/s3"))

    changes = [change for change in version_changes(moved) if change.op.subject == "pin"]
    assert [(change.op, change.before, change.after) for change in changes] == [
        (MoveOp.CHANGE, "x.io/a/fam v1.0.0", "y.io/b/fam v1.0.0"),
        (MoveOp.CHANGE, "x.io/a/s3 v1.0.0", "y.io/b/s3 v1.0.0"),
    ]


def test_a_former_family_that_still_runs_keeps_its_object() -> None:
    """Activated by hand only, the former provider runs on, and needs its family."""
    manual = "spec: {revisionActivationPolicy: Manual, "
    before = decided({}, BOTH, asked("x.io/a"))

    moved = decided(before.files, BOTH, asked("y.io/b", "x.io/a/fam", "x.io/a/s3").replace("spec: {", manual))

    assert "x.io/a/fam v1.0.0 as Provider/a-fam" in pins(moved)


class Hinted(NamedTuple):
    reason: str
    after: str
    hints: list[str]


TAKE = "Write `reconciler.dev/take-over: x.io/a/fam, x.io/a/s3` into the annotations of Provider s3"
HINTED = [
    Hinted("the consent is for the family too, and the sister has to follow",
        asked("y.io/b") + sister("x.io/a"), [f"{TAKE} ({{}}), and move Provider ec2 ({{}}) along"]),
    Hinted("with consent the sister is left", asked("y.io/b", "x.io/a/fam", "x.io/a/s3") + sister("x.io/a"),
        ["Move Provider ec2 ({}) along, or remove what needs x.io/a/fam"]),
    Hinted(
        "of all that move, each is told",
        asked("y.io/b", "x.io/a/fam", "x.io/a/s3") + sister("y.io/b"),
        [
            "Move Provider ec2 ({}) along, or remove what needs x.io/a/fam",
            "Write `reconciler.dev/take-over: x.io/a/ec2` into the annotations of Provider ec2 ({})",
        ],
    ),
    Hinted("all have consent", asked("y.io/b", "x.io/a/fam", "x.io/a/s3") + sister("y.io/b", "x.io/a/ec2"),
        []),
]  # fmt: skip


@pytest.mark.parametrize("case", HINTED, ids=lambda case: case.reason)
def test_hints_name_all_that_a_move_needs(case: Hinted) -> None:
    texts = with_sisters("x.io/a") + with_sisters("y.io/b")
    before = decided({}, texts, asked("x.io/a") + sister("x.io/a"))

    after = decided(before.files, texts, case.after)

    assert [re.sub(r"\(config[^)]*\)", "({})", problem.hint) for problem in after.problems] == case.hints
    assert (pins(after) == pins(before)) is bool(case.hints)


def test_an_index_that_makes_a_package_an_alias_of_another_one_moves_nothing_by_itself() -> None:
    before = decided({}, BOTH, asked("x.io/a"))
    world = world_of(registry("y.io/b") + asked("x.io/a"))
    named = [
        replace(candidate, names=(candidate.id.name.replace("y.io/b", "x.io/a"),))
        for versions in world.catalogue.packages.values()
        for candidate in versions
    ]
    aliased = replace(world, catalogue=build_catalogue(named), cluster="dev")

    after = update_locks(FleetInputs((aliased,)), read_locks(before.files))

    assert [problem.subject for problem in after.problems] == ["Provider s3"]
    assert pins(after) == pins(before)


def web(version: str) -> str:
    return crossplane("web", version).replace("kind: Configuration", "kind: Provider")


def test_a_provider_that_takes_over_a_dependency_counts_its_revisions_on() -> None:
    packages = registry("x.io") + web("v1.0.0") + web("v2.0.0")
    files: Files = {}
    for version in ("v1.0.0", "v2.0.0"):
        files = decided(files, packages, asked("x.io"), provider("web", version)).files

    family = provider("web", "v1.0.0").replace("x.io/web", "x.io/fam")
    after = decided(files, packages, asked("x.io"), family)

    assert after.problems == ()
    (lock,) = (scope.after.lock for scope in after.scopes if scope.after)
    assert [r.revision for r in lock.revisions if r.package == "Provider/web"] == [3]


def test_a_provider_has_one_package_also_while_a_manifest_cannot_be_read() -> None:
    packages = registry("x.io") + web("v1.0.0")
    before = decided({}, packages, provider("web", "v1.0.0"))
    family = provider("web", "v1.0.0").replace("x.io/web", "x.io/fam")
    world = replace(world_of(packages + family), cluster="dev")

    after = update_locks(FleetInputs((world,), frozenset({"dev"})), read_locks(before.files))

    assert after.problems == ()
    assert pins(after) == ["x.io/fam v1.0.0 as Provider/web"]
