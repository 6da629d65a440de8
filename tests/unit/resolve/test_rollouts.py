"""Rollouts of a set: start, frozen targets, gates, orders, and what takes the place of what."""

import pytest

from reconciler.inventory.inventory import PullState
from reconciler.plan.changes import Op, Plan
from reconciler.policy import RolloutPolicy
from reconciler.policy.rollouts import Gates, Wave
from reconciler.resolve.rollout_model import GO, PAUSE, SKIP, RolloutPhase
from reconciler.resolve.rollout_records import bare_name
from tests.support.model import EPOCH
from tests.support.rollouts import (
    EDGES,
    GATE,
    POLICY,
    SOAK_S,
    RolloutWorld,
    row,
    the_rollout,
    updated,
    with_a_new_revision,
)
from tests.support.values import replace

FIRST, SECOND, THIRD = ("a1", "a2"), ("b1", "b2"), ("c1", "c2")


@pytest.fixture
def world() -> RolloutWorld:
    return with_a_new_revision((POLICY,))


def phases(plan: Plan) -> list[str]:
    return [str(wave.phase) for wave in the_rollout(plan).waves]


def messages(plan: Plan) -> list[str]:
    return [wave.message for wave in the_rollout(plan).waves]


def complete_first(world: RolloutWorld) -> None:
    world.run()
    world.merge_all()
    world.order(GO, f"web/v{world.revision}/first")


def complete_second(world: RolloutWorld) -> None:
    """Bring the two packages of the second wave through, one after the other, and let them soak."""
    for _ in SECOND:
        world.run()
        world.merge_all()
    world.run()
    world.time += SOAK_S
    world.take_snapshot()


def test_the_whole_way(world: RolloutWorld) -> None:
    plan = world.run()
    assert updated(plan) == list(FIRST)
    world.merge_all()
    plan = world.run()
    assert updated(plan) == []
    assert messages(plan)[0] == (
        'waits for a person: annotate the set with reconciler.dev/rollout-go: "web/v2/first"'
    )
    world.order(GO, "web/v2/first")
    plan = world.run()
    assert updated(plan) == ["b1"]
    assert row(plan, "b2").message == (
        "Rollout web/v2 of fleet: wave second has as many packages in review as its maxOpen allows"
    )
    world.merge_all()
    assert updated(world.run()) == ["b2"]
    world.merge_all()
    plan = world.run()
    assert messages(plan)[1].startswith("soaks until ")
    world.time += SOAK_S
    plan = world.run()
    assert messages(plan)[1] == (
        "waits for b1/web: the snapshot is not newer than the package on main, seen there since "
        "2023-11-14 22:33 UTC; b2/web: the snapshot is not newer than the package on main, seen there since "
        "2023-11-14 22:34 UTC"
    )
    world.take_snapshot()
    assert updated(world.run()) == list(THIRD)
    world.merge_all()
    plan = world.run()
    assert the_rollout(plan).phase is RolloutPhase.COMPLETE
    assert the_rollout(plan).record.finished
    assert world.plan().is_empty


def published(plan: Plan, edge: str) -> int:
    return next(m.published for m in the_rollout(plan).record.members if f"-{edge}-" in m.name)


SOAKING = (
    RolloutPolicy(waves=(Wave("first", selector=POLICY.waves[0].selector, soak_s=SOAK_S), Wave("rest"))),
)


@pytest.mark.parametrize("dated", [EPOCH, 4 * EPOCH], ids=["long ago", "in the future"])
def test_soak_counts_from_the_first_run_and_not_from_the_date_of_a_merge(world: RolloutWorld, dated) -> None:
    world.policy = replace(world.policy, rollouts=SOAKING)
    world.run()
    for edge, ref in list(world.open_drafts()):
        world.merge(edge, ref, dated=dated)

    seen, plan = world.time, world.run()

    assert messages(plan)[0].startswith("soaks until ")
    assert published(plan, "a1") == seen
    world.time = seen + SOAK_S - 1
    assert (updated(world.run()), published(world.plan(), "a1")) == ([], seen)
    world.time = seen + SOAK_S
    assert updated(world.run()) == [*SECOND, *THIRD]


