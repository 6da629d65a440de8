"""Decide about packages that no variant wants: propose their deletion, orphan or keep them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.text import Text, plural
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import Draft, PullRequest, PullState
from reconciler.names.ids import NamedObject, ObjectName, Oid, PackageKey
from reconciler.names.refs import deletion_proposed_ref, deletion_ref, short_branch
from reconciler.plan.changes import Change, ClosePull, MoveRef, Op, Refusal, Write, WriteDraft, WriteRemoval
from reconciler.plan.compose import Decision, Held, Veto, is_uncertain
from reconciler.plan.context import PlanContext, PlanTarget, find_place, newest_pull, place_consent
from reconciler.plan.drafts import (
    EDIT,
    close_drafts,
    close_pulls,
    commit_message,
    edit_task,
    is_rejected,
    next_workspace,
    revision_name,
    write_draft,
)
from reconciler.plan.set_diff import (
    consent_hint,
    deletion_consent,
    exceeded_limit,
    find_outdated,
    moved_branch,
    pending_consent,
    was_renamed,
)
from reconciler.render.rendered import Blocked, Package
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import (
    ORPHAN,
    deletion_policy,
    find_owner,
    find_pause,
    location_text,
    package_name,
)

SUPERSEDED = "The package is proposed for deletion; this draft is obsolete."
NEVER_PUBLISHED = (
    "No PackageVariant wants this package any more. It was never published: only its draft goes."
)


def decide_unwanted(target: PlanTarget, context: PlanContext) -> Decision:
    """Decide about a package that no variant wants. Total; ignorance keeps (law 4).

    Source: porch packagevariant_controller.go, deleteOrOrphan.
    Differs: evidence is needed (D3), and a deletion is a proposal that people merge.
    """
    owner = target.before.variant
    pause = find_pause(target.view, context.variants.get(owner) if owner else None, context.inventory)
    if owner is None:
        return _unowned(target, context, pause)
    held = Held(Veto.PAUSE, Reason.PAUSED, pause) if pause else None
    held = held or _kept_at_former_place(target) or _why_kept(owner, target.key, context)
    if held is not None:
        return _unwanted(target, owner, Op.KEEP, held.reason, held=held)
    if policy_at_end(owner, context) == ORPHAN and target.main_owner is not None:
        return _release(target, owner, context)
    if (
        policy_at_end(owner, context) == ORPHAN
        and target.package.main_tree is None
        and any(not is_rejected(target, draft) for draft in target.drafts if draft not in target.merged)
    ):
        # Nothing is there to be let go of: the draft stays a draft, under its own title (as in Porch).
        ways = "Merge its pull request to have the package without management, or close it"
        message = f"{_cause(target, owner, context)}. Nobody asks for it any more. {ways}"
        return _unwanted(target, owner, Op.KEEP, Reason.ORPHANED, message)
    return _delete(target, owner, context)


def _unwanted(
    target: PlanTarget,
    owner: ObjectName | None,
    op: Op,
    reason: Reason,
    message: Text = "",
    *,
    is_gone: bool = False,
    remaining: Oid | None = None,
    draft: WriteDraft | None = None,
    branches: tuple[Write, ...] = (),
    close: tuple[ClosePull, ...] = (),
    pull: PullRequest | None = None,
    repair: str = "",
    waits: bool = False,
    held: Held | None = None,
) -> Decision:
    """Return a decision about a package that no variant wants.

    `remaining` is the tree that stays where that is another one; nothing is where it `is_gone`.
    """
    tree = target.package.main_tree or (target.draft.tree if target.draft and owner else None)
    return Decision(
        target,
        op,
        reason,
        message,
        variant=owner,
        before=tree,
        tree=None if is_gone else remaining or tree,
        draft=draft,
        branches=branches,
        pull=pull,
        close=close,
        repair=repair,
        waits=waits,
        held=held,
    )


def _unowned(target: PlanTarget, context: PlanContext, pause: str) -> Decision:
    """A stranger's package is kept; of one that is gone, what proposed its deletion is cleared away."""
    leftovers = () if target.package.exists else tuple(withdraw_deletion(target, context))
    if not leftovers:
        return _unwanted(target, None, Op.KEEP, Reason.NOT_OURS)
    held = Held(Veto.PAUSE, Reason.PAUSED, pause) if pause else None
    ended = f"Nothing is left to delete: the package is not on {target.view.branch}."
    close = close_pulls(target, [write.ref for write in leftovers], ended)
    return _unwanted(
        target,
        None,
        Op.CLOSE,
        Reason.ALREADY_ABSENT,
        is_gone=True,
        branches=leftovers,
        close=close,
        held=held,
    )


