"""What a rollout remembers: the revision from before, what failed, that it ended, and what people ordered."""

import pytest

from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Op
from reconciler.policy import PullRequestPolicy, RolloutPolicy
from reconciler.policy.rollouts import Gates, Wave
from reconciler.records.state import RolloutMember, RolloutPin, RolloutRecord
from reconciler.resolve.rollout_model import GO, PAUSE, ROLL_BACK, SKIP, RolloutPhase
from reconciler.resolve.rollout_records import find_earlier
from tests.support.model import MAIN
from tests.support.rollouts import (
    EDGES,
    GATE,
    POLICY,
    RolloutWorld,
    row,
    the_rollout,
    updated,
    with_a_new_revision,
)
from tests.support.values import replace

RETRY = "reconciler.dev/retry"
PLAIN = (RolloutPolicy(waves=(Wave("first", selector=POLICY.waves[0].selector), Wave("rest"))),)
BUDGET = (
    RolloutPolicy(waves=(Wave("first", selector=POLICY.waves[0].selector, failure_budget="1"), Wave("rest"))),
)


@pytest.fixture
def world() -> RolloutWorld:
    return with_a_new_revision(PLAIN)


def revisions(world: RolloutWorld) -> dict[str, str]:
    """Return the revision that main of each repository has, "" for no package."""
    locks = {edge: world.repositories[edge].at(MAIN) for edge in EDGES}
    return {
        edge: commit.header("web").upstream_lock.ref if "web" in commit.packages else ""
        for edge, commit in locks.items()
    }


def all_at(ref: str) -> dict[str, str]:
    return dict.fromkeys(EDGES, ref)


# what a package had before


def test_a_repository_that_could_not_be_read_at_the_start_goes_back_too(world: RolloutWorld) -> None:
    world.repositories["b1"].down = True
    world.run()
    world.repositories["b1"].down = False
    world.finish()
    assert revisions(world) == all_at("web/v2")

    world.order(ROLL_BACK, "web/v2")
    world.finish()

    assert revisions(world) == all_at("web/v1")


def test_after_the_end_and_without_the_state_a_rollback_still_works(world: RolloutWorld) -> None:
    world.finish()
    world.lose_state()
    world.order(ROLL_BACK, "web/v2")

    world.finish()

    assert revisions(world) == all_at("web/v1")


def test_packages_that_the_rollout_made_stay_and_their_open_drafts_close() -> None:
    world = RolloutWorld()
    world.policy = replace(world.policy, rollouts=PLAIN)
    world.run()
    world.merge("a1", world.drafts("a1")[0])
    world.order(ROLL_BACK, "web/v1")

    plan = world.run()

    assert (row(plan, "a2").op, row(plan, "a2").reason) == (Op.CLOSE, Reason.ROLLED_BACK)
    assert [pull.state.value for pull in world.repositories["a2"].pulls] == ["closed"]
    assert "a1/web was made by it and stays" in the_rollout(plan).waves[0].message
    assert list(world.open_drafts()) == []
    assert world.run().is_empty
    world.order(ROLL_BACK, None)
    assert updated(world.run()) == ["a2"]


def test_a_target_that_joined_goes_back_to_what_the_others_have(world: RolloutWorld) -> None:
    world.targets.remove("c2")
    world.push("c2", {"web": None})
    world.finish()
    world.targets.append("c2")
    world.finish()
    assert revisions(world) == all_at("web/v2")
    world.order(ROLL_BACK, "web/v2")

    world.finish()

    assert revisions(world) == all_at("web/v1")


@pytest.mark.parametrize("is_over", [True, False])
def test_a_target_that_joins_after_a_rollback_gets_what_the_others_have(world: RolloutWorld, is_over) -> None:
    world.targets.remove("c2")
    world.push("c2", {"web": None})
    world.finish()
    world.order(ROLL_BACK, "web/v2")
    if is_over:
        world.finish()
    world.targets.append("c2")

    world.finish()

    assert revisions(world) == all_at("web/v1")
    world.order(ROLL_BACK, None)
    world.finish()
    assert revisions(world) == all_at("web/v2")


def test_a_target_that_joins_with_a_new_revision_has_the_old_one_until_its_wave(world: RolloutWorld) -> None:
    world.revision = 1
    world.targets.remove("c2")
    world.push("c2", {"web": None})
    world.run()
    world.revision = 2
    world.targets.append("c2")

    plan = world.run()

    assert updated(plan) == ["a1", "a2", "c2"]
    world.merge("c2", world.drafts("c2")[0])
    assert revisions(world)["c2"] == "web/v1"
    world.finish()
    assert revisions(world) == all_at("web/v2")


