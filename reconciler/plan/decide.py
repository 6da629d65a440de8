"""Decide about one package: its change, with a reason and the exact writes."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant
from reconciler.names.problems import Problem
from reconciler.plan.adoption import Denied, claim_package
from reconciler.plan.changes import Change, MoveRef, Op
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.deletions import decide_unwanted, withdraw_deletion
from reconciler.plan.draft_decision import Case, decide_output, upstream_labels
from reconciler.plan.drafts import close_drafts, close_pulls
from reconciler.plan.path_conflicts import find_obstacle
from reconciler.plan.rejection import retry_text
from reconciler.render.rendered import Blocked
from reconciler.resolve.ownership import find_pause
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.resolve.rollout_model import RolloutPhase

_FAULTS = frozenset({Reason.BASE_NOT_FOUND, Reason.PROTECTED_FIELD})
"""Reasons to block a package that are reported at its variant, with a hint."""


class PackageDecision(Struct, frozen=True):
    """One package's change, and the problems that its manifests have with it."""

    change: Change
    problems: tuple[Problem, ...] = ()


def decide(target: PlanTarget, context: PlanContext) -> PackageDecision:
    """Decide about one package. Total: what nothing is known about is kept."""
    variants = context.downstreams.get(target.key, ())
    if not variants:
        return PackageDecision(decide_unwanted(target, context))
    if len(variants) > 1:
        return _contested(target, variants)
    return _decide_wanted(target, variants[0], context)


