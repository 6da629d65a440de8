"""The summary line and its parts: when nothing is to do, which exit codes apply, and what is counted."""

import pytest

from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Phase, Reason
from reconciler.dependencies.lock.changes import MoveOp, VersionChange
from reconciler.names.ids import PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Op, Plan, Refusal, exits_of
from reconciler.plan.status import PackageStatus
from reconciler.report.build import clusters_text, summary_line
from tests.support.plan_values import web_context
from tests.support.values import replace
from tests.unit.report.plans import EAST, NAMES, UPDATED, change

MOVE = VersionChange(MoveOp.CHANGE, "db", "1", "2", "why", ("a",))
PROBLEM = Problem(Location("a.yaml", 1), Reason.INVALID_MANIFEST, "Bad")
UNAVAILABLE = Problem(Location("a.yaml", 1), Reason.REPOSITORY_UNAVAILABLE, "Away")
REFUSAL = Refusal(Reason.DELETION_GUARD, "Too many", "")
IDLE = Plan(changes=(change(Op.KEEP),))
BUSY = {
    "a change": replace(IDLE, changes=(UPDATED,)),
    "a problem": replace(IDLE, problems=(PROBLEM,)),
    "a refusal": replace(IDLE, refusals=(REFUSAL,)),
    "a waiting person": replace(IDLE, changes=(replace(change(Op.KEEP), waits=True),)),
    "a pin that moves": replace(IDLE, version_changes=(MOVE,)),
}


def test_kept_package_without_a_state_is_not_ours() -> None:
    other = replace(change(Op.KEEP), package=PackageKey("host/edge", "theirs"), reason=Reason.NOT_OURS)
    plan = replace(IDLE, changes=(*IDLE.changes, other))
    states = {IDLE.changes[0].package: PackageStatus(Phase.PUBLISHED)}

    assert summary_line(plan, states) == "Nothing to do: 2 kept (1 published, 1 not ours)"
    alone = Plan(changes=(other,), context=web_context(downstreams={}, variants={}))
    assert summary_line(alone, {}) == "Nothing to do: 1 kept (1 not ours)"


@pytest.mark.parametrize("case", BUSY)
def test_something_is_to_do_beside(case: str) -> None:
    assert "Nothing to do" not in summary_line(BUSY[case], {})


@pytest.mark.parametrize(
    ("plan", "exits"),
    [
        (IDLE, set()),
        (replace(IDLE, problems=(PROBLEM,)), {Exit.INVALID_INPUT}),
        (replace(IDLE, problems=(UNAVAILABLE,)), set()),
        (replace(IDLE, problems=(UNAVAILABLE, PROBLEM)), {Exit.INVALID_INPUT}),
        (replace(IDLE, refusals=(REFUSAL,)), {Exit.REFUSED}),
        (replace(BUSY["a change"], exits=frozenset({Exit.PENDING, Exit.WAITING})), {Exit.WAITING}),
    ],
    ids=["idle", "problem", "unavailable", "both", "refusal", "pending"],
)
def test_exit_classes_of_a_plan(plan: Plan, exits: set[Exit]) -> None:
    assert exits_of(plan) == exits


@pytest.mark.parametrize(
    ("path", "name"),
    [("clusters/east/web", "edge-east/web"), ("clusters/eastern", "edge-east/clusters/eastern"),
     ("other/web", "edge-east/other/web")],
)  # fmt: skip
def test_directory_of_a_repository_is_left_out_of_a_name(path: str, name: str) -> None:
    assert NAMES.of(replace(change(Op.KEEP, repo=EAST), package=PackageKey("u", path))) == name


@pytest.mark.parametrize(
    ("number", "text"), [(1, "0"), (5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3, 4 and 1 more")]
)
def test_many_clusters_are_counted(number: int, text: str) -> None:
    assert clusters_text(MOVE._replace(clusters=tuple(map(str, range(number))))) == text