def _kept_at_former_place(target: PlanTarget) -> Held | None:
    """Return why nothing is done at a former place, and what a person can do; None where it may be (D36)."""
    view, former = target.view, target.view.former
    if former is None:
        return None
    if not former.is_understood:
        return Held(Veto.OWNER, former.reason, former.message)
    if view.problem is None and target.is_aside:
        why = f"{former.message}, and the package is still on {view.branch}. Remove it there with git"
        return Held(Veto.OWNER, former.reason, why, waits=True)
    if view.problem is None:
        return None
    consent = f"write spec.consents: {{{place_consent(view)}: why}} in the configuration"
    why = f"{former.message}. {view.problem.message}. To forget that place, {consent}"
    return Held(Veto.OWNER, former.reason, why, waits=True)


def _unwanted_reason(target: PlanTarget, owner: ObjectName, context: PlanContext) -> Reason:
    """Return why a package is proposed for deletion: what happened to it, or to its place."""
    former = target.view.former
    if former is None:
        return Reason.NOT_DESIRED
    if owner in context.variants:
        return Reason.MOVED
    return Reason.PLACE_GONE if former.reason is Reason.PLACE_GONE else Reason.NOT_DESIRED


def _why_kept(owner: ObjectName, package: PackageKey, context: PlanContext) -> Held | None:
    """Return why there is no positive evidence that the owner let go; None if there is (D3)."""
    if is_uncertain(owner, context):
        cluster = cluster_of(owner)
        unknown = f"What cluster {cluster} needs is not known"
        why = unknown if cluster else f"PackageVariant {owner} is not understood"
        return Held(Veto.OWNER, Reason.OWNER_STALLED, why)
    if owner in context.variants:
        if owner in context.resolved:
            outdated = find_outdated(owner, package, context.inventory.control)
            return Held(Veto.OWNER, *outdated) if outdated else None
        if owner in context.staying:
            return Held(Veto.OWNER, Reason.AWAITING_WAVE, context.staying[owner])
        return Held(Veto.OWNER, Reason.OWNER_STALLED, f"PackageVariant {owner} cannot be resolved")
    change = context.gone.get(owner)
    if change is not None:
        is_gone = change.reason is Reason.NOT_DESIRED
        return None if is_gone else Held(Veto.OWNER, change.reason, change.message)
    message = f"No record of PackageVariant {owner}: nothing proves that it was deleted"
    return Held(Veto.OWNER, Reason.OWNER_UNKNOWN, message)


