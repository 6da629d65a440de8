"""Approval: whether a pull request may be merged, by policy or by a person."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from reconciler.api.meta import LabelSelector, compile_selector
from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import LEFT_BY_RUN, Phase, Reason
from reconciler.base.text import Text, some, verb
from reconciler.inventory.inventory import (
    CheckState,
    Draft,
    Inventory,
    PullRequest,
    PullState,
    RepositoryView,
)
from reconciler.names.ids import PackageKey
from reconciler.names.refs import HEADS, deletion_ref, short_branch
from reconciler.plan.changes import (
    Approvable,
    Approval,
    ApprovalState,
    Change,
    MoveRef,
    Objection,
    Op,
    Plan,
    Refusal,
    Unfinished,
    WriteDraft,
    WriteGroup,
)
from reconciler.plan.compose import with_after
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.plan.deletions import left_drafts
from reconciler.plan.impact import loss_consent
from reconciler.plan.status import plan_conditions
from reconciler.policy import ApprovalRule, ForgeKind, Policy, find_rule
from reconciler.records.state import RefusedMerge, record_bytes, record_path
from reconciler.render.rendered import Package
from reconciler.resolve.ownership import package_label

_MOST_NAMES, _MOST_CONSENTS = 3, 12
LEAST_WAIT_S, MOST_WAIT_S = 600, 86_400
"""For how long a refusal to merge is believed: as long as it lasted before, within these."""
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
        # Whatever writes to a branch shares it, a package that joins its group with this run or that a person
        # deleted there, too.
        draft = context.targets[key].draft
        refs = {write.ref for write in change.writes} | ({draft.ref} if draft is not None else set())
        refs |= {f"{HEADS}{change.group}"} if change.group else set()
        for ref in refs:
            sharing.setdefault((key.url, ref), []).append(change)
    states: dict[PackageKey, ApprovalState] = {}
    for together in sharing.values():
        approval = _approval(together, rules, context)
        for change in together:
            if approval is not None:
                states[change.package] = ApprovalState(approval)
            elif state := _obstacle(change, rules, context):
                states[change.package] = state
    return states


def lacks_consent(change: Change, policy: Policy) -> bool:
    """Tell whether merging takes objects of a cluster with it, without consent to that in Git."""
    is_loss = any(loss.needs_consent for loss in change.losses)
    # A refused deletion is not proposed: what its draft proposes takes nothing.
    is_loss = is_loss and change.reason is not Reason.DELETION_GUARD
    return is_loss and loss_consent(change.package, change.losses) not in policy.consents


def consent_text(change: Change) -> str:
    """Return how to let policy merge a change that takes objects with it."""
    consent = loss_consent(change.package, change.losses)
    return f"Review and merge it by name, or write in the configuration: spec.consents: {{{consent}: why}}"


def refuse_losses(changes: Iterable[Change], inventory: Inventory) -> Iterator[Refusal]:
    """Yield the refusal of all packages that would take objects with them: they are proposed, not merged.

    A package of which functions failed, or a file is broken, is corrected before people consent.
    """
    policy = inventory.policy
    losing = [change for change in changes if lacks_consent(change, policy) and not change.failed]
    if losing:
        named = sorted(package_label(change.repository, change.package.path, inventory) for change in losing)
        consents = some(sorted(f"{loss_consent(c.package, c.losses)}: why" for c in losing), _MOST_CONSENTS)
        takes = verb(len(losing), "takes objects with it", "take objects with them")
        hint = f"Review and merge by name, or write in the configuration: spec.consents: {{{consents}}}"
        message, packages = f"{some(named, _MOST_NAMES)} {takes}", frozenset(c.package for c in losing)
        yield Refusal(Reason.LOSS_NEEDS_CONSENT, message, hint, packages=packages)


def _obstacle(change: Change, rules: Finder, context: PlanContext) -> ApprovalState | None:
    """Return what keeps policy from merging a change, None if no rule lets it pass or nothing does."""
    target = context.targets[change.package]
    pull = newest_pull(target.pulls, target.draft.ref) if target.draft else None
    # Losses apart, for only what policy would merge otherwise waits for more than a review.
    if pull is None or not _fitting_rules(replace(change, losses=()), target, rules, context):
        return None
    if lacks_consent(change, context.inventory.policy):
        # It was harmless when an earlier run asked: the snapshot changed since.
        armed = "Switch off its auto-merge. " if pull.auto_merge == pull.head_oid else ""
        why = f"Merging it takes objects with it. {armed}{consent_text(change)}"
        return ApprovalState(why=why, reason=Reason.LOSS_NEEDS_CONSENT)
    if refused := _find_refusal(change, pull, rules, context):
        return refused
    if pull.auto_merge != pull.head_oid:
        checks = _missing_checks(change, rules, context)
        return ApprovalState(why=checks) if checks else None
    if not pull.is_dropped:
        return ApprovalState(why="The forge, or its merge queue, merges it once its checks have passed")
    name = f"{context.inventory.label(target.view.key)}#{pull.number}"
    return ApprovalState(
        why="The forge does not merge it any more: it left the merge queue, or a person switched auto-merge "
        f"off. Merge it, or run `reconciler approve {name}`",
        reason=Reason.MERGE_DROPPED,
    )


def _find_refusal(
    change: Change, pull: PullRequest, rules: Finder, context: PlanContext
) -> ApprovalState | None:
    """Return that a head is not merged: the repository alone merges only packages, and forges may refuse."""
    target = context.targets[change.package]
    if target.draft is not None and target.draft.outside and _is_local(target, context):
        step = "Remove that change from the branch, or merge the branch with git"
        why = f"It is not merged: {target.draft.outside}. {step}"
        return ApprovalState(why=why, reason=Reason.MERGE_REFUSED)
    refused = _refusal(change, pull, rules, context)
    return _refused_state(change, pull.number, refused.message, context) if refused else None


def _is_local(target: PlanTarget, context: PlanContext) -> bool:
    forge = find_rule(context.inventory.policy.forges, target.view.remote)
    return forge is None or forge.kind is ForgeKind.LOCAL


def _refused_state(change: Change, number: int, message: Text, context: PlanContext) -> ApprovalState:
    name = f"{context.inventory.label(change.repository)}#{number}"
    why = (
        f"The forge did not merge it: {message}. It is asked again when its pull request, checks or rules "
        f"change, and after a while; or run `reconciler approve {name}`"
    )
    return ApprovalState(why=why, reason=Reason.MERGE_REFUSED)


def _refusal(change: Change, pull: PullRequest, rules: Finder, context: PlanContext) -> RefusedMerge | None:
    """Return that the forge refused to merge this head, None where it never did or may be asked again.

    What a forge does not tell may have changed: the longer it refuses, the more rarely it is asked.
    """
    refused = _last_refusal(change, pull, rules, context)
    if refused is None:
        return None
    wait_s = min(max(refused.last - refused.first, LEAST_WAIT_S), MOST_WAIT_S)
    return refused if context.inventory.now < refused.last + wait_s else None


def _last_refusal(
    change: Change, pull: PullRequest, rules: Finder, context: PlanContext
) -> RefusedMerge | None:
    record = context.inventory.records.get(change.variant) if change.variant else None
    refused = record.refused if record is not None else None
    if refused is None or refused.head != pull.head_oid:
        return None
    return refused if refused.basis == _basis(change, pull, pull.changed, rules, context) else None


def _basis(change: Change, pull: PullRequest, changed: int, rules: Finder, context: PlanContext) -> str:
    """Return the digest of what a forge's answer may depend on: the pull request, its checks, the policy."""
    view, inventory = context.targets[change.package].view, context.inventory
    key = change.package.url, pull.head_oid
    checks = sorted(inventory.passed_checks.get(key, ())), sorted(inventory.other_checks.get(key, {}).items())
    rule = find_rule(inventory.policy.forges, view.remote)
    terms = rules(view), rule.merge_method if rule is not None else "", checks, changed
    return hashlib.sha256(repr(terms).encode()).hexdigest()[:16]


