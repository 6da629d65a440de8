"""Approval by policy: what may be merged without a person, pinned to the commit that was judged."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from reconciler.api.meta import LabelSelector
from reconciler.base.reasons import Reason
from reconciler.expand.selectors import compile_selector
from reconciler.inventory.inventory import CheckState, PullRequest, PullState, RepositoryView
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import Approval, Change, Op
from reconciler.plan.compose import ApprovalState
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.policy import ApprovalRule, ForgeKind, Policy, find_rule
from reconciler.render.rendered import Package

Finder = Callable[[RepositoryView], tuple[ApprovalRule, ...]]
_STATES: Mapping[CheckState | None, str] = {
    None: "has not reported",
    CheckState.PENDING: "is pending",
    CheckState.SKIPPED: "was skipped",
    CheckState.FAILED: "failed",
}


def find_rules(policy: Policy) -> Finder:
    """Return a function from a repository to its rules: those with a selector that matches its labels."""
    compiled = [(compile_selector(LabelSelector.model_validate(r.selector)), r) for r in policy.approval.auto]

    def rules(view: RepositoryView) -> tuple[ApprovalRule, ...]:
        labels = view.manifest.metadata.labels or {}
        return tuple(rule for selects, rule in compiled if selects(labels))

    return rules


def approve_changes(
    context: PlanContext, changes: Mapping[PackageKey, Change]
) -> Mapping[PackageKey, ApprovalState]:
    """Return what policy approves: drafts that are up to date, where a rule allows it (D14).

    A draft is approved by a later run than the one that wrote it. What shares a pull request is
    approved together, or not at all. Never with an unmet gate, an open conflict or a failed function.
    """
    if not context.inventory.policy.approval.auto:
        return {}
    rules = find_rules(context.inventory.policy)
    sharing: dict[tuple[str, str], list[Change]] = {}
    for key, change in changes.items():
        # Whatever writes to a branch shares it, a package that joins its group with this run, too.
        draft = context.targets[key].draft
        refs = {write.ref for write in change.writes} | ({draft.ref} if draft is not None else set())
        for ref in refs:
            sharing.setdefault((key.url, ref), []).append(change)
    states: dict[PackageKey, ApprovalState] = {}
    for some in sharing.values():
        approval = _approval(some, rules, context)
        for change in some:
            if approval is not None:
                states[change.package] = ApprovalState(approval)
            elif state := _obstacle(change, rules, context):
                states[change.package] = state
    return states


def _obstacle(change: Change, rules: Finder, context: PlanContext) -> ApprovalState | None:
    """Return what keeps policy from merging a change, None if no rule lets it pass or nothing does."""
    target = context.targets[change.package]
    pull = newest_pull(target.pulls, target.draft.ref) if target.draft else None
    if pull is None or not _fitting_rules(change, target, rules, context):
        return None
    if pull.auto_merge != pull.head_oid:
        checks = _missing_checks(change, rules, context)
        return ApprovalState(why=checks) if checks else None
    if not pull.is_dropped:
        return ApprovalState(why="The forge, or its merge queue, merges it once its checks have passed")
    return ApprovalState(
        why="The forge does not merge it any more: it left the merge queue, or a person switched auto-merge "
        f"off. Merge it, or run `reconciler approve {target.view.key.name}#{pull.number}`",
        waits=True,
    )


def _missing_checks(change: Change, rules: Finder, context: PlanContext) -> str:
    """Return the checks that a change waits for, "" if no rule lets it pass once they have passed."""
    target = context.targets[change.package]
    fitting = _fitting_rules(change, target, rules, context)
    draft = target.draft
    if draft is None or not fitting or any(not rule.checks for rule in fitting):
        return ""
    key = change.package.url, draft.tip.oid
    passed = context.inventory.passed_checks.get(key, frozenset())
    others = context.inventory.other_checks.get(key)
    missing = min(([name for name in rule.checks if name not in passed] for rule in fitting), key=len)
    if missing and others is None:
        return "Approval waits for checks, which cannot be read"
    states = [f"{name} {_STATES[others.get(name)]}" for name in missing] if others is not None else []
    return f"Approval waits for checks: {', '.join(states)}" if states else ""


def _approval(changes: Sequence[Change], rules: Finder, context: PlanContext) -> Approval | None:
    """Return the merge of the one pull request of some changes, None if any of them forbids it."""
    approvals = [
        _find_approval(change, context.targets[change.package], rules, context) for change in changes
    ]
    first = approvals[0]
    if first is None or any(approval is None for approval in approvals):
        return None
    # A run merges at once only if it may for every package.
    return first._replace(by_forge=any(approval.by_forge for approval in approvals if approval))


def _find_approval(
    change: Change, target: PlanTarget, rules: Finder, context: PlanContext
) -> Approval | None:
    """Return the merge of a change's open pull request if one rule lets it pass, None otherwise."""
    draft = target.draft
    pull = newest_pull(target.pulls, draft.ref) if draft else None
    fitting = _fitting_rules(change, target, rules, context)
    if draft is None or pull is None or not fitting:
        return None
    if pull.auto_merge == pull.head_oid:
        return None
    passed = context.inventory.passed_checks.get((change.package.url, draft.tip.oid), frozenset())
    if any(passed.issuperset(rule.checks) and not rule.auto_merge for rule in fitting):
        return Approval(pull.number, pull.head, pull.head_oid)
    if not _has_auto_merge(target.view, context) or not any(rule.auto_merge for rule in fitting):
        return None
    return Approval(pull.number, pull.head, pull.head_oid, by_forge=True)