@pytest.mark.parametrize(("cluster", "moved"), [("c2", ["a1", "a2", "c2"]), ("c1", ["a1", "a2"])])
def test_a_target_that_takes_the_place_of_another_one_of_its_cluster_waits_for_its_wave(
    world: RolloutWorld, cluster: str, moved: list[str]
) -> None:
    world.clusters["c2"] = cluster
    world.revision = 1
    world.targets.remove("c2")
    world.push("c2", {"web": None})
    world.run()
    world.revision = 2
    world.targets[-1] = "c2"

    assert updated(world.run()) == moved


def test_a_package_that_is_back_at_the_revision_opens_no_ended_rollout(world: RolloutWorld) -> None:
    world.finish()
    package = world.repositories["c2"].at(MAIN).packages["web"]
    world.targets.remove("c2")
    world.push("c2", {"web": None})
    world.finish()
    world.push("c2", {"web": package})
    world.targets.append("c2")

    assert (the_rollout(world.plan()).phase, world.plan().is_empty) == (RolloutPhase.COMPLETE, True)


def test_a_revision_from_before_that_is_gone_is_a_problem(world: RolloutWorld) -> None:
    world.finish()
    first = world.repositories["blueprints"].refs.pop("refs/tags/web/v1")
    world.order(ROLL_BACK, "web/v2")
    inventory = world.inventory()
    world.inventory = lambda: replace(
        inventory, trees={at: tree for at, tree in inventory.trees.items() if at.commit != first}
    )

    plan = world.plan()

    assert Exit.INVALID_INPUT in plan.exits
    assert "web/v1, which a1/web had before web/v2, cannot be found" in str(plan.problems[0])
    assert updated(plan) == []


# failures


def closed(world: RolloutWorld, edge: str, *, delete: bool) -> None:
    (ref,) = world.drafts(edge)
    world.close(edge, ref.removeprefix("refs/heads/"))
    if delete:
        del world.repositories[edge].refs[ref]


def test_a_failure_stays_while_its_repository_cannot_be_read(world: RolloutWorld) -> None:
    world.run()
    closed(world, "a1", delete=True)
    world.run()
    world.repositories["a1"].down = True

    assert the_rollout(world.run()).phase is RolloutPhase.FAILED


def test_retry_proposes_a_closed_package_again_and_the_rollout_goes_on(world: RolloutWorld) -> None:
    world.run()
    closed(world, "a1", delete=True)
    world.run()
    world.order(RETRY, "1")

    plan = world.run()

    assert the_rollout(plan).phase is RolloutPhase.PROGRESSING
    assert updated(plan) == ["a1"]
    assert the_rollout(world.run()).phase is RolloutPhase.PROGRESSING


def test_what_people_took_back_waits_for_them_and_moves_when_they_ask(world: RolloutWorld) -> None:
    world.run()
    world.merge_all()
    world.run()
    world.revert("a1")

    plan = world.run()

    assert (the_rollout(plan).phase, updated(plan)) == (RolloutPhase.FAILED, [])
    assert row(plan, "a1").reason is Reason.REJECTED
    assert RETRY in row(plan, "a1").message
    assert world.run().is_empty
    world.order(RETRY, "3")
    plan = world.run()
    assert (the_rollout(plan).phase, updated(plan)) == (RolloutPhase.PROGRESSING, ["a1"])
    world.merge_all()
    world.run()
    world.order(RETRY, None)
    world.revert("a1")
    assert f'{RETRY}: "1"' in row(world.run(), "a1").message


def test_an_unhealthy_package_stays_a_failure_while_nobody_sees_it(world: RolloutWorld) -> None:
    waves = (
        Wave("first", selector=POLICY.waves[0].selector, gates=Gates(objects=(GATE,)), max_open="1"),
        Wave("r"),
    )
    world.policy = replace(world.policy, rollouts=(RolloutPolicy(waves=waves),))
    world.run()
    world.merge_all()
    world.run()
    world.health["a1"] = "Degraded"
    world.take_snapshot()
    assert the_rollout(world.run()).phase is RolloutPhase.FAILED
    world.taken = None

    plan = world.run()

    assert (the_rollout(plan).phase, updated(plan)) == (RolloutPhase.FAILED, [])
    world.health.clear()
    world.take_snapshot()
    assert the_rollout(world.run()).phase is RolloutPhase.PROGRESSING


