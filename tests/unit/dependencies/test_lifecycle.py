"""What becomes of packages that were installed for others: used, owned, unused, adopted, upgraded along."""

import pytest

from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import (
    DEFAULT_OPTIONS,
    ClusterLock,
    LockUpdate,
    ResolveOptions,
    read_locks,
)
from reconciler.dependencies.lock.update import update_locks
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


def run(*texts: str, options: ResolveOptions = DEFAULT_OPTIONS) -> tuple[ClusterLock, LockUpdate]:
    """Decide one text after the other, each from what the last one locked; the options are for the last."""
    return run_steps(*((text, DEFAULT_OPTIONS) for text in texts[:-1]), (texts[-1], options))


def run_steps(*steps: tuple[str, ResolveOptions]) -> tuple[ClusterLock, LockUpdate]:
    """Decide one text after the other with its options, each from what the last one locked."""
    files: dict[str, bytes] = {}
    decision = LockUpdate()
    for text, options in steps:
        world = replace(world_of(text), cluster="one")
        decision = update_locks(
            FleetInputs((world,) if world.installs else ()), read_locks(files), options=options
        )
        files = dict(decision.files)
    (locked,) = read_locks(files).by_cluster.values()
    return locked, decision


def pins(locked: ClusterLock) -> dict[str, str]:
    return {one.instance.name: one.version for one in locked.resolution.packages}


def unused(locked: ClusterLock) -> list[str]:
    return [one.name for one in locked.resolution.unused]


def owners(locked: ClusterLock) -> dict[str, str]:
    return {
        str(one.instance): "user" if one.by_user else str(one.owner or "")
        for one in locked.resolution.packages
    }


SHOPS = package("shop.io", "1.0.0", needs("db.io")) + package("db.io", "1.0.0", needs("disk.io"))
SHOPS += package("disk.io", "1.0.0")
OTHER = install("other", "db-less.io", "") + package("db-less.io", "1.0.0")


def test_what_nobody_needs_any_more_goes_with_what_it_needed() -> None:
    locked, _ = run(OTHER + SHOPS + install("shop", "shop.io", ""), OTHER + SHOPS)

    assert pins(locked) == {"db-less.io": "1.0.0"}


def test_what_its_parent_orphans_stays_with_what_it_needs_and_is_listed_until_it_is_pruned() -> None:
    shop = install("shop", "shop.io", "", "dependencies: {deletePolicy: orphan}")
    before = (OTHER + SHOPS + shop, OTHER + SHOPS)

    locked, _ = run(*before)
    assert unused(locked) == ["db.io", "disk.io"]
    assert owners(locked)["carvel:disk.io@namespace/prod"] == "carvel:db.io@namespace/prod"

    assert unused(run(*before, OTHER + SHOPS)[0]) == ["db.io", "disk.io"]
    pruned, _ = run(*before, OTHER + SHOPS, options=ResolveOptions(prune=True))
    assert pins(pruned) == {"db-less.io": "1.0.0"}


GVK = "{gvk: {apiVersion: certs.io/v1, kind: Issuer}}"
ISSUERS = package("certs.io", "1.0.0", "provides: [{apiVersion: certs.io/v1, kind: Issuer}]")
SELF_SUPPLIED = package("one.io", "1.0.0", needs("certs.io")) + ISSUERS
META = "[{apiVersion: pkg.crossplane.io/v1, kind: Provider, package: x.io/aws}]"
AWS = crossplane("aws", "v1.0.0", kinds="s3.aws.io/v1/Bucket")
MYSQL = (
    bundle("one", "1.0.0", "{requires: [{name: db, reference: 'r.io/mysql:v1.0.0'}]}")
    + bundle(
        "two",
        "1.0.0",
        "{requires: [{name: db, interface: {id: io.cnab.interface.mysql}, lifecycle: {managed: true}}]}",
    )
    + bundle("mysql", "1.0.0", "{provides: [{interface: io.cnab.interface.mysql}]}")
)


@pytest.mark.parametrize(
    ("text", "installation_of", "instance"),
    [
        (SHOPS + install("shop", "shop.io", ""),
            "{namespace: prod, name: db.io, package: 'carvel:db.io', version: 1.0.0}",
            "carvel:db.io@namespace/prod"),
        (AWS + crossplane("one", "v1.0.0", META) + provider("one", "v1.0.0", "Configuration"),
            "{name: aws, package: 'xpkg:x.io/aws', version: v1.0.0}", "xpkg:x.io/aws@cluster"),
        (MYSQL + installation("one", "one"), "{name: mysql, package: 'bundle:r.io/mysql', version: 1.0.0}",
            "bundle:r.io/mysql@shared"),
    ],
    ids=["Carvel", "Crossplane", "Porter"],
)  # fmt: skip
def test_what_was_generated_is_needed_although_the_cluster_shows_it(text, installation_of, instance) -> None:
    shown = f"---\n{{kind: Cluster, installations: [{installation_of}]}}\n"

    first, _ = run(text)
    later, _ = run(text, text + shown)
    foreign, _ = run(text + shown)

    assert later.resolution == first.resolution
    assert instance in owners(first)
    assert instance not in owners(foreign)


