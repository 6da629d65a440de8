"""Merges by the forge itself: who merges an approved pull request, and what shares one."""

from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.base.values import read_record
from reconciler.inventory.inventory import CheckState, Commit, PullState
from reconciler.names.ids import NamedObject
from reconciler.plan.approvals import LEAST_WAIT_S, approve_changes, remember_refusals
from reconciler.plan.changes import Approval, Change, Op, Unfinished
from reconciler.plan.context import PlanContext
from reconciler.plan.impact import Loss, loss_consent
from reconciler.policy import ApprovalPolicy, ApprovalRule, ForgeKind, ForgeRule, Policy
from reconciler.records.state import PackageVariantRecord
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from tests.support.plan_values import (
    BRANCH,
    PACKAGE,
    URL,
    WEB,
    a_change,
    a_draft,
    a_pull,
    a_record,
    a_target,
    oid,
    plan_of,
    staged,
    web_context,
)
from tests.support.values import replace

KEPT = a_change(variant=WEB)
HANDS = ApprovalRule(auto_merge=True)
PASSED = {(URL, oid("d2")): frozenset({"ci"})}

RENDERED = Rendered({WEB: RenderedVariant(WEB, Package(oid("d1")))})


def policy_of(
    *rules: ApprovalRule, kind: ForgeKind | None = ForgeKind.GITHUB, merge_method: str = ""
) -> Policy:
    forges = (ForgeRule(prefix="https://host/", kind=kind, merge_method=merge_method),) if kind else ()
    return Policy(approval=ApprovalPolicy(auto=rules), forges=forges)


def judged(
    *rules: ApprovalRule,
    kind: ForgeKind | None = ForgeKind.GITHUB,
    pull: dict[str, Any] | None = None,
    losses: tuple[Loss, ...] = (),
    **fields: Any,
) -> Change:
    target = a_target(draft=a_draft(), pulls=(a_pull(**(pull or {})),))
    inventory = {"policy": policy_of(*rules, kind=kind), "passed_checks": PASSED}
    (change,) = staged(
        "approval",
        approve_changes,
        [replace(KEPT, losses=losses)],
        web_context(target, rendered=RENDERED, inventory=inventory, **fields),
    )
    return change


def approval(*rules: ApprovalRule, **given: Any) -> Approval | None:
    change = judged(*rules, **given)
    approved = replace(KEPT, op=Op.APPROVE, reason=Reason.APPROVED_BY_POLICY, approve=change.approve)
    assert change == (approved if change.approve else KEPT)
    return change.approve


@pytest.mark.parametrize("rule", [HANDS, ApprovalRule()], ids=["by the forge", "at once"])
@pytest.mark.parametrize(
    ("is_dropped", "reason", "why"),
    [
        (False, Reason.AWAITING_CHECKS, "merges it once its checks have passed"),
        (True, Reason.MERGE_DROPPED, "run `reconciler approve edge#1`"),
    ],
)
def test_no_rule_hands_over_twice_and_what_was_dropped_waits_for_a_person(
    rule: ApprovalRule, is_dropped: bool, reason: Reason, why: str
) -> None:
    change = judged(rule, pull={"auto_merge": oid("d2"), "is_dropped": is_dropped})

    assert (change.op, change.reason, change.waits, change.approve) == (Op.KEEP, reason, is_dropped, None)
    assert why in change.message


LOSS = Loss("edge", NamedObject("Namespace", "", "shop"), "")


@pytest.mark.parametrize("is_armed", [False, True])
def test_change_that_takes_objects_waits_for_consent(*, is_armed: bool) -> None:
    change = judged(HANDS, pull={"auto_merge": oid("d2")} if is_armed else {}, losses=(LOSS,))

    assert (change.reason, change.waits, change.approve) == (Reason.LOSS_NEEDS_CONSENT, True, None)
    assert loss_consent(PACKAGE, (LOSS,)) in change.message
    assert ("Switch off its auto-merge" in change.message) is is_armed


NOW = 1_000_000
POLICY = policy_of(ApprovalRule())
OTHERS = {
    "the same": ({}, False),
    "another head": ({"pull": {"head_oid": oid("d3")}, "draft": {"tip": Commit(oid("d3"), 0)}}, True),
    "a check that passed": ({"passed_checks": PASSED}, True),
    "a check that failed": ({"other_checks": {(URL, oid("d2")): {"ci": CheckState.FAILED}}}, True),
    "a check of another head": ({"passed_checks": {(URL, oid("d3")): frozenset({"ci"})}}, False),
    "a change of the pull request": ({"pull": {"changed": 5}}, True),
    "another rule": ({"policy": policy_of(ApprovalRule(), ApprovalRule())}, True),
    "another way to merge": ({"policy": policy_of(ApprovalRule(), merge_method="squash")}, True),
    "a while later": ({"now": NOW + LEAST_WAIT_S}, True),
}


@pytest.mark.parametrize(("more", "is_asked"), OTHERS.values(), ids=OTHERS)
def test_forge_that_refused_is_asked_again_once_something_else_may_decide(more, is_asked) -> None:
    def context(record: PackageVariantRecord, **fields: Any) -> PlanContext:
        ended, pull = a_pull(PullState.CLOSED, number=0, head_oid=oid("d9")), a_pull(**fields.pop("pull", {}))
        target = a_target(draft=a_draft(**fields.pop("draft", {})), pulls=(ended, pull))
        inventory = {"policy": POLICY, "now": NOW, "records": {WEB: record}, **fields}
        return web_context(target, rendered=RENDERED, inventory=inventory)

    approved = replace(KEPT, approve=Approval(1, BRANCH, oid("d2")))
    plan = plan_of(approved, context(a_record()))
    refused = remember_refusals(plan, {PACKAGE: Unfinished("no", refused=NOW)})
    (data,) = refused.records.values()

    (change,) = staged(
        "approval", approve_changes, [KEPT], context(read_record(data, PackageVariantRecord), **more)
    )

    assert (change.approve is not None, change.reason is Reason.MERGE_REFUSED) == (is_asked, not is_asked)
    assert [(each.reason, each.approve) for each in refused.changes] == [(Reason.MERGE_REFUSED, None)]
