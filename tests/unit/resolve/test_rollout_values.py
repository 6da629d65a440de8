"""Values of a set travel like its revisions; what changes nothing in a package is done for its wave."""

import pytest

from reconciler.base.reasons import Reason
from reconciler.plan.changes import Change, Op, Plan
from reconciler.policy import RolloutPolicy
from reconciler.policy.rollouts import Gates, Wave
from reconciler.resolve.rollout_model import GO, ROLL_BACK, Rollout, RolloutPhase
from tests.support.model import MAIN, blueprint
from tests.support.rollouts import EDGES, POLICY, RolloutWorld, config_map
from tests.support.values import replace

FIRST = ["a1", "a2"]
SECOND = ["b1", "b2"]
THIRD = ["c1", "c2"]
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
    finish(world)
    return world


def merge_all(world: RolloutWorld) -> None:
    for edge, ref in list(world.open_drafts()):
        world.merge(edge, ref)


def finish(world: RolloutWorld) -> Plan:
    """Run and merge until nothing is left to do."""
    while not world.run().is_empty or list(world.open_drafts()):
        merge_all(world)
    return world.run()


def changed(plan: Plan) -> list[str]:
    return [c.package.url.rpartition("/")[2] for c in plan.changes if c.written is not None]


def row(plan: Plan, edge: str) -> Change:
    return next(change for change in plan.changes if change.package.url.endswith(f"/{edge}"))


def the_rollout(plan: Plan) -> Rollout:
    (rollout,) = plan.rollouts
    return rollout


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


# waves


def test_a_value_reaches_each_wave_when_the_one_before_has_it(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}

    order = []
    for _ in range(3):
        order.append(changed(runs(world)))
        merge_all(world)

    assert order == [FIRST, SECOND, THIRD]
    assert set(memories(world).values()) == {"1Mi"}
    assert the_rollout(runs(world)).phase is RolloutPhase.COMPLETE


def test_what_waits_for_a_value_keeps_the_one_that_it_has(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}

    plan = runs(world)

    held = row(plan, "c1")
    assert (held.op, held.reason) == (Op.KEEP, Reason.AWAITING_WAVE)
    assert held.message == f"Rollout {the_rollout(plan).revision} of fleet: wave third waits for wave first"
    assert the_rollout(plan).revision.startswith("web/v1+")