def _decide_wanted(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> PackageDecision:
    change = _blank(target, variant)
    resolved = context.resolved.get(variant.key)
    if pause := find_pause(target.view, variant, context.inventory):
        return PackageDecision(replace(change, reason=Reason.PAUSED, message=pause))
    if resolved is None:
        return PackageDecision(_publishing(_unresolved(change, target, variant, context), target, context))
    claim = find_obstacle(target, variant, context) or claim_package(target, variant, context)
    if isinstance(claim, Denied):
        problems = (claim.problem,) if claim.problem else ()
        op = Op.KEEP if target.package.exists else Op.BLOCK
        denied = replace(change, op=op, reason=claim.reason, message=claim.message, waits=claim.waits)
        return PackageDecision(denied, problems)
    old, new = upstream_labels(resolved)
    change = replace(change, upstream_from=old, upstream_to=new)
    case = Case(target, resolved, context.rendered.variants[variant.key], context, claim)
    change = _in_rollout(decide_output(case, change), target, context)
    change = _with_housekeeping(change, target, context)
    return PackageDecision(_explained(change, resolved), tuple(_faults(case, change)))


def _in_rollout(change: Change, target: PlanTarget, context: PlanContext) -> Change:
    """Add why a rollout keeps the package at its revision, or its draft from being merged.

    A package without a draft after the change waits for its wave, whatever else this run does about it.
    """
    key = change.variant
    why = context.held.get(key, "") if key else ""
    is_same = change.op is Op.KEEP and change.reason is Reason.UP_TO_DATE and target.draft is None
    if key and why and (is_same or change.op is Op.CLOSE):
        return _held(change, context.variants[key], context)
    why = why or (context.stopped.get(key, "") if key else "")
    return replace(change, message="; ".join(filter(None, (change.message, why)))) if why else change


def _held(change: Change, variant: DesiredVariant, context: PlanContext) -> Change:
    """Return the change of a package that its rollout keeps; what people took back waits for them."""
    why, rollout = context.held[variant.key], context.rollouts.get(variant.key)
    if rollout is not None and variant.key in rollout.rejected:
        again = retry_text(variant, context.inventory.records.get(variant.key))
        return replace(change, reason=Reason.REJECTED, message=f"{why}. {again}", waits=True)
    is_back = rollout is not None and rollout.phase is RolloutPhase.ROLLED_BACK
    return replace(change, reason=Reason.ROLLED_BACK if is_back else Reason.AWAITING_WAVE, message=why)


def _faults(case: Case, change: Change) -> Iterator[Problem]:
    """Yield the problem of a package that needs its upstream or its lock corrected first."""
    fresh, variant = case.rendered.fresh, case.resolved.variant
    if change.op is Op.BLOCK and isinstance(fresh, Blocked) and fresh.reason in _FAULTS:
        location = variant.source.at("spec", "upstream")
        message = f"Package {change.package.path}: {fresh.message}"
        yield Problem(location, fresh.reason, message, fresh.hint).owned_by(variant.owner)


def _explained(change: Change, resolved: ResolvedVariant) -> Change:
    """Add the dependents of a new generated package, or the revision that a lock holds back."""
    if change.message:
        return change
    if change.op is Op.CREATE and resolved.variant.requested_by:
        return replace(change, message=f"Required by {', '.join(resolved.variant.requested_by)}")
    if resolved.offers and resolved.offers.commit.oid != resolved.pin.commit.oid:
        return replace(change, message=f"Locked; upstream offers {resolved.offers.label}")
    return change


def _with_housekeeping(change: Change, target: PlanTarget, context: PlanContext) -> Change:
    """Add what is due beside the content: tags, drafts that main has, a deletion to withdraw."""
    if change.op is Op.BLOCK:
        return _publishing(change, target, context)
    spare = tuple(d for d in target.others if not d.append_only)
    withdrawn = tuple(withdraw_deletion(target, context))
    if not (target.merged or spare or withdrawn):
        return _publishing(change, target, context)
    refs = [write.ref for write in withdrawn]
    closes = (
        *close_pulls(target, [d.ref for d in target.merged], "Main has this content."),
        *close_pulls(target, [d.ref for d in spare], "Another draft of this package replaces this one."),
        *close_pulls(target, refs, "The package is wanted again."),
    )
    due = (*close_drafts(target.merged), *close_drafts(spare), *withdrawn)
    change = _publishing(change, target, context)
    if change.op is Op.KEEP and (due or closes):
        reason = Reason.DELETION_WITHDRAWN if withdrawn else Reason.DRAFT_SUPERSEDED
        change = _instead(change, Op.CLOSE, reason)
    return replace(change, writes=(*due, *change.writes), close=(*change.close, *closes))


def _publishing(change: Change, target: PlanTarget, context: PlanContext) -> Change:
    """Add the tags of what main has, whatever else is done: other variants count on them already."""
    revisions = context.resolution.publications.get(target.key, ())
    if not revisions:
        return change
    if change.op is Op.KEEP:
        change = _instead(change, Op.PUBLISH, Reason.PUBLISHED_BY_MERGE)
    tags = (MoveRef(revision.ref, None, revision.commit.oid) for revision in revisions)
    return replace(change, writes=(*tags, *change.writes))


def _instead(change: Change, op: Op, reason: Reason) -> Change:
    """Return a kept package's change as what happens to it after all; a telling reason stays."""
    return replace(change, op=op, reason=reason if change.reason is Reason.UP_TO_DATE else change.reason)


def _blank(target: PlanTarget, variant: DesiredVariant) -> Change:
    tree = target.draft.tree if target.draft else target.package.main_tree
    return Change(
        package=target.key,
        repository=target.view.key,
        op=Op.KEEP,
        reason=Reason.UP_TO_DATE,
        variant=variant.key,
        location=variant.source.location,
        before=tree,
        after=tree,
    )


def _unresolved(change: Change, target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Change:
    """Keep the package of a variant without upstream or pin; block a new one."""
    if variant.key in context.held:
        return _without_draft(_held(change, variant, context), target)
    if variant.key in context.waiting:
        return replace(change, reason=Reason.LOCK_PENDING, message=context.waiting[variant.key])
    mine = [p for p in context.resolution.problems if p.owner == variant.owner]
    message = mine[0].message if mine else ""
    if target.package.exists or not mine:
        return replace(change, reason=Reason.OWNER_STALLED, message=message)
    return replace(change, op=Op.BLOCK, reason=Reason(mine[0].reason), message=message)


def _without_draft(change: Change, target: PlanTarget) -> Change:
    """Return the change of a package that waits for its first revision: a draft of another one goes."""
    draft = target.draft
    if draft is None or target.package.main_tree is not None:
        return change
    if draft.append_only:
        message = f"{change.message}; its draft has a person's commits and is left to them"
        return replace(change, reason=Reason.DRAFT_EDITED, message=message, waits=True)
    closing = close_pulls(target, [draft.ref], "Its rollout does not bring this revision.")
    return replace(change, op=Op.CLOSE, after=None, writes=close_drafts([draft]), close=closing)


def _contested(target: PlanTarget, variants: tuple[DesiredVariant, ...]) -> PackageDecision:
    """Keep a package that several variants want, and report each of them at the others."""
    problems = []
    for variant in variants:
        rivals = ", ".join(f"{v.key} ({v.source.location})" for v in variants if v is not variant)
        message = f"Package {target.package.path} is also the downstream of {rivals}"
        location = variant.source.at("spec", "downstream", "package")
        hint = "Give each PackageVariant its own downstream."
        problem = Problem(location, Reason.DUPLICATE_DOWNSTREAM, message, hint)
        problems.append(problem.owned_by(variant.owner))
    names = " and ".join(str(v.key) for v in variants)
    change = replace(
        _blank(target, variants[0]), reason=Reason.DUPLICATE_DOWNSTREAM, message=f"Wanted by {names}"
    )
    return PackageDecision(change, tuple(problems))