def test_a_clock_that_was_set_back_ends_no_soak_time_early(world: RolloutWorld) -> None:
    world.policy = replace(world.policy, rollouts=SOAKING)
    world.run()
    a1, a2 = world.open_drafts()
    world.merge(*a1)
    world.run()
    now = world.time
    world.time = now - 10 * SOAK_S
    world.merge(*a2)
    plan = world.run()

    assert published(plan, "a2") >= published(plan, "a1")
    assert "a1/web was recorded as published " in messages(plan)[0]
    assert 'reconciler.dev/rollout-skip: "web/v2/first"' in messages(plan)[0]
    world.time = now + SOAK_S // 2
    assert updated(world.run()) == []


def test_a_snapshot_without_a_time_or_from_the_future_opens_no_wave(world: RolloutWorld) -> None:
    waves = (Wave("first", selector=POLICY.waves[0].selector, gates=Gates(objects=(GATE,))), Wave("rest"))
    world.policy = replace(world.policy, rollouts=(RolloutPolicy(waves=waves),))
    world.run()
    world.merge_all()
    world.run()

    world.taken = None
    assert (
        "does not tell when it was taken: import it with `reconciler snapshot import`"
        in messages(world.plan())[0]
    )
    world.taken = world.time + 10**9
    assert "which is in the future: import it again" in messages(world.plan())[0]
    world.take_snapshot()
    assert updated(world.run()) == [*SECOND, *THIRD]


def test_a_snapshot_from_before_the_end_of_the_soak_time_does_not_count(world: RolloutWorld) -> None:
    complete_first(world)
    for _ in SECOND:
        world.run()
        world.merge_all()
    world.run()
    world.take_snapshot()
    world.time += 2 * SOAK_S

    plan = world.run()

    assert phases(plan) == ["complete", "verifying", "waiting"]
    assert "the snapshot is from before the end of the soak time" in messages(plan)[1]


def test_an_unhealthy_package_stops_the_rollout_at_once_and_its_health_resumes_it(
    world: RolloutWorld,
) -> None:
    complete_first(world)
    world.run()
    world.merge_all()
    world.run()
    world.health["b1"] = "Degraded"
    world.take_snapshot()

    plan = world.run()

    assert the_rollout(plan).phase is RolloutPhase.FAILED
    assert updated(plan) == []
    assert row(plan, "b2").message == "Rollout web/v2 of fleet is stopped: wave second failed"
    assert row(plan, "c1").message == "Rollout web/v2 of fleet: wave third is stopped: wave second failed"
    world.health["b1"] = "Healthy"
    world.take_snapshot()
    assert the_rollout(world.run()).phase is RolloutPhase.PROGRESSING


def test_a_closed_pull_request_fails_its_wave(world: RolloutWorld) -> None:
    world.run()
    (ref,) = world.drafts("a1")
    world.close("a1", ref.removeprefix("refs/heads/"))

    assert messages(world.run())[0] == "1 failed (a1/web: pull request 2 was closed)"


def test_an_open_pull_request_counts_before_a_closed_one_whatever_their_numbers(world: RolloutWorld) -> None:
    world.run()
    repository = world.repositories["a1"]
    (pull,) = (pull for pull in repository.pulls if pull.state is PullState.OPEN)
    repository.pulls.append(replace(pull, state=PullState.CLOSED, number=99))

    assert "failed" not in messages(world.run())[0]


def test_a_reverted_package_fails_its_wave(world: RolloutWorld) -> None:
    complete_first(world)
    world.run()
    world.revert("a2")

    plan = world.run()

    assert messages(plan)[0] == "1 failed (a2/web: main has web/v1 again)"
    assert world.has_draft("b1")
    assert updated(plan) == []


def test_a_repository_that_cannot_be_read_is_waited_for(world: RolloutWorld) -> None:
    complete_first(world)
    world.repositories["a1"].down = True

    plan = world.run()

    assert messages(plan)[0] == "1 unknown (a1/web: its repository could not be read)"
    assert updated(plan) == []


def test_targets_are_those_of_the_start_and_later_ones_follow_in_the_same_run(world: RolloutWorld) -> None:
    world.targets = [*FIRST, *SECOND, "c1"]
    world.run()
    world.targets = list(EDGES)

    plan = world.run()

    assert row(plan, "c2").message == "Its target is newer than rollout web/v2 of fleet, and moves after it"
    world.merge_all()
    world.order(GO, "web/v2/first")
    complete_second(world)
    assert updated(world.run()) == ["c1"]
    world.merge_all()
    plan = world.run()
    assert updated(plan) == ["c2"]
    assert len(the_rollout(plan).record.members) == len(EDGES)


