"""Which commit a floating upstream means: its selector's, or the lock's."""

from typing import NamedTuple

import msgspec
import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location, UsageError
from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant, expand
from reconciler.inventory.inventory import Commit, Inventory, PackageRevision, ReviewedLock
from reconciler.names.ids import Lifecycle, ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.plan.changes import Op
from reconciler.policy import LockMode, LockPolicy, ReviewedLockPolicy
from reconciler.records.state import UpstreamLock, lock_upstream
from reconciler.resolve.pins import PinChoice, choose_pin, find_floating, follow, hold
from tests.support.model import NAMESPACE, ModelWorld, blueprint
from tests.support.sets import a_package
from tests.support.values import replace

WEB = ObjectName(NAMESPACE, "web")
REVIEWED = LockPolicy(LockMode.REVIEWED)
STRICT = LockPolicy(LockMode.REVIEWED, ReviewedLockPolicy(strict=True))


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    for number in (1, 2):
        world.publish("blueprints", "web", blueprint("web", a_yaml=f"a: {number}\n"), number)
    ask(world, Upstream(repo="blueprints", package="web", tag="stable"))
    move(world, 1)
    return world


def ask(world: ModelWorld, upstream: Upstream) -> None:
    downstream = Downstream(repo="edge", package="web")
    world.variants["web"] = PackageVariantSpec(upstream=upstream, downstream=downstream)


def move(world: ModelWorld, revision: int) -> None:
    """The author moves the floating tag to a revision."""
    refs = world.repositories["blueprints"].refs
    refs["refs/tags/web/stable"] = commit_of(world, revision)


def commit_of(world: ModelWorld, revision: int) -> Oid:
    return world.repositories["blueprints"].refs[f"refs/tags/web/v{revision}"]


def tree_of(world: ModelWorld, revision: int) -> Oid:
    return world.repositories["blueprints"].commits[commit_of(world, revision)].tree("web")


def lock(world: ModelWorld, revision: int, *, held: bool = False, tag: str = "stable") -> UpstreamLock:
    made = lock_upstream(
        WEB,
        {"repo": "blueprints", "package": "web", "tag": tag},
        commit=commit_of(world, revision),
        tree="",
        ref="web/stable",
        held=held,
    )
    assert made is not None
    return made


def review(world: ModelWorld, policy: LockPolicy = REVIEWED, *pins: UpstreamLock) -> None:
    """Switch to reviewed pins, with these on main."""
    world.policy = replace(world.policy, lock=policy)
    world.reviewed = ReviewedLock(pins={pin.key: pin for pin in pins})


def pinned(world: ModelWorld) -> int:
    """Plan and apply; return the revision that the one package is made from, 0 if it was left alone."""
    (change,) = world.run().changes
    commit = world.locks[WEB].commit if WEB in world.locks else ""
    assert change.op is not Op.BLOCK
    return next((n for n in (1, 2) if commit_of(world, n) == commit), 0)


def test_a_commit_that_a_person_writes_into_a_lock_goes_by_its_own_name(world: ModelWorld) -> None:
    ask(world, Upstream(repo="blueprints", package="web"))
    world.run()
    made = world.locks[WEB]
    assert made.ref == "web/v2"
    world.locks[WEB] = msgspec.structs.replace(made, commit=commit_of(world, 1), held=True)

    (change,) = world.run().changes
    assert change.upstream_to == "web/v1"
    world.locks[WEB] = made

    (change,) = world.run().changes
    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)


class Reviewed(NamedTuple):
    reason: str
    policy: LockPolicy
    merged: int
    applied: int
    want: int


REVIEWED_CASES = [
    Reviewed("a new variant takes its first pin at once", REVIEWED, 0, 0, 2),
    Reviewed("or waits for it", STRICT, 0, 0, 0),
    Reviewed("main decides", REVIEWED, 1, 0, 1),
    Reviewed("main decides strictly too", STRICT, 1, 0, 1),
    Reviewed("main decides against what was applied", REVIEWED, 1, 2, 1),
    Reviewed("what was applied stays until main says something", REVIEWED, 0, 1, 1),
    Reviewed("what was applied is not touched", STRICT, 0, 1, 1),
]


@pytest.mark.parametrize("case", REVIEWED_CASES, ids=lambda case: case.reason)
def test_reviewed_pins(world: ModelWorld, case: Reviewed) -> None:
    if case.applied:
        move(world, case.applied)
        world.run()
    move(world, 2)
    review(world, case.policy, *([lock(world, case.merged)] if case.merged else []))

    assert pinned(world) == case.want
    assert world.plan().is_empty


