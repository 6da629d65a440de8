"""Decide about packages that no variant wants: propose their deletion, orphan or keep them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.wording import plural
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.refs import deletion_proposed_ref, deletion_ref, short_branch
from reconciler.plan.adoption import is_uncertain
from reconciler.plan.changes import Change, MoveRef, Op, Refusal, WriteDraft, WriteRemoval
from reconciler.plan.commits import (
    EDIT,
    commit_message,
    edit_task,
    revision_name,
)
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.plan.deletion_evidence import find_outdated
from reconciler.plan.deletion_guard import (
    consent_hint,
    deletion_consent,
    exceeded_limit,
    moved_branch,
    pending_consent,
)
from reconciler.plan.drafts import close_drafts, close_pulls, next_workspace, write_draft
from reconciler.render.rendered import Blocked, Package
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import find_owner, find_pause, package_name
from reconciler.resolve.variants import ORPHAN

SUPERSEDED = "The package is proposed for deletion; this draft is obsolete."
NEVER_PUBLISHED = (
    "No PackageVariant wants this package any more. It was never published: only its draft goes."
)


def decide_unwanted(target: PlanTarget, context: PlanContext) -> Change:
    """Decide about a package that no variant wants. Total; ignorance keeps (law 4).

    Source: porch packagevariant_controller.go, deleteOrOrphan.
    Differs: evidence is needed (D3), and a deletion is a proposal that people merge.
    """
    change = Change(target.key, target.view.key, Op.KEEP, Reason.NOT_OURS, before=target.package.main_tree)
    owner = target.owner or _draft_owner(target, context)
    pause = find_pause(target.view, context.variants.get(owner) if owner else None, context.inventory)
    if owner is None:
        return _unowned(target, context, change, pause)
    change = replace(change, variant=owner, before=_tree(target), after=_tree(target))
    if pause:
        return replace(change, reason=Reason.PAUSED, message=pause)
    kept = _why_kept(owner, target.key, context)
    if kept is not None:
        reason, message = kept
        return replace(change, reason=reason, message=message)
    change = replace(change, message=_cause(owner, context))
    if _policy(owner, context) == ORPHAN:
        return _release(target, context, change)
    return _delete(target, context, change)


def _unowned(target: PlanTarget, context: PlanContext, change: Change, pause: str) -> Change:
    """A stranger's package is kept; of one that is gone, what proposed its deletion is cleared away."""
    leftovers = () if target.package.exists else tuple(withdraw_deletion(target, context))
    if leftovers and pause:
        return replace(change, reason=Reason.PAUSED, message=pause)
    if leftovers:
        return replace(change, op=Op.CLOSE, reason=Reason.ALREADY_ABSENT, writes=leftovers)
    return replace(change, after=change.before)


def _why_kept(owner: ObjectName, package: PackageKey, context: PlanContext) -> tuple[Reason, str] | None:
    """Return why there is no positive evidence that the owner let go; None if there is (D3)."""
    if is_uncertain(owner, context):
        return Reason.OWNER_STALLED, f"PackageVariant {owner} is not understood"
    if owner in context.variants:
        if owner in context.resolved:
            outdated = find_outdated(owner, package, context.inventory.control)
            return (Reason.REMOVAL_UNPROVEN, outdated) if outdated else None
        return Reason.OWNER_STALLED, f"PackageVariant {owner} cannot be resolved"
    change = context.gone.get(owner)
    if change is not None and change.reason is Reason.NOT_DESIRED and (awaited := _successor(owner, context)):
        message = f"It goes when {awaited}, which takes its place in the rollout of its set, is published"
        return Reason.AWAITING_WAVE, message
    if change is not None:
        return None if change.reason is Reason.NOT_DESIRED else (change.reason, change.message)
    return Reason.OWNER_UNKNOWN, f"No record of PackageVariant {owner}: nothing proves that it was deleted"