# the end


def ended_within_its_budget(world: RolloutWorld) -> None:
    world.policy = replace(world.policy, rollouts=BUDGET)
    world.targets.remove("c2")
    world.run()
    world.merge_all()
    world.run()
    world.revert("a1")
    world.finish()


def test_a_target_that_comes_after_the_end_gets_its_package(world: RolloutWorld) -> None:
    ended_within_its_budget(world)
    world.targets.append("c2")

    assert updated(world.run()) == ["c2"]
    world.merge_all()
    plan = world.run()
    assert the_rollout(plan).phase is RolloutPhase.COMPLETE
    assert world.plan().is_empty
    assert revisions(world)["a1"] == "web/v1"
    world.order(RETRY, "1")
    assert row(world.run(), "a1").request.rollout == ""


# orders


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        (ROLL_BACK, "v2", '"web/v2"'),
        (ROLL_BACK, "true", '"web/v2"'),
        (ROLL_BACK, "web/v9", '"web/v2"'),
        (ROLL_BACK, "web/v3", '"web/v2"'),
        (SKIP, "web/v2/nosuch", "first"),
        (GO, "web/v2/frist", "first"),
        (SKIP, "web/v2/first, web/v2/rest", "semicolons"),
        (GO, "wbe/v2/first", '"web/v2/first"'),
    ],
)
def test_an_order_that_is_not_understood_is_a_problem_and_nothing_moves(
    world: RolloutWorld, name: str, text: str, hint: str
) -> None:
    world.order(name, text)

    plan = world.plan()

    (problem,) = plan.problems
    assert problem.reason is Reason.INVALID_ANNOTATION
    assert hint in problem.hint
    assert Exit.INVALID_INPUT in plan.exits
    assert updated(plan) == []


def test_a_rollback_of_another_revision_is_noted(world: RolloutWorld) -> None:
    world.order(ROLL_BACK, "web/v1")

    plan = world.plan()

    (note,) = plan.notes
    assert "it names web/v1, and the rollout brings web/v2. Name that to take it back" in note
    (rollout,) = plan.rollouts
    assert [str(wave.phase) for wave in rollout.waves] == ["progressing", "waiting"]


# limits


def test_a_paused_rollout_opens_no_pull_request_that_a_limit_kept_back(world: RolloutWorld) -> None:
    world.policy = replace(world.policy, pull_requests=PullRequestPolicy(max_new=1))
    world.run()
    assert sum(len(world.repositories[edge].pulls) for edge in ("a1", "a2")) == 3
    world.order(PAUSE, "true")

    plan = world.run()

    assert [c.pull for c in plan.changes if c.pull and not c.pull.number] == []
    assert row(plan, "a2").postponed is not None
    world.order(PAUSE, None)
    assert [c.pull for c in world.run().changes if c.pull and not c.pull.number] != []


def before(number: int, values: str | None = "") -> RolloutPin:
    pin = RolloutPin(repository="blueprints", package="web", ref=f"web/v{number}", commit="a", tree="b")
    return replace(pin, main="c", values=values)


@pytest.mark.parametrize(
    ("members", "earlier"),
    [
        ({}, None),
        ({"first": None, "second": None}, None),
        ({"first": before(1), "second": before(2), "third": None}, before(2)),
        ({"third": before(1), "first": before(2)}, before(1)),
        ({"first": before(1, "x"), "second": before(2, "x")}, before(2, "x")),
        ({"first": before(1, "x"), "second": before(2, "y")}, before(2, None)),
        ({"first": before(1, None), "second": before(2, "y")}, before(2, None)),
        ({"gone": before(1), "first": before(2)}, before(2)),
    ],
)
def test_earlier_revision_is_that_of_the_last_wave_and_values_those_of_all(members, earlier) -> None:
    one_each = tuple(
        RolloutMember(namespace="default", name=wave, wave=wave, before=pin) for wave, pin in members.items()
    )
    waves = ("first", "second", "third")
    record = RolloutRecord(
        namespace="default", name="fleet", revision="web/v3", waves=waves, members=one_each
    )

    assert find_earlier(record) == (earlier and replace(earlier, main=""))