def test_a_hotfix_on_main_does_not_bring_the_value_early(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    world.edit("c1", "web", {"extra.yaml": config_map(7)})

    plan = runs(world)

    assert changed(plan) == []
    assert memories(world)["c1"] == "1Gi"


def test_a_value_that_changes_again_starts_at_the_first_wave(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    merge_all(world)
    runs(world)
    world.values = {"memory": "2Mi"}

    plan = runs(world)

    assert changed(plan) == FIRST
    assert [edge for edge, _ in world.open_drafts()] == FIRST
    merge_all(world)
    assert memories(world) == {**dict.fromkeys(EDGES, "1Gi"), "a1": "2Mi", "a2": "2Mi"}


@pytest.mark.parametrize("merged", [True, False])
def test_a_value_that_is_reverted_before_its_wave_goes_from_the_first_alone(
    world: RolloutWorld, merged: bool
) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    if merged:
        merge_all(world)
        world.run()
        assert sorted(edge for edge, _ in world.open_drafts()) == SECOND
    world.values = {"memory": "1Gi"}

    plan = runs(world)

    assert changed(plan) == (FIRST if merged else [])
    assert sorted(edge for edge, _ in world.open_drafts()) == (FIRST if merged else [])
    merge_all(world)
    runs(world)
    assert set(memories(world).values()) == {"1Gi"}


def test_a_value_that_changes_while_a_revision_travels_takes_its_place(world: RolloutWorld) -> None:
    world.revision = 2
    runs(world)
    merge_all(world)
    world.run()
    world.values = {"memory": "1Mi"}

    plan = runs(world)

    assert changed(plan) == FIRST
    assert the_rollout(plan).revision.startswith("web/v2+")
    assert sorted(edge for edge, _ in world.open_drafts()) == FIRST
    merge_all(world)
    runs(world)
    assert [refs(world)[edge] for edge in THIRD] == ["web/v1", "web/v1"]
    finish(world)
    assert set(refs(world).values()) == {"web/v2"}
    assert set(memories(world).values()) == {"1Mi"}


def test_an_order_for_a_revision_does_not_let_its_values_go_on(world: RolloutWorld) -> None:
    gated = replace(WAVES[0], gates=Gates(approval=True))
    world.policy = replace(world.policy, rollouts=(RolloutPolicy(waves=(gated, *WAVES[1:])),))
    world.order(GO, "web/v1/first")
    world.values = {"memory": "1Mi"}
    runs(world)
    merge_all(world)

    plan = runs(world)

    assert changed(plan) == []
    world.order(GO, f"{the_rollout(plan).revision}/first")
    assert changed(runs(world)) == SECOND


# drafts, and what is observed


def test_a_draft_that_a_person_edited_counts_when_it_is_merged(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    for edge, ref in list(world.open_drafts()):
        world.edit(edge, "web", {"notes.yaml": config_map(7)}, ref=ref)
    runs(world)
    merge_all(world)

    plan = runs(world)

    assert changed(plan) == SECOND
    assert the_rollout(plan).waves[0].published == 2


def test_a_reverted_value_fails_its_wave(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    merge_all(world)
    world.run()
    assert world.revert("a1")

    plan = runs(world)

    assert the_rollout(plan).phase is RolloutPhase.FAILED
    assert row(plan, "a1").reason is Reason.REJECTED
    assert changed(plan) == []


# rollback


@pytest.mark.parametrize("waves", [1, 2, 3])
def test_a_rollback_brings_the_values_back(world: RolloutWorld, waves: int) -> None:
    world.values = {"memory": "1Mi"}
    for _ in range(waves):
        plan = world.run()
        merge_all(world)
    world.run()
    world.order(ROLL_BACK, the_rollout(plan).revision)

    finish(world)

    assert set(memories(world).values()) == {"1Gi"}
    assert list(world.open_drafts()) == []
    assert the_rollout(world.run()).phase is RolloutPhase.ROLLED_BACK
    world.order(ROLL_BACK, None)
    assert changed(runs(world)) == FIRST


def test_a_rollback_brings_revision_and_values_back_together(world: RolloutWorld) -> None:
    world.revision, world.values = 2, {"memory": "1Mi"}
    finish(world)
    world.order(ROLL_BACK, "web/v2")

    finish(world)

    assert set(refs(world).values()) == {"web/v1"}
    assert set(memories(world).values()) == {"1Gi"}


def test_a_rollback_without_the_state_keeps_values_that_are_unknown(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    plan = world.run()
    merge_all(world)
    world.lose_state()
    runs(world)
    world.order(ROLL_BACK, the_rollout(plan).revision)

    plan = world.run()

    assert changed(plan) == []
    assert set(memories(world).values()) == {"1Gi", "1Mi"}
    assert any("the values, which a1/web had before" in problem.message for problem in plan.problems)


# targets


def test_a_target_that_leaves_is_not_waited_for(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    world.merge("a1", next(ref for edge, ref in world.open_drafts() if edge == "a1"))
    world.targets.remove("a2")

    assert set(SECOND) <= set(changed(world.run()))


# lost state


def test_without_the_state_a_value_reaches_the_first_wave_alone(world: RolloutWorld) -> None:
    world.lose_state()
    world.values = {"memory": "1Mi"}

    plan = runs(world)

    assert changed(plan) == FIRST
    finish(world)
    assert set(memories(world).values()) == {"1Mi"}


def test_without_the_state_nothing_begins_where_nothing_changed(world: RolloutWorld) -> None:
    world.lose_state()

    plan = runs(world)

    assert plan.rollouts == ()
    assert changed(plan) == []
    world.values = {"memory": "1Mi"}
    assert changed(runs(world)) == FIRST


def test_state_that_is_lost_on_the_way_brings_no_value_early(world: RolloutWorld) -> None:
    world.values = {"memory": "1Mi"}
    runs(world)
    merge_all(world)
    runs(world)
    world.lose_state()

    plan = runs(world)

    assert the_rollout(plan).waves[0].published == 2
    assert sorted(edge for edge, _ in world.open_drafts()) == SECOND
    finish(world)
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


def test_a_revision_that_changes_nothing_is_done_at_once(world: RolloutWorld) -> None:
    same_again(world, 4)

    plan = runs(world)

    assert changed(plan) == []
    assert the_rollout(plan).phase is RolloutPhase.COMPLETE
    assert set(refs(world).values()) == {"web/v1"}
    kept = row(plan, "c1")
    assert kept.reason is Reason.UP_TO_DATE
    assert kept.message == "Only the name in the Kptfile would change with web/v4: it stays web/v1"


def test_a_value_that_no_resource_has_is_done_at_once(world: RolloutWorld) -> None:
    """A set has values for all of its packages: this one names only one of two."""
    named = config_map(1).replace("'1'", "'1' # kpt-set: ${revision}")
    world.publish("blueprints", "web", blueprint("web", app_yaml=named), 4)
    world.revision, world.setters = 4, {"revision": "1", "memory": "1Gi"}
    finish(world)
    world.setters["memory"] = "2Gi"

    other = runs(world)
    nothing = changed(other), the_rollout(other).phase
    world.setters |= {"revision": "7", "memory": "3Gi"}
    order = []
    for _ in range(3):
        order.append(changed(runs(world)))
        merge_all(world)
    world.setters["memory"] = "4Gi"
    again = runs(world)
    world.setters["revision"] = "1"
    back = runs(world)

    assert nothing == ([], RolloutPhase.COMPLETE)
    assert order == [FIRST, SECOND, THIRD]
    main = world.repositories["a1"].at(MAIN).packages["web"]
    assert b"revision: '7'" in main["app.yaml"].data
    assert b"memory: 3Gi" in main["Kptfile"].data
    assert (changed(again), changed(back)) == ([], FIRST)


def test_after_it_the_next_change_has_the_right_base(world: RolloutWorld) -> None:
    """A person had the value of the fourth revision already: the fifth changes it from there."""
    hotfix(world, "c1", "4")
    same_again(world, 4, content=4)
    finish(world)
    assert refs(world)["c1"] == "web/v1"
    same_again(world, 5, content=5)

    finish(world)

    assert refs(world)["c1"] == "web/v5"
    assert b"revision: '5'" in world.repositories["c1"].at(MAIN).packages["web"]["app.yaml"].data


def test_a_rollback_keeps_what_a_person_had_before_it(world: RolloutWorld) -> None:
    hotfix(world, "c1", "4")
    same_again(world, 4, content=4)
    finish(world)
    world.order(ROLL_BACK, "web/v4")

    finish(world)

    assert set(refs(world).values()) == {"web/v1"}
    assert b"revision: '4'" in world.repositories["c1"].at(MAIN).packages["web"]["app.yaml"].data
    assert b"revision: '1'" in world.repositories["a1"].at(MAIN).packages["web"]["app.yaml"].data


def test_without_the_state_a_revision_that_changes_nothing_is_still_done(world: RolloutWorld) -> None:
    same_again(world, 4)
    world.run()
    world.lose_state()

    plan = runs(world)

    assert changed(plan) == []