def test_what_a_part_without_a_solution_uses_stays_with_it() -> None:
    catalogue, both = SELF_SUPPLIED, install("one", "one.io", "") + install("two", "two.io", "")
    before = catalogue + package("two.io", "1.0.0", GVK) + both
    unsolved = catalogue + package("two.io", "1.0.0", GVK, needs("gone.io")) + install("two", "two.io", "")

    left, decision = run(before, unsolved)

    assert [problem.reason for problem in decision.problems] == [Reason.DEPENDENCY_CONFLICT]
    (certs,) = [package for package in left.resolution.packages if package.instance.name == "certs.io"]
    assert str(certs.owner) == "carvel:two.io@install/prod/two"
    assert certs.requested_by == (certs.owner,)
    assert unused(left) == []


def test_with_dependencies_left_alone_nothing_is_added_moved_or_removed_there() -> None:
    shop = SHOPS + install("shop", "shop.io", "")
    more = shop + install("blog", "blog.io", "") + package("blog.io", "1.0.0", needs("cache.io"))
    more += package("cache.io", "1.0.0")
    alone = ResolveOptions(dependencies=False)

    added, _ = run(shop, more, options=alone)
    assert pins(added) == {"shop.io": "1.0.0", "db.io": "1.0.0", "disk.io": "1.0.0", "blog.io": "1.0.0"}
    removed, _ = run(OTHER + shop, OTHER + SHOPS, options=alone)
    assert pins(removed) == {"db-less.io": "1.0.0", "db.io": "1.0.0", "disk.io": "1.0.0"}
    complete, _ = run(shop, more, more)
    assert pins(complete)["cache.io"] == "1.0.0"
    assert added.lock.input_digest != complete.lock.input_digest  # what is left is decided by the next run


def lifecycle(words: str) -> str:
    return (
        installation("blog", "press")
        + bundle("press", "1.0.0", "{requires: [{name: db, reference: r.io/db, lifecycle: " + words + "}]}")
        + bundle("press", "2.0.0", "{requires: [{name: db, reference: r.io/db, lifecycle: " + words + "}]}")
        + bundle("db", "1.0.0")
    )


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("{managed: true}", "2.0.0"),
        ("{upgrade: true}", "2.0.0"),
        ("{managed: false}", "1.0.0"),
        ("{managed: true, upgrade: false}", "1.0.0"),
    ],
)
def test_only_what_is_managed_is_upgraded_with_its_parent(words: str, version: str) -> None:
    before = lifecycle(words)
    newer = before + bundle("db", "2.0.0")
    moved = newer.replace("repository: r.io/press, version: 1.0.0", "repository: r.io/press, version: 2.0.0")
    assert moved != newer

    assert pins(run(before, newer)[0])["r.io/db"] == "1.0.0"
    assert pins(run(before, moved)[0]) == {"r.io/press": "2.0.0", "r.io/db": version}
    frozen, _ = run(before, moved, options=ResolveOptions(dependencies=False))
    assert pins(frozen) == {"r.io/press": "2.0.0", "r.io/db": "1.0.0"}


CHOICE = package("web.io", "1.0.0", "{or: [" + f"{needs('a.io')}, {needs('b.io')}" + "]}")
CHOICE += install("web", "web.io", "") + package("b.io", "1.0.0")


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("{managed: true}", []),
        ("{managed: true, uninstall: false}", ["r.io/db"]),
        ("{uninstall: true}", []),
        ("{managed: false}", ["r.io/db"]),
    ],
)
def test_unused_managed_dependencies_go_and_others_are_reported(words: str, left: list[str]) -> None:
    text = OTHER + lifecycle(words)
    gone = text.replace("schemaType: Installation", "schemaType: Installation\nuninstalled: true")

    assert unused(run(text, gone)[0]) == left


def test_a_package_with_data_is_kept_whoever_lets_it_go() -> None:
    first = replace(world_of(OTHER + SHOPS + install("shop", "shop.io", "")), cluster="one")
    known = first.catalogue.packages
    kept = {
        id_: tuple(replace(one, retain=id_.name == "db.io") for one in several)
        for id_, several in known.items()
    }
    first = replace(first, catalogue=replace(first.catalogue, packages=kept))
    files = update_locks(FleetInputs((first,)), read_locks({})).files
    second = replace(world_of(OTHER + SHOPS), cluster="one")

    (scope,) = update_locks(FleetInputs((second,)), read_locks(files)).scopes

    assert scope.after is not None
    assert unused(scope.after) == ["db.io", "disk.io"]


@pytest.mark.parametrize("is_asked_for", [True, False], ids=["installs", "no installs"])
def test_a_lock_that_somebody_broke_stays_until_it_is_corrected(*, is_asked_for: bool) -> None:
    text = provider("aws", "v1.0.0") + crossplane("aws", "v1.0.0")
    world = replace(world_of(text), cluster="one")
    files = dict(update_locks(FleetInputs((world,)), read_locks({})).files)
    wrong = {p: d.replace(b'"package": "Provider/aws"', b'"package": "Provider/x"') for p, d in files.items()}
    locks = read_locks(wrong)
    inputs = FleetInputs((world,) if is_asked_for else ())
    decision = update_locks(inputs, locks)

    assert update_locks(inputs, read_locks(files)).changed is not is_asked_for
    assert [problem.reason for problem in locks.problems] == [Reason.INVALID_STATE]
    assert decision.changed is False
    assert locks.problems[0] in decision.problems