def _successor(owner: ObjectName, context: PlanContext) -> str:
    """Return the package that a set with waves has for the same cluster now, until main has it.

    A set that calls its package something else leaves no cluster without it.
    """
    record, inventory = context.inventory.records.get(owner), context.inventory
    view = inventory.repositories.get(ObjectName(owner.namespace, record.repository)) if record else None
    if record is None or view is None or not record.set_name:
        return ""
    own = ObjectName(owner.namespace, record.set_name)
    if all(rollout.key != own for rollout in context.resolution.rollouts):
        return ""
    for package, variants in sorted(context.downstreams.items()):
        target = context.targets.get(package)
        is_of_set = any(variant.set_key == own for variant in variants)
        if is_of_set and target and target.view.cluster == view.cluster and target.main_owner is None:
            return f"{target.view.key.name}/{package_name(target.view, package.path)}"
    return ""


def _cause(owner: ObjectName, context: PlanContext) -> str:
    """Return what is gone that the package was made for."""
    if cluster := cluster_of(owner):
        return f"Nothing is generated for cluster {cluster} any more"
    if owner in context.variants:
        return f"PackageVariant {owner} has another downstream now"
    return context.gone[owner].message


def _policy(owner: ObjectName, context: PlanContext) -> str:
    desired = context.variants.get(owner)
    if desired is not None:
        return desired.spec.deletion_policy or "delete"
    return context.inventory.records[owner].deletion_policy


def _delete(target: PlanTarget, context: PlanContext, change: Change) -> Change:
    # What people committed to a draft that main has is not lost with its branch.
    touched = [d for d in target.drafts if d.append_only and d not in target.merged]
    untouched = [d for d in target.drafts if d not in touched]
    comment = SUPERSEDED if target.package.main_tree is not None else NEVER_PUBLISHED
    change = replace(
        change,
        reason=Reason.NOT_DESIRED,
        writes=close_drafts(untouched),
        close=close_pulls(target, [d.ref for d in untouched], comment),
        waits=bool(touched),
    )
    if target.main_owner is not None:
        return _propose(target, context, change)
    if touched:
        message = "A person committed to its draft; delete the branch to let it go"
        return replace(change, op=Op.KEEP, reason=Reason.DRAFT_EDITED, message=message)
    return replace(change, op=Op.DELETE, after=target.package.main_tree)


def _propose(target: PlanTarget, context: PlanContext, change: Change) -> Change:
    """Propose the deletion of a package on main: a branch that removes it, and a pull request."""
    view, path = target.view, target.package.path
    ref = deletion_ref(context.inventory.policy.instance, path)
    head = short_branch(ref)
    pull = newest_pull(target.pulls, head)
    standing = view.branches.get(head)
    if pull is not None and pull.state is PullState.CLOSED and (standing or _was_proposed(change, context)):
        return _declined(target, context, change, pull)
    is_open = pull is not None and pull.state is PullState.OPEN
    request = None if is_open else _deletion_pull(target, head)
    if standing is not None and pull is not None and is_open and _is_split(target):
        message = (
            f"{path} changed on {view.branch} since its deletion was proposed, and a person committed to the "
            f"branch: merge {view.branch} into {head} with git, or close pull request #{pull.number}"
        )
        op = Op.DELETE if change.writes else Op.KEEP
        return replace(change, op=op, reason=Reason.DELETION_PROPOSED, message=message, waits=True)
    if standing is not None and not _is_outdated(target):
        op = Op.DELETE if request or change.writes else Op.KEEP
        return replace(change, op=op, reason=Reason.DELETION_PROPOSED, pull=request)
    if view.head is None:
        return change
    renewed = standing is not None
    removal = WriteRemoval(
        ref=ref,
        expect=standing.oid if standing else None,
        onto=view.head.oid,
        path=path,
        message=f"Delete {path}\n",
        time=max(_removal_time(context), view.head.time if renewed else 0),
    )
    if renewed:
        message = f"{path} changed on {view.branch}: its deletion is proposed anew, with that change"
        change = replace(change, reason=Reason.DELETION_PROPOSED, message=message)
    writes = (*change.writes, removal, *_porch_marker(target))
    return replace(change, op=Op.DELETE, after=None, writes=writes, pull=request)


def _is_outdated(target: PlanTarget) -> bool:
    """Tell whether the package changed on main since its deletion was proposed, without foreign commits.

    Such a proposal cannot be approved: its pull request does not list what it would remove.
    """
    deletion = target.package.deletion
    return (
        deletion is not None
        and not deletion.has_foreign_commits
        and deletion.base_tree != target.package.main_tree
    )