def test_nothing_moves_for_a_variant_whose_pin_cannot_be_read(world: ModelWorld) -> None:
    world.run()
    move(world, 2)
    review(world)
    assert world.reviewed is not None
    world.reviewed = replace(world.reviewed, broken=frozenset({WEB}))

    (change,) = world.run().changes

    assert (change.op, change.reason) == (Op.KEEP, Reason.LOCK_PENDING)
    assert pinned(world) == 1


def test_a_locked_commit_that_is_gone_is_a_problem_at_its_lock(world: ModelWorld) -> None:
    review(world, REVIEWED, msgspec.structs.replace(lock(world, 1), commit="f" * 40))

    inventory = world.inventory()
    problem = choose_pin(floating(inventory), inventory)

    assert world.plan().problems == (problem,)
    assert problem == Problem(
        Location("locks/upstreams/default/web.json"),
        Reason.UPSTREAM_NOT_FOUND,
        f"The lock names commit {'f' * 40} of web, which repository blueprints has not",
        "Take another with `reconciler lock --upgrade default/web`, or correct the file.",
        "PackageVariant default/web",
    )


def test_a_package_rests_at_a_locked_commit_that_nobody_has_any_more(world: ModelWorld) -> None:
    world.run()
    review(world, REVIEWED, lock(world, 1))
    move(world, 2)
    forget(world, commit_of(world, 1))

    plan = world.plan()

    assert {(c.op, c.reason) for c in plan.changes} == {(Op.KEEP, Reason.UP_TO_DATE)}
    assert plan.problems == ()
    inventory = world.inventory()
    choice = choose_pin(floating(inventory), inventory)
    applied = world.locks[WEB]
    record = world.inventory().records[WEB]
    assert isinstance(choice, PinChoice)
    assert choice.pin
    assert (choice.pin.ref, choice.pin.revision) == ("web/stable", -1)
    assert choice.pin.commit == Commit(Oid(applied.commit), 0)
    assert choice.pin.tree == record.upstream_tree
    assert choice.offers
    assert choice.offers.commit.oid == commit_of(world, 2)


def test_only_what_was_applied_and_recorded_may_be_gone(world: ModelWorld) -> None:
    world.run()
    review(world, REVIEWED, lock(world, 1))
    move(world, 2)
    forget(world, commit_of(world, 1))
    inventory = world.inventory()
    record, applied = inventory.records[WEB], inventory.locks[WEB]
    others = {
        "no record": {"records": {}},
        "record of another commit": {"records": {WEB: replace(record, upstream_commit="e" * 40)}},
        "no applied lock": {"locks": {}},
        "applied lock of another commit": {"locks": {WEB: msgspec.structs.replace(applied, commit="e" * 40)}},
    }

    for name, fields in others.items():
        choice = choose_pin(floating(inventory), replace(inventory, **fields))
        assert isinstance(choice, Problem), name

    review(world, REVIEWED, msgspec.structs.replace(lock(world, 2), commit="f" * 40))
    inventory = world.inventory()
    assert isinstance(choose_pin(floating(inventory), inventory), Problem), (
        "a lock that nothing was applied of"
    )


def forget(world: ModelWorld, commit: Oid) -> None:
    """A commit that no ref names any more is collected."""
    repository = world.repositories["blueprints"]
    repository.refs = {ref: oid for ref, oid in repository.refs.items() if oid != commit}
    repository.commits = {oid: one for oid, one in repository.commits.items() if oid != commit}


# Offers


def test_variant_that_waits_says_why_and_what_it_waits_for(world: ModelWorld) -> None:
    review(world, STRICT)
    inventory = world.inventory()
    choice = choose_pin(floating(inventory), inventory)
    assert isinstance(choice, PinChoice)
    assert (choice.pin, choice.waits) == (None, "Its pin is not merged yet")
    assert choice.offers
    assert choice.offers.commit.oid == commit_of(world, 1)

    review(world)
    assert world.reviewed
    broken = replace(inventory, reviewed=replace(world.reviewed, broken=frozenset({WEB})))
    choice = choose_pin(floating(broken), broken)
    assert isinstance(choice, PinChoice)
    assert choice.waits == "Its pin cannot be read; nothing moves until it is corrected"


# Names of locked commits


def a_release(name: str, commit: str, number: int = -1) -> PackageRevision:
    at = Commit(Oid(commit * 40), 1)
    return PackageRevision(
        "web", name, number, Lifecycle.PUBLISHED, f"refs/tags/web/{name}", at, Oid("c" * 40)
    )