def remember_refusals(plan: Plan, unfinished: Mapping[PackageKey, Unfinished]) -> Plan:
    """Return a plan that keeps what the forge refused to merge, as the next one does, and records that."""
    context = plan.context
    refused = {package: why for package, why in unfinished.items() if why.refused}
    if context is None or not refused:
        return plan
    rules, records, changes = find_rules(context.inventory.policy), dict(plan.records), []
    for change in plan.changes:
        record = context.inventory.records.get(change.variant) if change.variant else None
        why, approve = refused.get(change.package), change.approve
        if why is None or record is None or approve is None:
            changes.append(change)
            continue
        pulls = context.targets[change.package].pulls
        (pull,) = (pull for pull in pulls if pull.number == approve.number)
        before = _last_refusal(change, pull, rules, context)
        now = RefusedMerge(
            head=pull.head_oid,
            basis=_basis(change, pull, why.changed, rules, context),
            first=before.first if before is not None else why.refused,
            last=why.refused,
            message=str(why.message),
        )
        records[record_path(record)] = record_bytes(replace(record, refused=now))
        state = _refused_state(change, pull.number, why.message, context)
        waiting = replace(
            change, op=Op.KEEP, reason=state.reason, message=state.why, waits=True, approve=None
        )
        changes.append(with_after(waiting, context.targets[change.package]))
    unrefused = {package: why for package, why in unfinished.items() if package not in refused}
    conditions = plan_conditions(context, changes, unrefused)
    return replace(plan, changes=tuple(changes), records=records, conditions=conditions)


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
    if pull.auto_merge == pull.head_oid or _find_refusal(change, pull, rules, context):
        return None
    passed = context.inventory.passed_checks.get((change.package.url, draft.tip.oid), frozenset())
    if any(passed.issuperset(rule.checks) and not rule.auto_merge for rule in fitting):
        return Approval(pull.number, pull.head, pull.head_oid)
    # The repository alone does not merge by itself.
    if _is_local(target, context) or not any(rule.auto_merge for rule in fitting):
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
    if change.refusals or change.overwritten or not _is_ready(change, target, context):
        return ()
    if lacks_consent(change, context.inventory.policy):
        return ()
    is_ours = not draft.has_foreign_commits and not draft.is_edited
    return [rule for rule in rules(target.view) if rule.edited or is_ours]


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


