"""Values of a plan: what a change without effects keeps, and the side that an answer drops."""

from dataclasses import replace

import pytest

from reconciler.ids import ObjectName
from reconciler.inventory import PullRequest
from reconciler.plan.changes import AnswerNote, Approval, Change, ClosePull, MoveRef, Op
from reconciler.reasons import Reason
from tests.support.plan_values import PACKAGE, a_pull, oid

KEPT = Change(PACKAGE, ObjectName("default", "edge"), Op.KEEP, Reason.UP_TO_DATE, before=oid("b1"))
MOVE = MoveRef("refs/heads/x", oid("a1"), None)


def a_full_change(pull: PullRequest) -> Change:
    return Change(
        PACKAGE,
        KEPT.repository,
        Op.UPDATE,
        Reason.UPSTREAM_CHANGED,
        before=oid("b1"),
        after=oid("c1"),
        writes=(MOVE,),
        pull=pull,
        close=(ClosePull(1, "x", ""),),
        approve=Approval(1, "x", oid("a1")),
        ready=True,
    )


def test_change_without_effects_ends_where_it_began() -> None:
    change = a_full_change(a_pull()).without_effects(Op.KEEP, Reason.PAUSED, "paused")

    assert (change.op, change.reason, change.message) == (Op.KEEP, Reason.PAUSED, "paused")
    assert not change.pending
    assert not change.ready
    assert change.after == change.before == oid("b1")


@pytest.mark.parametrize("field", ["writes", "pull", "close", "approve"])
def test_any_effect_makes_a_change_pending(field: str) -> None:
    effect = {field: getattr(a_full_change(a_pull()), field)}

    assert replace(KEPT, **effect).pending
    assert not KEPT.pending


@pytest.mark.parametrize(
    ("chosen", "dropped"), [("theirs", "ours"), ("ours", "theirs"), ("another", "theirs"), (None, "theirs")]
)
def test_answer_drops_the_side_that_the_draft_has_not(chosen: str | None, dropped: str) -> None:
    note = AnswerNote("a.yaml", "a", "theirs", "ours", "", "", chosen, "edit")

    assert note.dropped == dropped
