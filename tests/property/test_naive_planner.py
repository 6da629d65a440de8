"""The planner agrees with a naive one, package by package, whatever people did before."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Change, Op
from tests.conftest import FUZZ
from tests.property import test_plan_laws as people
from tests.support.model import ModelWorld
from tests.support.naive_planner import Answer, NaivePlanner

PLACES = (("cluster-a", "web"), ("cluster-a", "db"), ("cluster-b", "web"), ("cluster-b", "db"))
REPAIRS = frozenset({Reason.PULL_REQUEST_OUTDATED, Reason.PULL_REQUEST_DUPLICATE})


def want(draw: random.Random, world: ModelWorld) -> None:
    """A variant is declared, moves, or asks for something else."""
    name, (repository, package) = draw.choice(people.NAMES), draw.choice(PLACES)
    downstream = Downstream(repo=repository, package=package)
    if downstream in {spec.downstream for other, spec in world.variants.items() if other != name}:
        return
    upstream = draw.choice(("web", "db"))
    refs = world.repositories["blueprints"].refs
    revisions = [int(r.rpartition("/v")[2]) for r in refs if r.startswith(f"refs/tags/{upstream}/")]
    world.variants[name] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package=upstream, revision=draw.choice((None, *revisions))),
        downstream=downstream,
        adoption_policy=draw.choice(("adoptNone", "adoptExisting")),
        deletion_policy=draw.choice(("delete", "orphan")),
    )


ACTS = (
    *(want, want, want, people.release, people.merge_draft, people.merge_draft, people.edit_draft),
    *(people.forget, people.rename, people.close_pull, people.hotfix, people.revert_main),
    *(people.merge_deletion, people.delete_branch, people.intrude, people.copy_package),
    *(people.lose_state, people.break_file, people.mend_file, people.go_down),
)
stories = st.lists(st.tuples(st.integers(0, len(ACTS) - 1), st.integers(0, 2**16)), min_size=3, max_size=14)


def answer(change: Change) -> Answer:
    """Return the operation and reason of a change; correcting the text of a pull request is no other one."""
    op = Op.KEEP if change.repair and change.written is None and not change.writes else change.op
    return op.value, change.reason.value


def agrees(change: Change, naive: Answer) -> bool:
    op, reason = answer(change)
    quiet = {"UpToDate", "DraftEdited", "DeletionProposed"}
    return (op, reason) == naive or (change.reason in REPAIRS and naive in {("keep", name) for name in quiet})


@settings(max_examples=100 * FUZZ)
@given(stories)
def test_planner_agrees_with_a_naive_one(story: list[tuple[int, int]]) -> None:
    world = people.new_world()
    for act, seed in story:
        ACTS[act](random.Random(seed), world)
        plan = world.plan()
        naive = NaivePlanner(world).plan()
        changes = {(c.repository.name, c.package.path): c for c in plan.changes}
        assert changes.keys() == naive.keys()
        wrong = {
            key: (answer(change), naive[key])
            for key, change in changes.items()
            if (expected := naive[key]) is not None and not agrees(change, expected)
        }
        assert wrong == {}
        world.apply(plan)
