"""A rollout as a state machine: in any order of merges, reverts, kills and orders no wave overtakes another.

Every step is something that people, clusters or a lost machine do; then a run plans and applies, or is killed
on the way. The law is checked against the repositories alone: a package gets a draft of the new revision only
if every earlier wave was complete when the run looked, by `RolloutWorld.is_complete`. A rollback proposes the
previous revision for what has moved and nothing else, in one pull request for each wave and repository.
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from reconciler.base.reasons import Reason
from reconciler.plan.changes import Plan, WriteDraft, WriteGroup
from reconciler.read.repositories.trees import read_header
from reconciler.records.state import RolloutMember
from reconciler.resolve.rollout_model import GO, PAUSE, ROLL_BACK, SKIP, RolloutPhase
from tests.support.model import EPOCH, MAIN
from tests.support.rollouts import EDGES, ORDER, POLICY, SOAK_S, WAVE_OF, RolloutWorld
from tests.support.values import replace

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
EDGE = st.sampled_from(EDGES)
WAVE = st.sampled_from(ORDER)


class Rollouts(RuleBasedStateMachine):
    """People, clusters and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.world = RolloutWorld()
        self.complete: dict[str, bool] = {}

    @initialize(missing=st.none() | EDGE, rounds=st.integers(0, 5))
    def begin(self, missing: str | None, rounds: int) -> None:
        """Start with the first revision everywhere, and the second one some way along."""
        world = self.world
        world.targets = [edge for edge in EDGES if edge != missing]
        world.policy = replace(world.policy, rollouts=())
        world.run()
        self.merge_everything()
        world.policy = replace(world.policy, rollouts=(POLICY,))
        world.revision = 2
        self.let_it_go_on(2)
        for _ in range(rounds):
            self.run()
            self.merge_everything()

    # runs

    @rule()
    def run_and_merge_everything(self) -> None:
        self.run()
        self.merge_everything()

    @rule()
    def run(self) -> None:
        plan = self.look()
        moved = self.moved(lambda: self.world.apply(plan))
        self.check(plan, moved)
        if has_group(plan):  # people merged it: one run records that
            self.world.run()
        assert self.world.apply(self.world.plan()) == 0

    @rule(effects=st.integers(0, 14))
    def run_and_be_killed(self, effects: int) -> None:
        plan = self.look()
        moved = self.moved(lambda: self.world.apply_part(plan, effects))
        self.check(plan, moved)

    def look(self) -> Plan:
        """Plan, and remember which waves were complete when the run looked."""
        plan = self.world.plan()
        self.world.look()
        self.check_way_back(plan)
        members = self.members(plan)
        self.complete = {
            wave: self.world.is_complete(wave, [edge for edge in members if WAVE_OF[edge] == wave])
            for wave in ORDER
        }
        return plan

    def moved(self, act: Callable[[], object]) -> list[str]:
        """Return the edges that get a draft of the new revision by what is done."""
        world = self.world
        before = {edge for edge in EDGES if world.has_draft(edge) or world.has_revision(edge, MAIN)}
        act()
        return [edge for edge in EDGES if world.has_draft(edge) and edge not in before]

    def check(self, plan: Plan, moved: list[str]) -> None:
        members = self.members(plan)
        for edge in moved:
            assert edge in members
            earlier = ORDER[: ORDER.index(WAVE_OF[edge])]
            assert all(self.complete[wave] for wave in earlier), (edge, self.complete)
            assert PAUSE not in self.world.orders
        in_review = [edge for edge in ("b1", "b2") if self.world.has_draft(edge)]
        if set(moved) & {"b1", "b2"}:
            assert len(in_review) <= 1 or not set(in_review) <= set(moved)

    def check_way_back(self, plan: Plan) -> None:
        """A rollback proposes the previous revision for what has moved, and nothing else."""
        back = next((r for r in plan.rollouts if r.phase is RolloutPhase.ROLLED_BACK), None)
        groups = {
            c.repository.name: c for c in plan.changes if any(isinstance(w, WriteGroup) for w in c.writes)
        }
        if back is None:
            assert not has_group(plan)
            return
        before = {self.edge_of(m): m.before for m in back.record.members}
        heads = [change.pull.head for change in groups.values() if change.pull is not None]
        assert len(heads) == len(set(heads)) == len(groups), "one pull request for each wave and repository"
        for edge, change in groups.items():
            assert f"/{WAVE_OF[edge]}/{edge}/" in change.pull.head, change.pull.head
            assert self.world.has_revision(edge, MAIN), "only what has moved is rolled back"
            locks = {self.lock_of(write) for write in change.writes if isinstance(write, WriteGroup)}
            assert locks == {before[edge].commit}
        for change in plan.changes:
            edge = change.repository.name
            drafts = [w for w in change.writes if isinstance(w, WriteDraft)]
            assert not drafts or edge not in before, (edge, drafts)
        up = {edge for edge in before if not self.world.repositories[edge].down}
        target = self.world.upstream(self.world.revision)
        with_before = {edge for edge in up if before[edge] is not None and before[edge].commit != target}
        moved = {edge for edge in with_before if self.world.has_revision(edge, MAIN)}
        rejected = {c.repository.name for c in plan.changes if c.waits or c.reason is Reason.REJECTED}
        wanted = {edge for edge in moved if edge in self.world.targets}
        assert wanted - rejected <= groups.keys(), (wanted, groups.keys())

    @staticmethod
    def lock_of(write: WriteGroup) -> str:
        (part,) = write.parts
        return read_header(part.files["Kptfile"].data).upstream_lock.commit

    @staticmethod
    def edge_of(member: RolloutMember) -> str:
        return member.name.removeprefix("fleet-").partition("-")[0]

    def members(self, plan: Plan) -> set[str]:
        records = [rollout.record for rollout in plan.rollouts]
        return {m.name.removeprefix("fleet-").partition("-")[0] for r in records for m in r.members}

    # people

    @rule(
        edge=EDGE,
        how=st.sampled_from(["merge", "squash"]),
        keep=st.booleans(),
        dated=st.sampled_from([None, EPOCH, 4 * EPOCH]),
    )
    def merge(self, edge: str, how: str, dated: int | None, *, keep: bool) -> None:
        for ref in self.world.drafts(edge):
            self.world.merge(edge, ref, how=how, keep_branch=keep, dated=dated)

    @rule()
    def merge_everything(self) -> None:
        for edge, ref in list(self.world.open_drafts()):
            self.world.merge(edge, ref)

    @rule(edge=EDGE, with_branch=st.booleans())
    def close(self, edge: str, *, with_branch: bool) -> None:
        for ref in self.world.drafts(edge):
            self.world.close(edge, ref.removeprefix("refs/heads/"))
            if with_branch:
                del self.world.repositories[edge].refs[ref]

    @rule(edge=EDGE)
    def revert(self, edge: str) -> None:
        self.world.revert(edge)

    @rule(revision=st.integers(1, 3))
    def ask_for_another_revision(self, revision: int) -> None:
        self.world.revision = revision

    @rule(is_paused=st.booleans())
    def pause_or_resume(self, *, is_paused: bool) -> None:
        self.world.order(PAUSE, "true" if is_paused else None)

    @rule(revision=st.none() | st.integers(1, 3))
    def let_it_go_on(self, revision: int | None) -> None:
        self.world.order(GO, f"web/v{revision}/first" if revision else None)

    @rule(is_run=st.booleans())
    def roll_back(self, *, is_run: bool) -> None:
        self.world.order(ROLL_BACK, f"web/v{self.world.revision}")
        if is_run:
            self.run()

    @rule()
    def go_forward_again(self) -> None:
        self.world.order(ROLL_BACK, None)

    @rule(revision=st.integers(1, 3), wave=st.none() | WAVE)
    def skip(self, revision: int, wave: str | None) -> None:
        self.world.order(SKIP, f"web/v{revision}/{wave}" if wave else None)

    @rule(edge=EDGE)
    def add_or_remove_a_target(self, edge: str) -> None:
        targets = set(self.world.targets) ^ {edge}
        self.world.targets = sorted(targets or {edge})

    # clusters, machines and time

    @rule(edge=EDGE, status=st.sampled_from(["Healthy", "Progressing", "Degraded"]))
    def change_health(self, edge: str, status: str) -> None:
        self.world.health[edge] = status

    @rule()
    def take_a_snapshot(self) -> None:
        self.world.take_snapshot()

    @rule(seconds=st.sampled_from([1, SOAK_S // 2, SOAK_S]))
    def wait(self, seconds: int) -> None:
        self.world.time += seconds

    @rule(edge=EDGE)
    def lose_or_find_a_repository(self, edge: str) -> None:
        repository = self.world.repositories[edge]
        repository.down = not repository.down

    @precondition(lambda self: self.world.state)
    @rule()
    def lose_the_state(self) -> None:
        self.world.lose_state()

    # the end

    def teardown(self) -> None:
        """When everything is well and merged, every package gets there: nothing waits for ever."""
        world = self.world
        for repository in world.repositories.values():
            repository.down = False
        world.health, world.orders = {}, {GO: f"web/v{world.revision}/first"}
        for _ in range(12):
            plan = world.run()
            self.merge_everything()
            world.time += SOAK_S
            world.take_snapshot()
        stuck = [edge for edge in world.targets if not world.has_revision(edge, MAIN)]
        failed = any(rollout.phase is RolloutPhase.FAILED for rollout in plan.rollouts)
        rejected = any(change.waits for change in plan.changes)
        assert not stuck or failed or rejected, (stuck, plan.rollouts)


def has_group(plan: Plan) -> bool:
    """Whether a plan writes the branch of a group, which only a rollback does here."""
    return any(isinstance(write, WriteGroup) for change in plan.changes for write in change.writes)


class TestSomeRollouts(Rollouts.TestCase):
    settings = settings(max_examples=3, stateful_step_count=10, derandomize=True)


@pytest.mark.slow
class TestRollouts(Rollouts.TestCase):
    settings = settings(max_examples=20 * FUZZ, stateful_step_count=15)
