"""Values of a plan: what a change without effects keeps, and the side that an answer drops."""

import pytest

from reconciler.base.errors import Exit
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import GroupPart, LockProposal, MoveRef, Outcome, Plan, WriteGroup, exit_of
from reconciler.policy import ExitPolicy, Policy
from reconciler.render.answers import Answer, AnsweredBy
from tests.support.plan_values import a_change, a_conflict, a_write, oid, web_context
from tests.support.values import replace

KEPT = a_change(repository=ObjectName("default", "edge"), before=oid("b1"))
MOVE = MoveRef("refs/heads/x", oid("a1"), None)


@pytest.mark.parametrize(
    ("chosen", "dropped"), [("theirs", "ours"), ("ours", "theirs"), ("another", "theirs"), (None, "theirs")]
)
def test_answer_drops_the_side_that_the_draft_has_not(chosen: str | None, dropped: str) -> None:
    assert Answer(a_conflict("a.yaml", "a", "theirs", "ours"), AnsweredBy.EDIT, chosen).dropped == dropped


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
def test_package_as_its_draft_has_it_after_the_change(writes, group, written) -> None:
    assert replace(KEPT, writes=writes, group=group).written == written


@pytest.mark.parametrize(
    ("waiting", "exits", "shown"),
    [
        (7, {Exit.WAITING}, Exit.WAITING),
        (0, {Exit.WAITING}, Exit.DONE),
        (0, {Exit.WAITING, Exit.PARTIAL}, Exit.PARTIAL),
        (7, {Exit.WAITING, Exit.PARTIAL}, Exit.WAITING),
        (0, {Exit.WAITING, Exit.INVALID_INPUT}, Exit.INVALID_INPUT),
    ],
)
def test_waiting_for_people_is_no_failure_where_the_configuration_tolerates_it(waiting, exits, shown) -> None:
    context = web_context(inventory={"policy": Policy(exit=ExitPolicy(waiting=waiting))})

    assert exit_of(Plan(exits=frozenset(exits), context=context)) is shown
    assert exit_of(Plan(context=context), outcome=Outcome(exits=frozenset(exits))) is shown
    assert exit_of(Plan(exits=frozenset({Exit.WAITING}))) is Exit.WAITING


def test_plan_counts_the_change_of_a_lock() -> None:
    pending = replace(KEPT, writes=(MOVE,))
    proposed = Plan(changes=(KEPT,), lock=LockProposal(pending))

    assert proposed.all_changes == (KEPT, pending)
    assert not proposed.is_empty
    assert Plan(changes=(KEPT,)).all_changes == (KEPT,)
    assert Plan(changes=(KEPT,)).is_empty
    assert not Plan(changes=(KEPT, pending)).is_empty
    assert Plan(changes=(KEPT,), lock=LockProposal(KEPT)).is_empty