def test_a_target_that_left_is_not_waited_for(world: RolloutWorld) -> None:
    complete_first(world)
    world.run()
    world.merge_all()
    world.health["b1"] = "Degraded"
    world.take_snapshot()
    world.targets = [edge for edge in EDGES if edge != "b1"]

    plan = world.run()

    assert phases(plan) == ["complete", "progressing", "waiting"]
    assert updated(plan) == ["b2"]


def test_asking_for_the_old_revision_again_ends_the_rollout(world: RolloutWorld) -> None:
    world.run()
    world.revision = 1

    plan = world.run()

    assert plan.rollouts == ()
    assert world.rollouts == {}
    assert [row(plan, edge).op for edge in FIRST] == [Op.CLOSE, Op.CLOSE]


def test_a_pause_keeps_what_is_in_review_and_moves_nothing_more(world: RolloutWorld) -> None:
    complete_first(world)
    world.order(PAUSE, "true")

    plan = world.run()

    assert the_rollout(plan).phase is RolloutPhase.PAUSED
    assert row(plan, "b1").message == "Rollout web/v2 of fleet: paused"
    world.order(PAUSE, None)
    assert updated(world.run()) == ["b1"]
    world.order(PAUSE, "true")
    plan = world.run()
    assert world.has_draft("b1")
    assert the_rollout(plan).stopped == {row(plan, "b1").variant: "Rollout web/v2 of fleet is paused"}


def test_orders_for_another_revision_have_no_effect(world: RolloutWorld) -> None:
    world.run()
    world.merge_all()
    world.order(GO, "web/v1/first; web/v20/first")
    world.order(SKIP, "web/v1/first")

    assert phases(world.run()) == ["verifying", "waiting", "waiting"]


@pytest.mark.parametrize(
    ("revision", "name"),
    [("web/v2@0123abcd", "web/v2"), ("web/v2+0123abcd", "web/v2"), ("web/v2", "web/v2"), ("a@bc", "a@bc")],
)
def test_rollout_is_called_by_its_revision_without_commit_and_values(revision: str, name: str) -> None:
    assert bare_name(revision) == name


def test_the_first_policy_with_its_labels_holds_a_set(world: RolloutWorld) -> None:
    careful = RolloutPolicy(waves=POLICY.waves, selector={"matchLabels": {"rollout": "careful"}})
    at_once = RolloutPolicy(waves=(Wave("all"),))
    world.policy = replace(world.policy, rollouts=(careful, at_once))

    assert updated(world.plan()) == list(EDGES)
    world.labels = {"rollout": "careful"}
    assert updated(world.plan()) == list(FIRST)


def test_a_policy_for_other_sets_holds_nothing(world: RolloutWorld) -> None:
    other = RolloutPolicy(waves=POLICY.waves, selector={"matchLabels": {"rollout": "careful"}})
    world.policy = replace(world.policy, rollouts=(other,))

    plan = world.run()

    assert updated(plan) == list(EDGES)
    assert plan.rollouts == ()


def test_each_of_several_upstreams_of_a_set_rolls_out_for_itself() -> None:
    world = with_a_new_revision((POLICY,), "web", "db")
    world.run()
    world.merge_all()
    world.order(GO, "db/v2/first")

    plan = world.run()

    assert plan.notes == ()
    of_upstream = {str(rollout.key): [str(wave.phase) for wave in rollout.waves] for rollout in plan.rollouts}
    assert of_upstream == {
        "default/fleet/db": ["complete", "progressing", "waiting"],
        "default/fleet/web": ["verifying", "waiting", "waiting"],
    }
    assert updated(plan) == ["b1"]


def test_a_check_must_have_passed_on_the_present_head_of_main(world: RolloutWorld) -> None:
    waves = (Wave("first", selector=POLICY.waves[0].selector, gates=Gates(checks=("smoke",))), Wave("rest"))
    world.policy = replace(world.policy, rollouts=(RolloutPolicy(waves=waves),))
    world.run()
    world.merge_all()

    assert messages(world.run())[0] == (
        "waits for a1/web: check smoke has not passed on main; a2/web: check smoke has not passed on main"
    )
    world.failed_checks = ["a2"]
    failed = "1 failed (a2/web: check smoke failed on main)"
    assert messages(world.run())[0] == failed
    world.failed_checks = []
    assert messages(world.run())[0] == failed, "a check that has no result any more tells nothing better"
    for edge in FIRST:
        world.passed_checks[edge] = ("lint", "smoke")
    assert updated(world.run()) == [*SECOND, *THIRD]