Place = tuple[str, str | int]
"""The URL of a repository, and a branch or the number of a pull request in it."""

_NOT_UNDERSTOOD = frozenset((Reason.OWNER_STALLED, Reason.MANIFEST_UNREADABLE))
_NO_PACKAGE = frozenset((Reason.INVALID_PACKAGE, Reason.PACKAGE_EXISTS))
_MEND = "Correct it by a commit to its branch, or close it."
_LAST = (sys.maxsize, 0)
_WHO_LEFT = {Reason.ORPHANED: "Its manifest is gone"}


def find_approvable(inventory: Inventory, changes: Iterable[Change]) -> dict[Place, Approvable]:
    """Return for each branch with drafts the conflicts and gates that forbid approval. A deletion has none.

    Unmet gates forbid approval where packages are deployed, and are shown elsewhere. Open conflicts forbid
    it everywhere: approving one would choose a side silently. The record of a package counts if it is about
    exactly this draft; else the change does.

    Source: porch pkg/cli/commands/rpkg/approve, which asks the same of every repository.
    """
    reader = _Reader(inventory, changes)
    drafts: dict[Place, list[tuple[str, RepositoryView, Draft]]] = {}
    for view in inventory.views.values():
        for path, package in view.packages.items():
            for draft in package.drafts:
                drafts.setdefault((view.url, short_branch(draft.ref)), []).append((path, view, draft))
    return {
        place: _joined(
            reader.approvable(*entry) for entry in sorted(entries, key=lambda entry: entry[2].path)
        )
        for place, entries in drafts.items()
    }


def _joined(parts: Iterable[Approvable]) -> Approvable:
    return Approvable(*(tuple(chain.from_iterable(texts)) for texts in zip(*parts, strict=True)))


