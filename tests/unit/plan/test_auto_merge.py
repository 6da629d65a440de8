"""Merges by the forge itself: who merges an approved pull request, and what shares one."""

from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.names.ids import NamedObject, ObjectName, PackageKey
from reconciler.plan.approvals import approve_changes
from reconciler.plan.changes import Approval, Change, Op
from reconciler.plan.impact import Loss, loss_consent
from reconciler.policy import ApprovalPolicy, ApprovalRule, ForgeKind, ForgeRule, Policy
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from tests.support.plan_values import (
    BRANCH,
    EDGE,
    PACKAGE,
    URL,
    WEB,
    a_change,
    a_desired,
    a_draft,
    a_pull,
    a_target,
    oid,
    staged,
    web_context,
)
from tests.support.values import replace

KEPT = a_change(variant=WEB)
AT_ONCE = Approval(1, BRANCH, oid("d2"))
LATER = Approval(1, BRANCH, oid("d2"), by_forge=True)
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


@pytest.mark.parametrize(
    ("rules", "given", "want"),
    [
        pytest.param((), {}, None, id="no rule"),
        pytest.param((HANDS,), {}, LATER, id="the forge merges"),
        pytest.param((HANDS,), {"kind": ForgeKind.LOCAL}, None, id="the local forge"),
        pytest.param((HANDS,), {"kind": None}, None, id="a repository without a forge"),
        pytest.param((HANDS,), {"pull": {"auto_merge": oid("d0")}}, LATER, id="it was told of an older head"),
        pytest.param((HANDS, ApprovalRule()), {}, AT_ONCE, id="another rule lets it pass at once"),
        pytest.param((HANDS, ApprovalRule(checks=("ci",))), {}, AT_ONCE, id="whose checks have passed"),
        pytest.param((HANDS, ApprovalRule(checks=("slow",))), {}, LATER, id="whose checks have not"),
        pytest.param((ApprovalRule(checks=("ci",)),), {}, AT_ONCE, id="checks that passed"),
        pytest.param((HANDS,), {"stopped": {WEB: "why"}}, None, id="a rollout stops it"),
        pytest.param((HANDS,), {"downstreams": {}}, None, id="no variant wants it"),
    ],
)
def test_forge_merges_what_a_rule_hands_to_it(
    rules: tuple[ApprovalRule, ...], given: dict[str, Any], want: Approval | None
) -> None:
    assert approval(*rules, **given) == want


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


def test_run_merges_at_once_only_what_it_may_for_every_package() -> None:
    api = PackageKey(URL, "api")
    labelled = {"metadata": EDGE.manifest.metadata.model_copy(update={"labels": {"tier": "edge"}})}
    other = replace(
        EDGE, key=ObjectName("default", "other"), manifest=EDGE.manifest.model_copy(update=labelled)
    )
    rules = (HANDS, ApprovalRule(selector={"matchLabels": {"tier": "edge"}}))
    policy = Policy(
        approval=ApprovalPolicy(auto=rules),
        forges=(ForgeRule(prefix="https://host/", kind=ForgeKind.GITHUB),),
    )
    first = a_target(draft=a_draft(), pulls=(a_pull(),))
    second = replace(first, key=api, view=other)
    context = web_context(
        rendered=Rendered({WEB: RenderedVariant(WEB, Package(oid("d1")))}),
        inventory={"policy": policy},
        targets={PACKAGE: first, api: second},
        downstreams={PACKAGE: (a_desired(),), api: (a_desired(),)},
    )
    changes = [KEPT, replace(KEPT, package=api)]

    shared = staged("approval", approve_changes, changes, context)

    assert [change.approve for change in shared] == [LATER, LATER]
    assert [change.approve for change in staged("approval", approve_changes, changes[1:], context)] == [
        AT_ONCE
    ]
    waiting = [KEPT, replace(KEPT, package=api, waits=True)]
    assert staged("approval", approve_changes, waiting, context) == tuple(waiting)


LOSS = Loss("edge", NamedObject("Namespace", "", "shop"), "")


@pytest.mark.parametrize("is_armed", [False, True])
def test_change_that_takes_objects_waits_for_consent(*, is_armed: bool) -> None:
    change = judged(HANDS, pull={"auto_merge": oid("d2")} if is_armed else {}, losses=(LOSS,))

    assert (change.reason, change.waits, change.approve) == (Reason.LOSS_NEEDS_CONSENT, True, None)
    assert loss_consent(PACKAGE, (LOSS,)) in change.message
    assert ("Switch off its auto-merge" in change.message) is is_armed