def _successor(owner: ObjectName, context: PlanContext) -> str:
    """Return the package in a rollout that takes this one's place in its cluster, until main has it.

    A set that calls its package something else leaves no cluster without it, nor does one with another name
    and the same upstream package.
    """
    record, inventory = context.inventory.records.get(owner), context.inventory
    view = inventory.repositories.get(ObjectName(owner.namespace, record.repository)) if record else None
    if record is None or view is None or not record.set_name:
        return ""
    pvs, upstream = ObjectName(owner.namespace, record.set_name), record.spec.get("upstream")
    rolling = {rollout.key.owner for rollout in context.resolution.rollouts}
    # Of several upstreams of one set, each goes for itself.
    listing = {pvs.key for pvs in inventory.sets if pvs.manifest.spec.upstreams is not None}
    is_renamed = was_renamed(record, inventory)
    for package, variants in sorted(context.downstreams.items()):
        target = context.targets.get(package)
        follows = any(
            variant.set_key in rolling
            and (
                (variant.set_key == pvs and pvs not in listing)
                or _is_same_upstream(variant, upstream, is_renamed=is_renamed)
            )
            for variant in variants
        )
        if follows and target and target.view.cluster == view.cluster and target.main_owner is None:
            return f"{target.view.key.name}/{package_name(target.view, package.path)}"
    return ""


def _is_same_upstream(variant: DesiredVariant, recorded: object, *, is_renamed: bool) -> bool:
    """Return whether a variant is made of a recorded upstream, or of one that may be its new name."""
    upstream = variant.spec.upstream
    if upstream is None or not isinstance(recorded, Mapping) or recorded.get("repo") != upstream.repo:
        return False
    return is_renamed or recorded.get("package") == upstream.package


def left_drafts(target: PlanTarget, context: PlanContext) -> tuple[Draft, ...]:
    """Return the drafts of variants that are gone, in a package that others want: with evidence alone."""
    wanting = {variant.key for variant in context.downstreams.get(target.key, ())}
    unwanted = []
    for draft in target.drafts:
        owner = find_owner(draft.header, target.key, context.inventory)
        obstacle = _why_kept(owner, target.key, context) if owner is not None else None
        # Another variant has the same downstream: that is evidence, too.
        is_gone = obstacle is None or obstacle.reason is Reason.OWNER_CHANGED
        if owner is not None and owner not in wanting and is_gone:
            unwanted.append(draft)
    return tuple(unwanted)


def _cause(target: PlanTarget, owner: ObjectName, context: PlanContext) -> Text:
    """Return what is gone that the package was made for, or where it is now."""
    former, inventory = target.view.former, context.inventory
    record = inventory.records.get(owner)
    if owner in context.variants:
        now = context.resolved.get(owner)
        if former and former.reason is Reason.MOVED and now and record and now.view.name == record.repository:
            return former.message
        downstream = context.variants[owner].spec.downstream
        place = f"{downstream.repo}/{downstream.package}" if downstream else "nowhere"
        if now is not None:
            place = location_text(inventory.repositories[now.view], now.downstream.path)
        moved = f"PackageVariant {owner} has another downstream now: {place}"
        return f"{former.message}, and {moved}" if former else moved
    gone: Text = context.gone[owner].message
    moved_to = context.moves.get(owner) if record is not None and not record.set_name else None
    # A set tells by itself what it makes there now.
    if moved_to is not None and (now := context.resolved.get(moved_to)) is not None:
        place = location_text(inventory.repositories[now.view], now.downstream.path)
        gone = f"{gone}. PackageVariant {moved_to} has its package now: {place}"
    if former is None or record is None:
        return gone
    repository = NamedObject("Repository", record.namespace, record.repository)
    return former.message if record.selected == repository else f"{gone}. {former.message}"


def _is_edited(target: PlanTarget, owner: ObjectName, context: PlanContext) -> bool:
    """Tell whether main has of a package what no run made of it."""
    record = context.inventory.records.get(owner)
    unedited = record.unedited if record is not None else None
    return unedited is not None and target.package.main_tree not in unedited


def kept_drafts(target: PlanTarget) -> Sequence[Draft]:
    """Return the drafts of a package with commits of people that main does not have.

    One with a closed pull request does not count: a person let it go, and its branch stays.
    """
    theirs = [draft for draft in target.drafts if draft.append_only and draft not in target.merged]
    return [draft for draft in theirs if not is_rejected(target, draft)]


