"""Merges by the forge itself: who merges an approved pull request, and what shares one."""

from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.names.ids import NamedObject
from reconciler.plan.approvals import approve_changes
from reconciler.plan.changes import Approval, Change, Op
from reconciler.plan.impact import Loss, loss_consent
from reconciler.policy import ApprovalPolicy, ApprovalRule, ForgeKind, ForgeRule, Policy
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from tests.support.plan_values import (
    PACKAGE,
    URL,
    WEB,
    a_change,
    a_draft,
    a_pull,
    a_target,
    oid,
    staged,
    web_context,
)
from tests.support.values import replace

KEPT = a_change(variant=WEB)
HANDS = ApprovalRule(auto_merge=True)
PASSED = {(URL, oid("d2")): frozenset({"ci"})}


def judged(
    *rules: ApprovalRule,
    kind: ForgeKind | None = ForgeKind.GITHUB,
    pull: dict[str, Any] | None = None,
    losses: tuple[Loss, ...] = (),
    **fields: Any,
) -> Change:
    forges = (ForgeRule(prefix="https://host/", kind=kind),) if kind else ()
    policy = Policy(approval=ApprovalPolicy(auto=rules), forges=forges)
    target = a_target(draft=a_draft(), pulls=(a_pull(**(pull or {})),))
    rendered = Rendered({WEB: RenderedVariant(WEB, Package(oid("d1")))})
    inventory = {"policy": policy, "passed_checks": PASSED}
    (change,) = staged(
        "approval",
        approve_changes,
        [replace(KEPT, losses=losses)],
        web_context(target, rendered=rendered, inventory=inventory, **fields),
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