@pytest.mark.parametrize(
    ("selector", "ref", "expected"),
    [
        ({}, "web/v1", "web/v1"),
        ({}, "web/v2", "web/v1"),
        ({"tag": "v2"}, "web/v2", "web/v2"),
        ({}, "web/gone", "web/gone"),
    ],
    ids=["its own", "that of another release", "the tag that moves", "a name that is gone"],
)
def test_locked_commit_goes_by_the_name_in_the_lock_unless_that_names_another_commit(
    world: ModelWorld, selector: dict[str, str], ref: str, expected: str
) -> None:
    state = a_package(published=(a_release("beta", "1"), a_release("v1", "1", 1), a_release("v2", "2", 2)))
    inventory = world.inventory()
    key = ObjectName(NAMESPACE, "blueprints")
    view = replace(inventory.repositories[key], packages={"web": state})
    inventory = replace(inventory, repositories={**inventory.repositories, key: view})
    made = msgspec.structs.replace(lock(world, 1), commit="1" * 40, selector=selector, ref=ref, held=True)
    web = replace(
        floating(inventory),
        spec=PackageVariantSpec(upstream=Upstream(repo="blueprints", package="web", **selector)),
    )

    choice = choose_pin(web, replace(inventory, locks={WEB: made}))

    assert isinstance(choice, PinChoice)
    assert choice.pin
    assert (choice.pin.ref, choice.pin.commit.oid) == (expected, "1" * 40)


# Holding and following


def floating(inventory: Inventory) -> DesiredVariant:
    (variant,) = expand(inventory).variants
    return variant


@pytest.mark.parametrize(
    ("what", "revision", "ref"),
    [
        ("v1", 1, "web/v1"),
        ("1", 1, "web/v1"),
        ("v2", 2, "web/v2"),
        ("2", 2, "web/v2"),
        ("stable", 2, "web/stable"),
        ("main", 2, "main"),
        ("", 2, "web/stable"),
    ],
)
def test_variant_is_held_at_what_a_person_names(world: ModelWorld, what, revision, ref) -> None:
    move(world, 2)
    inventory = world.inventory()

    assert hold(floating(inventory), what, None, inventory) == UpstreamLock(
        namespace=NAMESPACE,
        name="web",
        repository="blueprints",
        package="web",
        selector={"tag": "stable"},
        commit=commit_of(world, revision),
        tree=tree_of(world, revision),
        ref=ref,
        held=True,
    )


def test_variant_that_is_held_nowhere_in_particular_stays_at_its_lock(world: ModelWorld) -> None:
    before = lock(world, 1)
    move(world, 2)
    inventory = world.inventory()

    assert hold(floating(inventory), "", before, inventory) == msgspec.structs.replace(before, held=True)
    other = lock(world, 1, tag="beta")
    assert hold(floating(inventory), "", other, inventory).commit == commit_of(world, 2)


def test_variant_follows_its_selector_again(world: ModelWorld) -> None:
    move(world, 2)
    inventory = world.inventory()

    followed = follow(floating(inventory), inventory)

    assert followed == msgspec.structs.replace(lock(world, 2), tree=tree_of(world, 2))


def test_name_that_means_nothing_is_refused_with_what_there_is(world: ModelWorld) -> None:
    missing = "could not find upstream package revision: package web in repository blueprints has no tag"
    inventory = world.inventory()
    with pytest.raises(UsageError) as caught:
        hold(floating(inventory), "stabel", None, inventory)
    assert (str(caught.value), caught.value.hint) == (f"{missing} stabel", "Did you mean stable?")

    ask(world, Upstream(repo="blueprints", package="web", tag="gone"))
    inventory = world.inventory()
    for refused in (
        lambda: follow(floating(inventory), inventory),
        lambda: hold(floating(inventory), "", None, inventory),
    ):
        with pytest.raises(UsageError) as caught:
            refused()
        assert (str(caught.value), caught.value.hint) == (f"{missing} gone", "Known: stable, v1, v2.")


def test_variant_with_a_floating_upstream_is_found_by_its_name_alone_if_no_other_has_it(
    world: ModelWorld,
) -> None:
    web = floating(world.inventory())
    elsewhere = replace(web, key=ObjectName("elsewhere", "web"))
    db = replace(web, key=ObjectName(NAMESPACE, "db"))
    exact_spec = PackageVariantSpec(upstream=Upstream(repo="blueprints", package="web", revision=1))
    exact = replace(web, key=ObjectName(NAMESPACE, "exact"), spec=exact_spec)
    variants = [web, elsewhere, db, exact]

    assert find_floating(variants, "default/web") is web
    assert find_floating(variants, "db") is db
    assert find_floating(variants, "exact") is None
    assert find_floating(variants, "other/db") is None
    with pytest.raises(UsageError, match=r"^web is ambiguous: default/web, elsewhere/web$") as caught:
        find_floating(variants[::-1], "web")
    assert caught.value.hint == "Name the namespace too."