def left_to_people(target: PlanTarget, drafts: Sequence[Draft]) -> str:
    """Return that people committed to drafts that no variant wants, and how each of them ends."""
    ways = []
    for draft in drafts:
        pull = newest_pull(target.pulls, draft.ref)
        is_open = pull is not None and pull.state is PullState.OPEN
        way = f"close pull request #{pull.number}" if pull is not None and is_open else "delete the branch"
        ways.append(f"remove {draft.path} from it with git" if draft.is_grouped else way)
    named = " and ".join(short_branch(draft.ref) for draft in drafts)
    return f"A person committed to {named}, which no variant wants: {' and '.join(ways)} to let it go"


def policy_at_end(owner: ObjectName, context: PlanContext) -> str:
    """Return what becomes of a package that its variant does not want any more."""
    desired = context.variants.get(owner)
    if desired is not None:
        return desired.spec.deletion_policy or "delete"
    return deletion_policy(context.inventory.records[owner], context.inventory)


def _delete(target: PlanTarget, owner: ObjectName, context: PlanContext) -> Decision:
    # What people committed to a draft that main has is not lost with its branch.
    theirs = [d for d in target.drafts if d.append_only and d not in target.merged]
    untouched = [d for d in target.drafts if d not in theirs]
    touched = kept_drafts(target)
    comment = SUPERSEDED if target.package.main_tree is not None else NEVER_PUBLISHED
    comment = f"{target.view.former.message}. {comment}" if target.view.former is not None else comment
    branches, waits = close_drafts(untouched), bool(touched)
    close = close_pulls(target, [d.ref for d in untouched], comment)
    if target.main_owner is not None and (awaited := _successor(owner, context)):
        why = f"It goes when {awaited}, which takes its place in a rollout, is published"
        held = Held(Veto.OWNER, Reason.AWAITING_WAVE, why)
        withdrawn = tuple(withdraw_deletion(target, context))
        # Left open without its branch, it would count as closed by a person.
        close = (*close, *close_pulls(target, [w.ref for w in withdrawn], "Its successor comes first."))
        branches = (*branches, *withdrawn)
        return _unwanted(
            target, owner, Op.KEEP, Reason.AWAITING_WAVE, branches=branches, close=close, held=held
        )
    if target.main_owner is not None:
        return _propose(target, owner, context, branches=branches, close=close, touched=touched)
    op, reason = Op.DELETE, _unwanted_reason(target, owner, context)
    message: Text = _cause(target, owner, context)
    if touched:
        op, reason, message = Op.KEEP, Reason.DRAFT_EDITED, left_to_people(target, touched)
    elif theirs:
        op, reason = Op.KEEP, Reason.REJECTED
        heads = " and ".join(short_branch(draft.ref) for draft in theirs)
        message = f"Its pull request was closed, and nothing wants it: delete {heads} when it is not needed"
    is_gone = op is Op.DELETE and target.package.main_tree is None
    return _unwanted(
        target, owner, op, reason, message, is_gone=is_gone, branches=branches, close=close, waits=waits
    )


