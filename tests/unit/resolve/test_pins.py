"""Which commit a floating upstream means: its selector's, or the lock's."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.errors import UsageError
from reconciler.expand import DesiredVariant, expand
from reconciler.ids import ObjectName, Oid
from reconciler.inventory import Inventory, ReviewedLock
from reconciler.plan.changes import Op
from reconciler.policy import LockMode, LockPolicy, ReviewedLockPolicy
from reconciler.reasons import Reason
from reconciler.resolve.pins import follow, hold
from reconciler.state import WANTED_LOCK
from reconciler.upstream_lock import UpstreamLock, lock_upstream
from tests.support.model import NAMESPACE, ModelWorld, blueprint

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


def test_a_floating_upstream_follows(world: ModelWorld) -> None:
    assert pinned(world) == 1
    move(world, 2)

    assert pinned(world) == 2


def test_a_commit_that_a_person_writes_into_a_lock_goes_by_its_own_name(world: ModelWorld) -> None:
    ask(world, Upstream(repo="blueprints", package="web"))
    world.run()
    made = world.locks[WEB]
    assert made.ref == "web/v2"
    world.locks[WEB] = made.model_copy(update={"commit": commit_of(world, 1), "held": True})

    (change,) = world.run().changes
    assert change.upstream_to == "web/v1"
    world.locks[WEB] = made

    (change,) = world.run().changes
    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)


def test_what_a_person_holds_stays_until_the_manifest_asks_for_something_else(world: ModelWorld) -> None:
    world.run()
    move(world, 2)
    world.locks[WEB] = lock(world, 1, held=True)

    assert pinned(world) == 1
    assert world.locks[WEB].held

    refs = world.repositories["blueprints"].refs
    refs["refs/tags/web/beta"] = commit_of(world, 2)
    ask(world, Upstream(repo="blueprints", package="web", tag="beta"))

    assert pinned(world) == 2
    assert not world.locks[WEB].held


def test_a_held_pin_is_a_rollback(world: ModelWorld) -> None:
    move(world, 2)
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    world.locks[WEB] = lock(world, 1, held=True)

    (change,) = world.run().changes

    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)
    assert world.repositories["edge"].at(world.drafts("edge")[0]).packages["web"]["a.yaml"].data == b"a: 1\n"
    assert world.plan().is_empty


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


def test_an_answer_to_another_request_is_none(world: ModelWorld) -> None:
    move(world, 2)
    review(world, REVIEWED, lock(world, 1, tag="beta"))

    assert pinned(world) == 2


def test_nothing_moves_for_a_variant_whose_pin_cannot_be_read(world: ModelWorld) -> None:
    world.run()
    move(world, 2)
    review(world)
    assert world.reviewed is not None
    world.reviewed = replace(world.reviewed, broken=frozenset({WEB}))

    (change,) = world.run().changes

    assert (change.op, change.reason) == (Op.KEEP, Reason.LOCK_PENDING)
    assert pinned(world) == 1


def test_a_variant_that_waits_has_no_downstream_yet(world: ModelWorld) -> None:
    review(world, STRICT)

    plan = world.plan()

    (conditions,) = plan.conditions.values()
    ensured = next(c for c in conditions if c.type == "DownstreamEnsured")
    assert (ensured.status, ensured.reason) == ("False", "LockPending")
    assert plan.records.keys() == {WANTED_LOCK}


def test_a_locked_commit_that_is_gone_is_a_problem_at_its_lock(world: ModelWorld) -> None:
    review(world, REVIEWED, lock(world, 1).model_copy(update={"commit": "f" * 40}))

    plan = world.plan()

    (problem,) = plan.problems
    assert problem.location.path == "locks/upstreams/default/web.json"
    assert problem.reason is Reason.UPSTREAM_NOT_FOUND
    assert "--upgrade default/web" in problem.hint


def test_a_package_rests_at_a_locked_commit_that_nobody_has_any_more(world: ModelWorld) -> None:
    world.run()
    review(world, REVIEWED, lock(world, 1))
    move(world, 2)
    forget(world, commit_of(world, 1))

    plan = world.plan()

    assert {(c.op, c.reason) for c in plan.changes} == {(Op.KEEP, Reason.UP_TO_DATE)}
    assert plan.problems == ()


def forget(world: ModelWorld, commit: Oid) -> None:
    """A commit that no ref names any more is collected."""
    repository = world.repositories["blueprints"]
    repository.refs = {ref: oid for ref, oid in repository.refs.items() if oid != commit}
    repository.commits = {oid: one for oid, one in repository.commits.items() if oid != commit}


def test_the_state_keeps_a_pin_while_its_package_is_left_alone(world: ModelWorld) -> None:
    world.run()
    before = dict(world.state)
    world.annotations["web"] = {"reconciler.dev/paused": "true"}
    move(world, 2)

    assert world.plan().records == before


# Holding and following


def floating(inventory: Inventory) -> DesiredVariant:
    (variant,) = expand(inventory).variants
    return variant


@pytest.mark.parametrize(
    ("what", "revision", "ref"),
    [
        ("v1", 1, "web/v1"),
        ("1", 1, "web/v1"),
        ("stable", 2, "web/stable"),
        ("main", 2, "main"),
        ("", 2, "web/stable"),
    ],
)
def test_variant_is_held_at_what_a_person_names(
    world: ModelWorld, what: str, revision: int, ref: str
) -> None:
    move(world, 2)
    inventory = world.inventory()

    held = hold(floating(inventory), what, None, inventory)

    assert (held.held, held.commit, held.ref) == (True, commit_of(world, revision), ref)


def test_variant_that_is_held_nowhere_in_particular_stays_at_its_lock(world: ModelWorld) -> None:
    before = lock(world, 1)
    move(world, 2)
    inventory = world.inventory()

    assert hold(floating(inventory), "", before, inventory) == before.model_copy(update={"held": True})
    other = lock(world, 1, tag="beta")
    assert hold(floating(inventory), "", other, inventory).commit == commit_of(world, 2)


def test_variant_follows_its_selector_again(world: ModelWorld) -> None:
    move(world, 2)
    inventory = world.inventory()

    followed = follow(floating(inventory), inventory)

    assert (followed.held, followed.commit) == (False, commit_of(world, 2))


def test_name_that_means_nothing_is_refused_with_what_there_is(world: ModelWorld) -> None:
    inventory = world.inventory()
    with pytest.raises(UsageError) as caught:
        hold(floating(inventory), "stabel", None, inventory)
    assert "stabel" in str(caught.value)
    assert "stable" in caught.value.hint

    ask(world, Upstream(repo="blueprints", package="web", tag="gone"))
    inventory = world.inventory()
    with pytest.raises(UsageError, match="gone"):
        follow(floating(inventory), inventory)