class _Reader:
    def __init__(self, inventory: Inventory, changes: Iterable[Change]) -> None:
        self._inventory = inventory
        self._records = {PackageKey(r.url, r.path): r for r in reversed([*inventory.records.values()])}
        self._changes = {change.package: change for change in reversed([*changes])}

    def approvable(self, path: str, view: RepositoryView, draft: Draft) -> Approvable:
        package = PackageKey(view.url, draft.path)
        try:
            with guard(f"approval of {package}"):
                if self._inventory.view_of(PackageKey(view.url, path)) is not view:
                    return Approvable()  # another view names it
                return self._approvable(package, view, draft)
        except DefectError as error:
            return Approvable(unmet=(str(error),))

    def _approvable(self, package: PackageKey, view: RepositoryView, draft: Draft) -> Approvable:
        conflicts, unready, failed = self._find_unmet(package, draft)
        gates = tuple(dict.fromkeys((*draft.header.unmet, *unready)))
        failures = unready[:1] if failed else ()
        edited = (short_branch(draft.ref),) if draft.is_edited and (failed or draft.header.error) else ()
        if draft.header.error:
            broken = f"{draft.path}/Kptfile cannot be read: {draft.header.error}"
            return Approvable(conflicts, (broken,), gates, (broken, *failures), edited=edited)
        is_unfinished = not conflicts and self._is_unfinished(package, draft)
        why = f"no run has finished the draft of {draft.path} since people answered its conflicts"
        unfinished = (why,) if is_unfinished else ()
        lenient = Approvable(
            conflicts, lenient=gates, failures=failures, unfinished=unfinished, edited=edited
        )
        return lenient.strict if view.deployment else lenient

    def _find_unmet(self, package: PackageKey, draft: Draft) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Return the open conflicts of a draft, its unmet gates, and whether its functions failed."""
        record, change = self._records.get(package), self._changes.get(package)
        is_exact = record is not None and record.output_tree == draft.tree
        if record is not None and is_exact and not (record.conflicts or draft.append_only):
            return (), record.unready, record.failed
        if change is None:
            return (), (), False
        # What is held back conflicts with an update that is not in the draft: the draft asks nothing.
        notes = () if change.reason is Reason.HELD_BACK else change.conflicts
        conflicts = (f"conflict in {n.path}{f' at {n.field}' if n.field else ''}" for n in notes)
        # What its cluster would refuse a person may approve by name.
        unready = tuple(str(text) for text in change.unready if text not in change.refusals)
        return tuple(conflicts), unready, change.failed

    def _is_unfinished(self, package: PackageKey, draft: Draft) -> bool:
        """Whether functions have not run since people answered the conflicts of a draft."""
        change = self._changes.get(package)
        if change is None or not draft.answers.has_asked:
            return False
        is_held = change.reason in LEFT_BY_RUN or change.reason.facts.phase is Phase.PAUSED
        is_made = change.op is not Op.BLOCK and not is_held
        return not is_made or change.tree != draft.tree


def find_objections(plan: Plan) -> dict[Place, Objection]:
    """Return why pull requests are against what manifests want, take objects without consent, or are refused.

    Only a person who names such a pull request approves it.
    """
    objections: dict[Place, Objection] = {}
    for number, change in enumerate(plan.all_changes):
        for name, objection in _unwanted(change, plan, number):
            objections.setdefault((change.package.url, name), objection)
    for change in plan.changes:
        for head, objection in (*_losing(change, plan), *_of_draft(change, plan)):
            objections.setdefault((change.package.url, head), objection)
    for place, objection in _emptied(plan):
        objections.setdefault(place, objection)
    return objections


def early_deletions(plan: Plan) -> Mapping[Place, Text]:
    """Return why deletions of packages that are elsewhere now wait for a name, by the place of the old one.

    The package is not at its new place yet, or people edited the old one.
    """
    context, waiting = plan.context, dict[Place, Text]()
    for change in plan.changes if context is not None else ():
        target = context.targets.get(change.package) if context is not None else None
        if context is None or target is None or change.variant is None:
            continue
        record, former = context.inventory.records.get(change.variant), target.view.former
        owner = change.variant if change.variant in context.variants else context.moves.get(change.variant)
        resolved = context.resolved.get(owner) if owner is not None else None
        is_there = resolved is not None and resolved.downstream == change.package
        if record is None or owner is None or is_there:
            continue
        successor = context.targets.get(resolved.downstream) if resolved is not None else None
        moved = former.message if former is not None else str(change.message)
        why = ""
        if successor is None or successor.main_owner != owner:
            place = (
                package_label(resolved.view, resolved.downstream.path, context.inventory) if resolved else ""
            )
            where = f"at {place}" if place else "there"
            why = f"{moved}, and the package is not merged {where} yet"
        elif target.package.main_tree and target.package.main_tree not in (record.unedited or ()):
            why = f"{moved}, and what people may have edited is in the old package alone"
        if why:
            head = short_branch(deletion_ref(context.inventory.policy.instance, change.package.path))
            waiting[change.package.url, head] = why
    return waiting


def _unwanted(change: Change, plan: Plan, number: int) -> Iterator[tuple[str | int, Objection]]:
    path, what = change.package.path, "proposes what no manifest wants any more"
    for ended in ended_by(change):
        yield ended, Objection((number, 0), f"{what}: {path}")
    if change.reason is Reason.DELETED_BY_PERSON:
        who, way = "A person deleted it there", f"put {path} back on {change.group} with git"
        yield change.group, Objection((number, 1), f"deletes what a manifest wants: {path}", who, way)
    if plan.context is not None and change.reason in _NOT_UNDERSTOOD:
        objection = Objection(
            (number, 1), f"is about what may be wanted: {path}", str(change.message), "correct its manifest"
        )
        if (target := plan.context.targets.get(change.package)) is not None:
            deletion = deletion_ref(plan.context.inventory.policy.instance, path)
            refs = (deletion, *(draft.ref for draft in target.drafts))
            yield from ((short_branch(ref), objection) for ref in refs)
    if plan.context is not None and (draft := _unwanted_draft(change, plan.context)) is not None:
        branch, former = short_branch(draft.ref), plan.context.targets[change.package].view.former
        # Closing a group refuses what others want, too.
        way = f"remove {draft.path} from {branch} with git" if draft.is_grouped else "close it"
        # Of what is held back nobody decided that it stays: that is for want of proof, or a wave.
        is_held = change.reason.facts.phase is not None and change.package not in plan.context.downstreams
        why = str(change.message) if is_held else ""
        who = former.message if former is not None else _WHO_LEFT.get(change.reason, why)
        yield branch, Objection((number, 1), f"{what}: {path}", who or "A person left it there", way)


def _losing(change: Change, plan: Plan) -> Iterator[tuple[str, Objection]]:
    context = plan.context
    target = context.targets.get(change.package) if context is not None else None
    if context is None or target is None or not lacks_consent(change, context.inventory.policy):
        return
    if change.failed and target.view.deployment:
        return  # not ready is reason enough, and no consent ends it
    lost = "; ".join(loss.text for loss in change.losses if loss.needs_consent)
    objection = Objection(_LAST, f"takes objects with it: {lost}", step=f"{consent_text(change)}.")
    heads = {change.group, short_branch(deletion_ref(context.inventory.policy.instance, change.package.path))}
    heads |= {short_branch(target.draft.ref)} if target.draft is not None else set()
    yield from ((head, objection) for head in sorted(heads - {""}))


def _of_draft(change: Change, plan: Plan) -> Iterator[tuple[str, Objection]]:
    """Yield what its cluster would refuse, and the edits of people that its functions write over.

    And what a commit of a person made of it that is no package, or none of ours.
    """
    target = plan.context.targets.get(change.package) if plan.context is not None else None
    if target is not None and change.reason in _NO_PACKAGE:
        objection = Objection(_LAST, f"is no package of ours: {change.message}", step=_MEND)
        yield from ((short_branch(d.ref), objection) for d in target.package.drafts if d.append_only)
    if target is None or target.draft is None:
        return
    refused = "Correct it, or make the cluster take it, by recreating the object for example."
    lost = "To keep the edit, change what the function reads, or the injected object, or take either out."
    for texts, what, step in (
        (change.refusals, "has what its cluster does not take", refused),
        (change.overwritten, "loses edits of people", lost),
    ):
        if texts:
            objection = Objection(_LAST, f"{what}: {'; '.join(map(str, texts))}", step=step)
            yield from ((head, objection) for head in {change.group, short_branch(target.draft.ref)} - {""})


def _emptied(plan: Plan) -> Iterator[tuple[Place, Objection]]:
    """Yield the open groups from which people took everything: merging one only proposes that again."""
    views = plan.context.inventory.views.values() if plan.context is not None else ()
    drafts = {(v.url, d.ref) for v in views for package in v.packages.values() for d in package.drafts}
    for view in views:
        for branch in view.groups:
            is_left = branch.merged or branch.deleted or (view.url, branch.ref) in drafts
            if branch.dropped and not is_left:
                who = f"A person took {some(sorted(branch.dropped), _MOST_NAMES)} out of it"
                objection = Objection(_LAST, "proposes nothing", who, "close it")
                yield (view.url, short_branch(branch.ref)), objection


def ended_by(change: Change) -> Iterator[str | int]:
    """Yield the branches that a change writes anew, and the numbers of the pull requests that it closes."""
    yield from (
        short_branch(w.ref) for w in change.writes if isinstance(w, WriteDraft | WriteGroup | MoveRef)
    )
    yield from (close.number for close in change.close)


def _unwanted_draft(change: Change, context: PlanContext) -> Draft | None:
    """Return the draft that stays though no manifest wants it, or the revision that people committed to."""
    package = change.package
    target = context.targets.get(package)
    if target is None:
        return None
    # Whatever keeps it, of what no variant wants only the draft that ends its management is wanted.
    is_left = change.reason is not Reason.ORPHANED or target.package.main_tree is None
    if package in context.downstreams:
        resolved = context.resolved.get(change.variant) if change.variant else None
        base = resolved.draft_base if resolved is not None else None
        is_other = base is not None and resolved is not None and base.commit.oid != resolved.pin.commit.oid
        is_over = change.reason is Reason.DRAFT_EDITED and change.tree == target.package.main_tree
        is_left = (is_over and is_other) or target.draft in left_drafts(target, context)
    return target.draft if is_left else None