def _fitting_rules(
    change: Change, target: PlanTarget, rules: Finder, context: PlanContext
) -> Sequence[ApprovalRule]:
    """Return the rules that let a change's open pull request pass once their checks have passed."""
    draft = target.draft
    pull = newest_pull(target.pulls, draft.ref) if draft else None
    if draft is None or pull is None or pull.state is not PullState.OPEN or pull.head_oid != draft.tip.oid:
        return ()
    if change.op is not Op.KEEP or change.pending or change.waits or change.variant in context.stopped:
        return ()
    if not _is_ready(change, target, context):
        return ()
    is_ours = not draft.has_foreign_commits and not draft.is_edited
    return [rule for rule in rules(target.view) if rule.edited or is_ours]


def _has_auto_merge(view: RepositoryView, context: PlanContext) -> bool:
    """Tell whether the forge of a repository merges by itself; the repository alone does not."""
    rule = find_rule(context.inventory.policy.forges, view.remote)
    return rule is not None and rule.kind is not ForgeKind.LOCAL


def _is_ready(change: Change, target: PlanTarget, context: PlanContext) -> bool:
    """Tell whether the draft is up to date and ready; readiness gates count in every repository."""
    rendered = context.rendered.variants.get(change.variant) if change.variant else None
    if rendered is None:
        return False
    if target.key not in context.downstreams or change.reason not in {Reason.UP_TO_DATE, Reason.DRAFT_EDITED}:
        return False
    fresh, merged = rendered.fresh, rendered.merged
    if merged is None:
        return isinstance(fresh, Package) and fresh.ready
    # Conflicts of a draft that people committed to are answered there, not in what we would make afresh.
    is_made = isinstance(fresh, Package) and replace(fresh, conflicts=()).ready
    return is_made and isinstance(merged, Package) and merged.ready and not change.conflicts


def wanted_checks(
    views: Sequence[RepositoryView], pulls: Sequence[PullRequest], policy: Policy
) -> Iterator[str]:
    """Yield the commits for which rules require checks: the heads of open pull requests."""
    rules = find_rules(policy)
    if any(rule.checks for view in views for rule in rules(view)):
        yield from (pull.head_oid for pull in pulls if pull.state is PullState.OPEN and pull.head_oid)