def _propose(
    target: PlanTarget,
    owner: ObjectName,
    context: PlanContext,
    *,
    branches: tuple[Write, ...],
    close: tuple[ClosePull, ...],
    touched: Sequence[Draft],
) -> Decision:
    """Propose the deletion of a package on main: a branch that removes it, and a pull request."""
    view, path, deletion = target.view, target.package.path, target.package.deletion
    ref = deletion_ref(context.inventory.policy.instance, path)
    head = short_branch(ref)
    pull, standing = newest_pull(target.pulls, head), view.branches.get(head)
    is_open = pull is not None and pull.state is PullState.OPEN
    request = None if is_open else _request(target, head, "Delete")
    unwanted = partial(_unwanted, target, owner, branches=branches, close=close)
    waits, repair = bool(touched), ""
    message = _cause(target, owner, context)
    if _is_edited(target, owner, context):
        message = f"{message}. People may have edited the package, and their edits go with it"
    if touched:
        message = f"{message}. {left_to_people(target, touched)}"
    if (
        pull is not None
        and pull.state is PullState.CLOSED
        and (standing or _was_proposed(target, owner, context))
    ):
        return _declined(target, owner, context, pull, branches=branches, close=close, waits=waits)
    # Where main changed a proposal cannot be approved: its pull request does not list what it removes.
    has_changed = deletion is not None and deletion.base_tree != target.package.main_tree
    is_foreign = deletion is not None and deletion.has_foreign_commits
    if standing is not None and pull is not None and is_open and has_changed and is_foreign:
        message = (
            f"{path} changed on {view.branch} since its deletion was proposed, and a person committed to the "
            f"branch: merge {view.branch} into {head} with git, or close pull request #{pull.number}"
        )
        op = Op.DELETE if branches else Op.KEEP
        return unwanted(op, Reason.DELETION_PROPOSED, message, waits=True)
    if standing is not None and (is_foreign or not has_changed):
        op = Op.DELETE if request or branches else Op.KEEP
        return unwanted(op, Reason.DELETION_PROPOSED, message, pull=request, waits=waits)
    reason = _unwanted_reason(target, owner, context) if standing is None else Reason.DELETION_PROPOSED
    if view.head is None:
        return unwanted(Op.KEEP, reason, message, waits=waits)
    if standing is not None:
        repair = f"{path} changed on {view.branch}: its deletion is proposed anew, with that change"
    removal = WriteRemoval(
        ref=ref,
        expect=standing.oid if standing else None,
        onto=view.head.oid,
        path=path,
        message=f"Delete {path}\n",
        # The manifest is gone: the control commit, which removed it, is the newest input.
        time=max(target.before.control, view.head.time if standing else 0),
    )
    branches = (*branches, removal, *_porch_marker(target, context))
    return unwanted(
        Op.DELETE, reason, message, is_gone=True, branches=branches, pull=request, repair=repair, waits=waits
    )


def _declined(
    target: PlanTarget,
    owner: ObjectName,
    context: PlanContext,
    pull: PullRequest,
    *,
    branches: tuple[Write, ...],
    close: tuple[ClosePull, ...],
    waits: bool,
) -> Decision:
    """Keep a package after people declined its deletion; the branches of the proposal go."""
    message = (
        f"The pull request #{pull.number} of its deletion was closed. "
        f"Remove {target.package.path} from {target.view.branch} "
        "to delete it, or declare its variant again to keep it up to date"
    )
    branches = (*branches, *withdraw_deletion(target, context))
    held = Held(Veto.REJECTION, Reason.REJECTED, message, waits=waits)
    return _unwanted(
        target, owner, Op.KEEP, Reason.REJECTED, branches=branches, close=close, waits=waits, held=held
    )


def _was_proposed(target: PlanTarget, owner: ObjectName, context: PlanContext) -> bool:
    """Tell whether the last run recorded that the removal of a package is proposed at its place."""
    record = context.inventory.records.get(owner)
    proposed = [place for place in record.downstreams if place.deletion_proposed] if record else []
    targets = (find_place(place, context) for place in proposed)
    return any(proposal is not None and proposal.key == target.key for proposal in targets)


def _porch_marker(target: PlanTarget, context: PlanContext) -> Iterator[MoveRef]:
    """Yield the branch that tells Porch of the proposal, beside the latest tag.

    Branches of one repository share its tags: there it is the latest one with the content of the package.
    """
    views, package = context.inventory.views_of(target.view.url), target.package
    if any(view.branch != target.view.branch for view in views):
        equal = tuple(revision for revision in package.published if revision.tree == package.main_tree)
        package = replace(package, published=equal)
    latest = package.latest
    if latest is not None:
        ref = deletion_proposed_ref(target.package.path, latest.revision)
        if short_branch(ref) not in target.view.branches:
            yield MoveRef(ref, None, latest.commit.oid)


