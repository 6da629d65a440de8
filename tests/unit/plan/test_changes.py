"""Values of a plan: what a change without effects keeps, and the side that an answer drops."""

from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import (
    AnswerNote,
    Approval,
    Change,
    ClosePull,
    GroupPart,
    LockProposal,
    MoveRef,
    Op,
    Plan,
    WriteGroup,
)
from tests.support.plan_values import a_change, a_pull, a_write, oid
from tests.support.values import replace

KEPT = a_change(repository=ObjectName("default", "edge"), before=oid("b1"))
MOVE = MoveRef("refs/heads/x", oid("a1"), None)


def a_full_change(pull: PullRequest) -> Change:
    return a_change(
        repository=KEPT.repository,
        op=Op.UPDATE,
        reason=Reason.UPSTREAM_CHANGED,
        before=oid("b1"),
        after=oid("c1"),
        writes=(MOVE,),
        pull=pull,
        close=(ClosePull(1, "x", ""),),
        approve=Approval(1, "x", oid("a1")),
        ready=True,
    )


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


DRAFT = a_write(ref="refs/heads/drafts/web/w1", time=1)
OLDER = replace(DRAFT, tree=oid("e0"))
OTHER = WriteGroup("refs/heads/other", None, oid("b2"), (GroupPart("web", oid("e8")),), "", 1)
MINE = WriteGroup(
    "refs/heads/g", None, oid("b2"), (GroupPart("api", oid("e7")), GroupPart("web", oid("e9"))), "", 1
)


@pytest.mark.parametrize(
    ("writes", "group", "written"),
    [
        ((), "", None),
        ((MOVE,), "", None),
        ((DRAFT,), "", DRAFT),
        ((OLDER, DRAFT, MOVE), "", DRAFT),
        ((MINE,), "g", GroupPart("web", oid("e9"))),
        ((MINE,), "", None),
        ((OTHER,), "g", None),
        ((MINE, OTHER), "g", GroupPart("web", oid("e9"))),
        ((DRAFT, OTHER), "", DRAFT),
        ((MINE, MOVE), "g", GroupPart("web", oid("e9"))),
        ((replace(MINE, parts=MINE.parts[:1]),), "g", None),
        ((MoveRef("refs/heads/g", None, None), MINE), "g", GroupPart("web", oid("e9"))),
        ((MINE, MoveRef("refs/heads/g", None, None)), "g", GroupPart("web", oid("e9"))),
    ],
)
def test_package_as_its_draft_has_it_after_the_change(
    writes: tuple[Any, ...], group: str, written: object
) -> None:
    assert replace(KEPT, writes=writes, group=group).written == written


@pytest.mark.parametrize(
    ("approve", "is_merged"),
    [(None, False), (Approval(1, "x", ""), True), (Approval(1, "x", "", by_forge=True), False)],
)
def test_pull_request_is_merged_by_approval_unless_the_forge_does_it(
    approve: Approval | None, is_merged: bool
) -> None:
    assert replace(KEPT, approve=approve).is_merged is is_merged


@pytest.mark.parametrize(
    ("message", "repair", "detail"), [("a", "b", "a; b"), ("a", "", "a"), ("", "b", "b"), ("", "", "")]
)
def test_detail_is_the_message_and_the_repair(message: str, repair: str, detail: str) -> None:
    assert replace(KEPT, message=message, repair=repair).detail == detail


def test_plan_counts_the_change_of_a_lock() -> None:
    pending = replace(KEPT, writes=(MOVE,))
    proposed = Plan(changes=(KEPT,), lock=LockProposal(pending))

    assert proposed.all_changes == (KEPT, pending)
    assert not proposed.is_empty
    assert Plan(changes=(KEPT,)).all_changes == (KEPT,)
    assert Plan(changes=(KEPT,)).is_empty
    assert not Plan(changes=(KEPT, pending)).is_empty
    assert Plan(changes=(KEPT,), lock=LockProposal(KEPT)).is_empty
