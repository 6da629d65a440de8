"""Approval by policy (D14): which draft is merged without a person, as a decision table."""

from functools import cache
from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import CheckState, Inventory, PullState
from reconciler.plan.approvals import approve_changes, wanted_checks
from reconciler.plan.changes import Approval, ClosePull, Op
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.policy import ApprovalPolicy, ApprovalRule, Policy
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant
from reconciler.render.update import Conflict
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import (
    ON_MAIN,
    PACKAGE,
    URL,
    WEB,
    a_change,
    a_conflict,
    a_context,
    a_draft,
    a_pull,
    oid,
    staged,
)
from tests.support.sets import repository, world
from tests.support.values import replace

READY = Package(oid("d1"))
UNREADY = replace(READY, unready=("security.review",))
CONFLICTED = replace(READY, conflicts=(Conflict("a.yaml", "", "a", "0", "1", "2", "changed"),))
BLOCKED = Blocked(Reason.MERGE_CONFLICT, "conflict")
CONTENTS: dict[str, tuple[Package | Blocked | None, Package | Blocked | None]] = {
    "ready": (READY, None),
    "with an unmet gate": (UNREADY, None),
    "with an open conflict": (CONFLICTED, None),
    "blocked": (BLOCKED, None),
    "not rendered": (None, None),
    "merged with edits": (READY, READY),
    "merged with edits that answered a conflict": (CONFLICTED, READY),
    "merged with edits, and a conflict is open": (READY, READY),
    "merged with edits, with an unmet gate": (READY, UNREADY),
    "merged with edits, with an open conflict": (READY, CONFLICTED),
    "merged with edits, blocked": (READY, BLOCKED),
    "merged with edits, without them unready": (UNREADY, READY),
    "merged with edits, without them blocked": (BLOCKED, READY),
}
MERGEABLE = ("ready", "merged with edits", "merged with edits that answered a conflict")
RULES = {
    "none": (),
    "of other repositories": (ApprovalRule({"matchLabels": {"tier": "core"}}),),
    "any draft of ours": (ApprovalRule({"matchLabels": {"tier": "edge"}}),),
    "edited drafts too": (ApprovalRule(edited=True),),
    "a check that passed": (ApprovalRule(checks=("ci", "lint")),),
    "a check that did not pass": (ApprovalRule(checks=("ci", "slow")),),
    "a check that passed on another commit": (ApprovalRule(checks=("old",)),),
    "a check that did not pass, or edited drafts": (
        ApprovalRule(checks=("slow",)),
        ApprovalRule(edited=True),
    ),
}
KEPT = a_change(repository=repository("edge").key, variant=WEB)
CHANGES = {
    "up to date": KEPT,
    "up to date with edits": replace(KEPT, reason=Reason.DRAFT_EDITED),
    "paused": replace(KEPT, reason=Reason.PAUSED),
    "no variant wants it": KEPT,
    "a person must act": replace(KEPT, waits=True),
    "a function writes over an edit": replace(KEPT, overwritten=("a.yaml: it is lost",)),
    "a pull request is closed": replace(KEPT, op=Op.CLOSE, close=(ClosePull(2, "another", ""),)),
    "its draft is written": replace(KEPT, op=Op.UPDATE),
}
TABLE: DecisionTable[bool] = DecisionTable(
    {
        "draft": ("none", "ours", "edited", "with a foreign commit beside the package"),
        "pull request": ("none", "open", "open at an older head", "closed", "merged"),
        "change": tuple(CHANGES),
        "content": tuple(CONTENTS),
        "rule": tuple(RULES),
    },
    [
        ({"draft": "none"}, False, "there is nothing to approve"),
        ({"pull request": ("none", "open at an older head", "closed", "merged")}, False,
            "no open pull request has the judged commit"),
        ({"change": tuple(name for name in CHANGES if not name.startswith("up to date"))}, False,
            "the draft is not what should be merged"),
        ({"content": tuple(name for name in CONTENTS if name not in MERGEABLE)}, False,
            "a gate is unmet, a conflict is open, or nothing could be made"),
        ({"rule": ("edited drafts too", "a check that did not pass, or edited drafts")}, True,
            "edits may pass"),
        ({"draft": ("edited", "with a foreign commit beside the package")}, False, "people committed to it"),
        ({"rule": ("any draft of ours", "a check that passed")}, True,
            "a rule of the repository lets it pass"),
        ({}, False, "no rule lets it pass"),
    ],
    {
        "only a draft with foreign commits is merged with edits": {"draft": ("none", "ours"),
            "content": tuple(name for name in CONTENTS if name.startswith("merged"))},
    },
)  # fmt: skip
EDGE = repository("edge", labels={"tier": "edge"})


@cache
def approving(rule: str) -> Inventory:
    passed = {(URL, oid("d2")): frozenset({"ci", "lint"}), (URL, oid("d9")): frozenset({"old"})}
    policy = Policy(approval=ApprovalPolicy(RULES[rule]))
    return replace(world(views=(EDGE,)), policy=policy, passed_checks=passed)


def a_target(case: Case) -> PlanTarget:
    drafts: dict[str, Any] = {
        "none": None,
        "ours": a_draft(),
        "edited": a_draft(written=oid("d9"), has_foreign_commits=True),
        "with a foreign commit beside the package": a_draft(has_foreign_commits=True),
    }
    pulls = {
        "none": (),
        "open": (a_pull(PullState.CLOSED, number=9), a_pull()),
        "open at an older head": (a_pull(head_oid=oid("d9")),),
        "closed": (a_pull(PullState.CLOSED),),
        "merged": (a_pull(PullState.MERGED),),
    }[case["pull request"]]
    target = PlanTarget(PACKAGE, EDGE, package=ON_MAIN, pulls=pulls)
    return replace(target, draft=drafts[case["draft"]])