def _request(target: PlanTarget, head: str, verb: str) -> PullRequest:
    """Return the pull request of a branch that deletes a package or lets go of it."""
    pull = newest_pull(target.pulls, head)
    return PullRequest(
        head=head,
        base=target.view.branch,
        title=f"{verb} {package_name(target.view, target.package.path)}",
        body="",
        draft=False,
        number=pull.number if pull is not None and pull.state is PullState.OPEN else 0,
    )


def _release(target: PlanTarget, owner: ObjectName, context: PlanContext) -> Decision:
    """Let go of a package and keep its content: its annotations are dropped by a draft."""
    package, message = context.rendered.releases.get(target.key), _cause(target, owner, context)
    if not isinstance(package, Package):
        why = package.message if isinstance(package, Blocked) else "Its content was not read"
        held = Held(Veto.CONTENT, Reason.ORPHANED, why, Op.BLOCK, waits=True)
        return _unwanted(target, owner, Op.BLOCK, Reason.ORPHANED, why, waits=True, held=held)
    withdrawn = tuple(withdraw_deletion(target, context))
    close = close_pulls(target, [w.ref for w in withdrawn], "The package is kept after all.")
    is_drafted = any(draft.tree == package.tree for draft in target.package.drafts)
    write = None if is_drafted else _release_draft(target, package)
    return _unwanted(
        target,
        owner,
        Op.ORPHAN if withdrawn or write is not None else Op.KEEP,
        Reason.ORPHANED,
        message,
        remaining=package.tree,
        branches=withdrawn,
        draft=write,
        close=close,
        pull=_request(target, short_branch(write.ref), "Stop managing") if write is not None else None,
    )


def _release_draft(target: PlanTarget, package: Package) -> WriteDraft | None:
    view, path, draft = target.view, target.package.path, target.draft
    if view.head is None:
        return None
    workspace = draft.workspace if draft else next_workspace(target)
    latest = target.package.latest
    source = revision_name(view, path, latest.workspace if latest else view.branch)
    touched = draft is not None and draft.append_only
    time = max(target.before.control, draft.foreign_commit_time if draft and touched else 0)
    return write_draft(
        target,
        package,
        workspace,
        draft=draft,
        onto=draft.tip.oid if draft and touched else view.head.oid,
        message=commit_message(EDIT, path, workspace, edit_task(source)),
        time=time,
    )


def withdraw_deletion(target: PlanTarget, context: PlanContext) -> Iterator[MoveRef]:
    """Yield the removal of every proposal to delete a package."""
    for ref, oid in context.proposed_deletions.get(target.key, ()):
        yield MoveRef(ref, oid, None)


# The guard of packages that moved variants left behind


class GuardedPackages(NamedTuple):
    """Vetoes of refused deletions, with the refusals.

    `waiting` are the packages that wait for consent, each with the number of owned packages at the time of
    its first refusal.
    """

    vetoes: Mapping[PackageKey, Held]
    refusals: tuple[Refusal, ...]
    waiting: Mapping[PackageKey, int]


def guard_moved(context: PlanContext, changes: Iterable[Change]) -> GuardedPackages:
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
    vetoes = {change.package: Held(Veto.GUARD, Reason.DELETION_GUARD, message) for change in refused}
    waiting = {key: before.get(key, owned) for key in vetoes}
    begun = {change.package for change in moved if change.package not in vetoes}
    waiting |= {key: of for key, of in before.items() if key not in begun and _still_waits(key, context)}
    if vetoes:
        refusals.append(Refusal(Reason.DELETION_GUARD, message, consent_hint(consent), consent))
    return GuardedPackages(vetoes, tuple(refusals), waiting)


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
        return any(not view.is_available for view in context.inventory.views_of(package.url))
    return target.owner is not None and package not in context.downstreams