def _is_split(target: PlanTarget) -> bool:
    """Whether the package changed on main, and a person committed to the branch of its deletion."""
    deletion = target.package.deletion
    return (
        deletion is not None
        and deletion.has_foreign_commits
        and deletion.base_tree != target.package.main_tree
    )


def _declined(target: PlanTarget, context: PlanContext, change: Change, pull: PullRequest) -> Change:
    """Keep a package after people declined its deletion; the branches of the proposal go."""
    message = (
        f"The pull request #{pull.number} of its deletion was closed. "
        f"Remove {target.package.path} from {target.view.branch} "
        "to delete it, or declare its variant again to keep it up to date"
    )
    writes = (*change.writes, *withdraw_deletion(target, context))
    op = Op.CLOSE if writes else Op.KEEP
    return replace(change, op=op, reason=Reason.REJECTED, message=message, writes=writes)


def _was_proposed(change: Change, context: PlanContext) -> bool:
    record = context.inventory.records.get(change.variant) if change.variant else None
    return record is not None and record.deletion_proposed


def _porch_marker(target: PlanTarget) -> Iterator[MoveRef]:
    """Yield the branch that tells Porch of the proposal, beside the latest tag."""
    latest = target.package.latest
    if latest is not None:
        ref = deletion_proposed_ref(target.package.path, latest.revision)
        if short_branch(ref) not in target.view.branches:
            yield MoveRef(ref, None, latest.commit.oid)


def _deletion_pull(target: PlanTarget, head: str) -> PullRequest:
    name = package_name(target.view, target.package.path)
    return PullRequest(head=head, base=target.view.branch, title=f"Delete {name}", body="", draft=False)


def _release(target: PlanTarget, context: PlanContext, change: Change) -> Change:
    """Let go of a package and keep its content: its annotations are dropped by a draft."""
    if target.main_owner is None and target.package.main_tree is not None:
        return _delete(target, context, change)
    package = context.rendered.releases.get(target.key)
    change = replace(change, reason=Reason.ORPHANED)
    if not isinstance(package, Package):
        message = package.message if isinstance(package, Blocked) else "Its content was not read"
        return replace(change, op=Op.BLOCK, message=message, waits=True)
    withdrawn = tuple(withdraw_deletion(target, context))
    change = replace(change, after=package.tree, writes=withdrawn)
    if withdrawn:
        closes = close_pulls(target, [w.ref for w in withdrawn], "The package is kept after all.")
        change = replace(change, op=Op.ORPHAN, close=closes)
    if any(draft.tree == package.tree for draft in target.package.drafts):
        return change
    write = _release_draft(target, context, package)
    if write is None:
        return change
    pull = _release_pull(target, write.ref)
    return replace(change, op=Op.ORPHAN, writes=(*withdrawn, write), pull=pull)


def _release_draft(target: PlanTarget, context: PlanContext, package: Package) -> WriteDraft | None:
    view, path, draft = target.view, target.package.path, target.draft
    if view.head is None:
        return None
    workspace = draft.workspace if draft else next_workspace(target)
    latest = target.package.latest
    source = revision_name(view, path, latest.workspace if latest else view.branch)
    touched = draft is not None and draft.append_only
    time = max(_removal_time(context), draft.foreign_commit_time if draft and touched else 0)
    return write_draft(
        target,
        package,
        workspace,
        draft=draft,
        onto=draft.tip.oid if draft and touched else view.head.oid,
        message=commit_message(EDIT, path, workspace, edit_task(source)),
        time=time,
    )


def _release_pull(target: PlanTarget, ref: str) -> PullRequest:
    pull = newest_pull(target.pulls, ref)
    number = pull.number if pull is not None and pull.state is PullState.OPEN else 0
    name = package_name(target.view, target.package.path)
    return PullRequest(
        head=short_branch(ref),
        base=target.view.branch,
        title=f"Stop managing {name}",
        body="",
        draft=False,
        number=number,
    )


def _removal_time(context: PlanContext) -> int:
    """Return the time of a commit that no manifest asks for any more: the control commit's.

    The manifest is gone, so the commit that removed it is the newest input.
    """
    return context.inventory.control.commit.time