def approving_context(case: Case) -> PlanContext:
    fresh, merged = CONTENTS[case["content"]]
    variants = {WEB: RenderedVariant(WEB, fresh, merged)} if fresh else {}
    return a_context(
        approving(case["rule"]),
        targets={PACKAGE: a_target(case)},
        rendered=Rendered(variants),
        downstreams={} if case["change"] == "no variant wants it" else {PACKAGE: ()},
    )


def is_approved(case: Case) -> bool:
    change = CHANGES[case["change"]]
    if case["content"] == "merged with edits, and a conflict is open":
        change = replace(change, conflicts=(a_conflict("a.yaml", "a", "1", "2"),))
    (decided,) = staged("approval", approve_changes, [change], approving_context(case))
    if decided.approve is None:
        assert decided.reason in {change.reason, Reason.AWAITING_CHECKS}
        assert replace(decided, reason=change.reason, message=change.message) == change
        return False
    assert decided.approve == Approval(1, a_pull().head, oid("d2"))
    assert (decided.op, decided.reason) == (Op.APPROVE, Reason.APPROVED_BY_POLICY)
    return True


@pytest.mark.parametrize(
    ("rules", "others", "message"),
    [
        ((("ci", "slow"),), {"slow": CheckState.PENDING}, "slow is pending"),
        ((("bad", "slow"),), {"bad": CheckState.FAILED}, "bad failed, slow has not reported"),
        ((("off",),), {"off": CheckState.SKIPPED, "bad": CheckState.FAILED}, "off was skipped"),
        ((("bad", "slow"), ("bad",)), {"bad": CheckState.FAILED}, "bad failed"),
    ],
)
def test_checks_that_approval_waits_for_are_named_with_their_states(rules, others, message) -> None:
    assert awaiting(rules, others) == (Reason.AWAITING_CHECKS, f"Approval waits for checks: {message}")


def test_checks_that_could_not_be_read_are_told() -> None:
    cause = "Approval waits for checks, which cannot be read"

    assert awaiting((("slow",),), None) == (Reason.AWAITING_CHECKS, cause)


def awaiting(rules: tuple[tuple[str, ...], ...], others: dict[str, CheckState] | None) -> tuple[Reason, str]:
    """Return reason and message of a draft that is ready, but for its checks."""
    case = {
        "draft": "ours",
        "pull request": "open",
        "rule": "none",
        "change": "up to date",
        "content": "ready",
    }
    context = approving_context(case)
    policy = Policy(approval=ApprovalPolicy(tuple(ApprovalRule(checks=names) for names in rules)))
    found = {} if others is None else {(URL, oid("d2")): others}
    passed = {} if others is None else {(URL, oid("d2")): frozenset({"ci"})}
    inventory = replace(context.inventory, policy=policy, passed_checks=passed, other_checks=found)
    (decided,) = staged("approval", approve_changes, [KEPT], replace(context, inventory=inventory))
    return decided.reason, decided.message


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_draft_is_approved_only_as_the_policy_says(row: Row[bool]) -> None:
    assert TABLE.mistakes(row, is_approved) == []


@pytest.mark.parametrize("second", ["ready", "with an unmet gate"])
@pytest.mark.parametrize("first", ["ready", "with an unmet gate"])
def test_packages_of_one_pull_request_are_approved_together_or_not_at_all(first: str, second: str) -> None:
    case = {"draft": "ours", "pull request": "open", "rule": "any draft of ours", "change": "up to date"}
    other = PACKAGE._replace(path="api")
    api = WEB._replace(name="api")
    fresh = {WEB: CONTENTS[first][0], api: CONTENTS[second][0]}
    context = replace(
        approving_context({**case, "content": first}),
        targets={key: a_target(case) for key in (PACKAGE, other)},
        downstreams={PACKAGE: (), other: ()},
        rendered=Rendered({k: RenderedVariant(k, p) for k, p in fresh.items() if p is not None}),
    )

    decided = staged("approval", approve_changes, [KEPT, replace(KEPT, package=other, variant=api)], context)

    both = first == second == "ready"
    assert [change.op for change in decided] == [Op.APPROVE if both else Op.KEEP] * 2


def test_package_that_joins_the_branch_is_approved_with_the_others_or_none_is() -> None:
    case = {"draft": "ours", "pull request": "open", "rule": "any draft of ours", "change": "up to date"}
    other, head = PACKAGE._replace(path="api"), a_pull().head
    context = approving_context({**case, "content": "ready"})
    targets = {PACKAGE: a_target(case), other: a_target({**case, "draft": "none"})}
    joining = replace(KEPT, package=other, variant=WEB._replace(name="api"), group=head)

    decided = staged("approval", approve_changes, [KEPT, joining], replace(context, targets=targets))

    assert [change.op for change in decided] == [Op.KEEP] * 2


@pytest.mark.parametrize(
    ("rule", "commits"), [("any draft of ours", []), ("a check that passed", [oid("d2")]), ("none", [])]
)
def test_checks_are_read_for_open_pull_requests_where_a_rule_requires_them(rule, commits) -> None:
    pulls = (a_pull(), a_pull(PullState.CLOSED, head_oid=oid("d3")), a_pull(head_oid=""))
    assert list(wanted_checks([EDGE], pulls, approving(rule).policy)) == commits
