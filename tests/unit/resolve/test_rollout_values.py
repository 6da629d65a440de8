"""Values of a set travel like its revisions; what changes nothing in a package is done for its wave."""

import pytest

from reconciler.base.reasons import Reason
from reconciler.plan.changes import Plan
from reconciler.policy import RolloutPolicy
from reconciler.policy.rollouts import Wave
from reconciler.resolve.rollout_model import ROLL_BACK, RolloutPhase
from tests.support.model import MAIN, blueprint
from tests.support.rollouts import EDGES, POLICY, RolloutWorld, config_map, row, the_rollout, updated
from tests.support.values import replace

FIRST = ["a1", "a2"]
SECOND = ["b1", "b2"]
WAVES = (
    Wave("first", selector=POLICY.waves[0].selector),
    Wave("second", selector=POLICY.waves[1].selector),
    Wave("third"),
)


@pytest.fixture
def world() -> RolloutWorld:
    """Return a fleet with one value everywhere."""
    world = RolloutWorld()
    world.policy = replace(world.policy, rollouts=(RolloutPolicy(waves=WAVES),))
    world.values = {"memory": "1Gi"}
    world.finish()
    return world


def memories(world: RolloutWorld, ref: str = MAIN) -> dict[str, str]:
    """Return the value that each package has."""
    texts = {
        edge: world.repositories[edge].at(ref).packages["web"]["package-context.yaml"].data.decode()
        for edge in EDGES
    }
    return {edge: text.partition("memory: ")[2].split("\n")[0] for edge, text in texts.items()}


def refs(world: RolloutWorld) -> dict[str, str]:
    return {edge: world.repositories[edge].at(MAIN).header("web").upstream_lock.ref for edge in EDGES}


def runs(world: RolloutWorld) -> Plan:
    """Run, and check that the next run has nothing to do and writes no record."""
    plan = world.run()
    again = world.plan()
    assert again.is_empty
    assert again.records == plan.records
    return plan


# drafts, and what is observed


def test_a_draft_that_a_person_edited_counts_when_it_is_merged(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    for edge, ref in list(world.open_drafts()):
        world.edit(edge, "web", {"notes.yaml": config_map(7)}, ref=ref)
    runs(world)
    world.merge_all()

    plan = runs(world)

    assert updated(plan) == SECOND
    assert the_rollout(plan).waves[0].published == 2


def test_a_reverted_value_fails_its_wave(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    world.merge_all()
    world.run()
    assert world.revert("a1")

    plan = runs(world)

    assert the_rollout(plan).phase is RolloutPhase.FAILED
    assert row(plan, "a1").reason is Reason.REJECTED
    assert updated(plan) == []


def test_a_record_of_a_version_that_knew_no_values_is_of_the_same_rollout(world: RolloutWorld) -> None:
    world.revision, world.values = 2, {"memory": "1Mi"}
    world.run()
    world.merge_all()
    before = the_rollout(world.run()).record
    older = tuple(replace(member, target=member.target.rpartition(" ")[0]) for member in before.members)
    world.rollouts[before.rollout] = replace(before, members=older, values=None)

    after = the_rollout(world.run()).record

    assert (after.revision, after.members) == ("web/v2", before.members)


# rollback


@pytest.mark.parametrize("waves", [1, 2, 3])
def test_a_rollback_brings_the_values_back(world: RolloutWorld, waves: int) -> None:
    world.values = {"memory": "1Mi"}
    for _ in range(waves):
        plan = world.run()
        world.merge_all()
    world.run()
    world.order(ROLL_BACK, the_rollout(plan).revision)

    world.finish()

    assert set(memories(world).values()) == {"1Gi"}
    assert list(world.open_drafts()) == []
    assert the_rollout(world.run()).phase is RolloutPhase.ROLLED_BACK
    world.order(ROLL_BACK, None)
    assert updated(runs(world)) == FIRST


def test_a_rollback_brings_revision_and_values_back_together(world: RolloutWorld) -> None:
    world.revision, world.values = 2, {"memory": "1Mi"}
    world.finish()
    world.order(ROLL_BACK, "web/v2")

    world.finish()

    assert set(refs(world).values()) == {"web/v1"}
    assert set(memories(world).values()) == {"1Gi"}


def test_a_rollback_without_the_state_keeps_values_that_are_unknown(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    plan = world.run()
    world.merge_all()
    world.lose_state()
    runs(world)
    world.order(ROLL_BACK, the_rollout(plan).revision)

    plan = world.run()

    assert updated(plan) == []
    assert set(memories(world).values()) == {"1Gi", "1Mi"}
    assert any("the values, which a1/web had before" in problem.message for problem in plan.problems)


# targets


def test_a_target_that_leaves_is_not_waited_for(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    world.merge("a1", next(ref for edge, ref in world.open_drafts() if edge == "a1"))
    world.targets.remove("a2")

    assert set(SECOND) <= set(updated(world.run()))


# lost state


def test_state_that_is_lost_on_the_way_brings_no_value_early(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    world.merge_all()
    runs(world)
    world.lose_state()

    plan = runs(world)

    assert the_rollout(plan).waves[0].published == 2
    assert sorted(edge for edge, _ in world.open_drafts()) == SECOND
    world.finish()
    assert set(memories(world).values()) == {"1Mi"}


# revisions that change nothing


def hotfix(world: RolloutWorld, edge: str, revision: str) -> None:
    """A person writes on main what a later revision has."""
    text = world.repositories[edge].at(MAIN).packages["web"]["app.yaml"].data.decode()
    world.edit(edge, "web", {"app.yaml": text.replace("revision: '1'", f"revision: '{revision}'")})
    runs(world)


def same_again(world: RolloutWorld, number: int, content: int = 1) -> None:
    """Publish a revision with the resources of another one."""
    world.publish("blueprints", "web", blueprint("web", app_yaml=config_map(content)), number)
    world.revision = number


def test_after_it_the_next_change_has_the_right_base(world: RolloutWorld) -> None:
    """A person had the value of the fourth revision already: the fifth changes it from there."""
    hotfix(world, "c1", "4")
    same_again(world, 4, content=4)
    world.finish()
    assert refs(world)["c1"] == "web/v1"
    same_again(world, 5, content=5)

    world.finish()

    assert refs(world)["c1"] == "web/v5"
    assert b"revision: '5'" in world.repositories["c1"].at(MAIN).packages["web"]["app.yaml"].data


def test_a_rollback_keeps_what_a_person_had_before_it(world: RolloutWorld) -> None:
    hotfix(world, "c1", "4")
    same_again(world, 4, content=4)
    world.finish()
    world.order(ROLL_BACK, "web/v4")

    world.finish()

    assert set(refs(world).values()) == {"web/v1"}
    assert b"revision: '4'" in world.repositories["c1"].at(MAIN).packages["web"]["app.yaml"].data
    assert b"revision: '1'" in world.repositories["a1"].at(MAIN).packages["web"]["app.yaml"].data