def withdraw_deletion(target: PlanTarget, context: PlanContext) -> Iterator[MoveRef]:
    """Yield the removal of every proposal to delete a package."""
    for ref, oid in context.proposed_deletions.get(target.key, ()):
        yield MoveRef(ref, oid, None)


def _draft_owner(target: PlanTarget, context: PlanContext) -> ObjectName | None:
    if not target.drafts:
        return None
    return find_owner(target.drafts[0].header, target.key, context.inventory)


def _tree(target: PlanTarget) -> Oid | None:
    return target.package.main_tree or (target.draft.tree if target.draft else None)


# The guard of packages that moved variants left behind


class GuardedChanges(NamedTuple):
    """Changes in which refused deletions are kept, with the refusals.

    `waiting` are the packages that wait for consent, each with the number of owned packages at the time of
    its first refusal.
    """

    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]
    waiting: Mapping[PackageKey, int]


def guard_changes(context: PlanContext, changes: Sequence[Change]) -> GuardedChanges:
    """Keep the packages with refused deletions: too many, and without consent.

    The set diff counts the variants that are gone, and their packages are kept already. This counts
    the packages that variants left behind by moving elsewhere, and only deletions that this plan
    begins. The other changes proceed. A refusal lasts until consent is given.

    Source: octodns provider/plan.py, Plan.raise_if_unsafe.
    Differs: octodns refuses the whole plan.
    """
    refusals = [Refusal(r.reason, r.message, r.hint, r.consent) for r in context.diff.refused]
    moved = [c for c in changes if c.op is Op.DELETE and c.writes and c.variant in context.variants]
    before = _refused_before(context)
    refused, owned, message = _refuse_moved(moved, before, context)
    consent = deletion_consent(change.package for change in refused)
    if not refused or consent in context.inventory.policy.consents:
        refused = ()
    guarded = {change.package for change in refused}
    waiting = {change.package: before.get(change.package, owned) for change in refused}
    begun = {change.package for change in moved if change.package not in guarded}
    waiting |= {key: of for key, of in before.items() if key not in begun and _still_waits(key, context)}
    if not refused:
        return GuardedChanges(tuple(changes), tuple(refusals), waiting)
    refusals.append(Refusal(Reason.DELETION_GUARD, message, consent_hint(consent), consent))
    kept = tuple(_keep_refused(c, message) if c.package in guarded else c for c in changes)
    return GuardedChanges(kept, tuple(refusals), waiting)


def _refuse_moved(
    moved: Sequence[Change], before: Mapping[PackageKey, int], context: PlanContext
) -> tuple[Sequence[Change], int, str]:
    """Return the deletions that need consent, the number of packages they are measured against, a message."""
    guard = context.inventory.policy.deletions
    again = [change for change in moved if change.package in before]
    now = sum(1 for target in context.targets.values() if target.owner is not None)
    # The new places of moved variants count as owned as soon as they have drafts: that must not make
    # the share of what was refused smaller, nor must packages that left make the minimum larger.
    owned = max((before[change.package] for change in again), default=now)
    branch = moved_branch(context.inventory)
    limit = branch or exceeded_limit(len(moved), owned, guard)
    refused = moved if limit else again
    packages = (
        plural(len(refused), "package") if branch else f"{len(refused)} of {plural(owned, 'owned package')}"
    )
    message = f"{packages} would be deleted because their variants moved"
    return refused, owned, f"{message}, {limit or pending_consent(context.inventory)}"


def _refused_before(context: PlanContext) -> Mapping[PackageKey, int]:
    """Return the packages with refused deletions; all owned ones if the record is unreadable."""
    refused = context.inventory.refused
    if refused is not None:
        return {PackageKey(p.url, p.path): p.of for p in refused.packages}
    owned = [target.key for target in context.targets.values() if target.owner is not None]
    return dict.fromkeys(owned, len(owned))


def _still_waits(package: PackageKey, context: PlanContext) -> bool:
    """Whether a refused package is still there and not desired, or its repository cannot be read."""
    target = context.targets.get(package)
    if target is None:
        views = context.inventory.views_of(package.url)
        return any(not view.is_available for view in views)
    return target.owner is not None and package not in context.downstreams


def _keep_refused(change: Change, message: str) -> Change:
    return replace(change.without_effects(Op.KEEP, Reason.DELETION_GUARD, message), waits=False)
