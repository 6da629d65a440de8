"""The state of a package after its change: computed once, where all parts of the change are known (D37)."""

from collections.abc import Mapping

from msgspec.structs import replace

from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import join_texts
from reconciler.inventory.inventory import Draft, PullRequests, PullState
from reconciler.names.refs import DRAFTS, PROPOSED, short_branch
from reconciler.plan.changes import (
    After,
    Change,
    Op,
    Unfinished,
    WaitsFor,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.context import PlanTarget, by_weight
from reconciler.plan.texts import asked_text, missing_text
from reconciler.resolve.ownership import package_name

_WAITING_HELD: Mapping[str, WaitsFor] = {
    Reason.AWAITING_WAVE: WaitsFor.WAVE,
    Reason.ROLLED_BACK: WaitsFor.WAVE,
    Reason.CHECKOUT_OUTDATED: WaitsFor.NEXT_RUN,
    Reason.MANIFEST_UNREADABLE: WaitsFor.MANIFEST,
    Reason.REMOVAL_UNPROVEN: WaitsFor.CORRECTION,
    Reason.STILL_NEEDED: WaitsFor.DEPENDENTS,
}
_WAITING: Mapping[Phase | None, WaitsFor] = {
    Phase.CONFLICT: WaitsFor.ANSWER,
    Phase.NOT_READY: WaitsFor.CORRECTION,
    Phase.PAUSED: WaitsFor.UNPAUSE,
    Phase.STALLED: WaitsFor.MANIFEST,
}
_SCHEDULED = frozenset((str(Reason.AWAITING_SCHEDULE), str(Reason.RATE_LIMITED)))


def with_after(change: Change, target: PlanTarget) -> Change:
    """Return the change with the state that all its effects leave."""
    return replace(change, after=_state(change, target, None))


def undone(change: Change, target: PlanTarget, missing: Unfinished) -> After:
    """Return the state that a change leaves of which some effect was not done."""
    return _state(change, target, missing)


def _state(change: Change, target: PlanTarget, missing: Unfinished | None) -> After:
    draft = _open_draft(change, target)
    head, has_draft = _head(change, target, draft, missing)
    word = _pending(change, missing) or _obstructed(change, target) or _settled(change, target, head)
    state = replace(word, head=head, has_draft=has_draft)
    if state.phase is None or change.variant is None:
        return replace(state, phase=None)
    pulls, waits_for = PullRequests.of(target.pulls), _waits_for(state, change, target)
    if state.phase is Phase.REJECTED:
        # A draft that is gone is remembered by its pull request.
        is_deletion = target.main_owner is not None and not target.before.is_wanted
        path = f"{DRAFTS}{target.package.path}/"
        refused = pulls.at(target.before.deletion) if is_deletion else pulls.below(path)
        there = pulls.at(head) if head else ()
        pull = max(there or refused, key=by_weight, default=None)
        if pull is not None and (there or pull.state is PullState.CLOSED):
            state = replace(state, head=pull.head, since=pull.closed)
    since = state.since or _recorded_time(state, target) or _time(state.phase, change, target, head)
    revision = _revision(change, target, draft, head, missing)
    return replace(state, waits_for=waits_for, since=since, revision=revision)


def first_head(head: str) -> str:
    """Return a head as it was first called: proposing it for review moves the branch, not the request."""
    proposed = head.startswith(PROPOSED)
    return f"{DRAFTS}{head.removeprefix(PROPOSED)}" if proposed else head


def _open_draft(change: Change, target: PlanTarget) -> Draft | None:
    """Return the draft of the package; one that lets it go is ours without naming us any more.

    A draft that has nothing to propose may be left on the branch of a closed group, which others need.
    """
    if change.op is Op.KEEP and change.reason is Reason.DRAFT_SUPERSEDED:
        return None
    if target.draft is not None or change.reason is not Reason.ORPHANED:
        return target.draft
    return next(iter(target.package.drafts), None)


def _head(
    change: Change, target: PlanTarget, draft: Draft | None, missing: Unfinished | None
) -> tuple[str, bool]:
    """Return the branch that waits for people, "" for none, and whether there is a draft."""
    branch = short_branch(draft.ref) if draft else ""
    standing = "" if target.before.is_wanted else target.standing_deletion
    if missing is not None and not missing.pushed:
        return standing or branch, draft is not None
    if change.is_merged and missing is None:
        return "", False
    made = (w for w in change.writes if isinstance(w, WriteDraft | WriteRemoval))
    groups = {write.ref for write in change.writes if isinstance(write, WriteGroup)}
    gone = {short_branch(ref) for ref in groups | change.removed}
    there = [name for name in (standing, branch) if name and name not in gone]
    head = change.group or next((short_branch(write.ref) for write in made), "") or next(iter(there), "")
    return head, change.written is not None or branch in there


def _pending(change: Change, missing: Unfinished | None) -> After | None:
    if missing is not None:
        return After(Phase.PENDING, why=missing_text(change, missing))
    if change.postponed is not None:
        return After(Phase.PENDING, str(change.postponed.reason), change.postponed.message)
    return None


def _obstructed(change: Change, target: PlanTarget) -> After | None:
    """Return the phase of a package that cannot proceed, with the reason; None if nothing holds it."""
    reason, phase = str(change.reason), change.reason.facts.phase
    if any(isinstance(write, WriteRemoval) for write in change.writes):
        reason = str(Reason.DELETION_PROPOSED)  # as the next run finds it
    if change.op is Op.BLOCK:
        phase = phase or Phase.STALLED
    if phase is Phase.STALLED and not target.before.is_stalled:
        # Obstacles of a valid variant, such as a package that is not ours, are no fault of its manifest.
        phase = Phase.HELD_BACK
    is_kept = change.written is None and phase is not Phase.CONFLICT
    if phase is not None and (is_kept or change.op is Op.BLOCK):
        return After(phase, reason, change.message)
    if change.conflicts:
        return After(Phase.CONFLICT, str(Reason.MERGE_CONFLICT), asked_text(change.conflicts))
    if change.unready:
        cause = Reason.PIPELINE_FAILED if change.failed else Reason.NOT_READY
        return After(Phase.NOT_READY, str(cause), join_texts("; ", change.unready))
    return After(Phase.HELD_BACK, reason, change.message) if change.waits else None


def _settled(change: Change, target: PlanTarget, head: str) -> After:
    """Return what is in review, a deletion for example, or what holds its merge; else what is published."""
    before = target.before
    if not head:
        is_published = target.package.main_tree is not None or change.is_merged
        return After(Phase.PUBLISHED) if is_published else After()
    if change.variant is not None and before.stopped:
        return After(Phase.IN_REVIEW, str(Reason.AWAITING_WAVE), before.stopped)
    if change.reason is Reason.AWAITING_CHECKS:
        return After(Phase.IN_REVIEW, str(change.reason), change.message)
    if before.is_wanted:
        return After(Phase.IN_REVIEW)
    reason = Reason.ORPHANED if change.reason is Reason.ORPHANED else Reason.DELETION_PROPOSED
    return After(Phase.IN_REVIEW, str(reason), change.message)


def _waits_for(state: After, change: Change, target: PlanTarget) -> WaitsFor:
    """Return what the next step comes from; a change that `waits` never goes without a decision."""
    if state.phase is Phase.IN_REVIEW:
        if target.before.stopped or state.reason == Reason.AWAITING_WAVE:
            return WaitsFor.WAVE
        return WaitsFor.CHECKS if state.reason == Reason.AWAITING_CHECKS else WaitsFor.REVIEW
    if state.phase is Phase.PENDING:
        return WaitsFor.SCHEDULE if state.reason in _SCHEDULED else WaitsFor.NEXT_RUN
    if state.phase is Phase.HELD_BACK:
        return _WAITING_HELD.get(state.reason, WaitsFor.DECISION)
    if change.waits and state.phase not in {Phase.CONFLICT, Phase.NOT_READY}:
        return WaitsFor.DECISION
    return _WAITING.get(state.phase, WaitsFor.NOBODY)


def _recorded_time(state: After, target: PlanTarget) -> int:
    """Return the recorded time if the phase and the branch are the same, else 0."""
    recorded = target.before.recorded
    if recorded is None or state.phase is Phase.PUBLISHED:
        return 0
    return recorded.since if (recorded.phase, recorded.head) == (state.phase, first_head(state.head)) else 0


def _time(phase: Phase | None, change: Change, target: PlanTarget, head: str) -> int:
    """Return the time of the newest input that brought the package there, in seconds."""
    if phase is Phase.PUBLISHED:
        return _published_time(change, target)
    has_obstacle = change.op is Op.BLOCK or change.reason.facts.phase is Phase.STALLED
    if phase in {Phase.STALLED, Phase.PAUSED} or (phase is Phase.HELD_BACK and has_obstacle):
        return target.before.manifest
    written = [w.time for w in change.writes if isinstance(w, WriteDraft | WriteGroup | WriteRemoval)]
    if written:
        return max(written)
    if target.draft is not None:
        return target.draft.tip.time
    standing = target.view.branches.get(head)
    return standing.time if standing else target.before.control


def _published_time(change: Change, target: PlanTarget) -> int:
    package, head = target.package, target.view.head
    newest = head.time if head else 0
    if change.is_merged and target.draft is not None:
        return max(newest, target.draft.tip.time)
    times = [state.commit.time for state in package.published if state.tree == package.main_tree]
    times += [state.commit.time for state in package.unpublished if state.tree == package.main_tree]
    return max(times, default=newest)


def _revision(
    change: Change, target: PlanTarget, draft: Draft | None, head: str, missing: Unfinished | None
) -> str:
    """Return the name of the PackageRevision as Porch composes it; the branch of a group is none to Porch."""
    pushed = missing is None or missing.pushed
    written = next((w for w in change.writes if isinstance(w, WriteDraft)), None) if pushed else None
    revisions = (*target.package.published, *(target.before.publications if pushed else ()))
    latest = max((r for r in revisions if r.revision > 0), key=lambda r: r.revision, default=None)
    workspace = latest.workspace if latest else ""
    if written is not None:
        workspace = written.ref.rpartition("/")[2]
    elif draft is not None and not draft.is_grouped:
        workspace = draft.workspace if change.is_merged or head == short_branch(draft.ref) else workspace
    name = package_name(target.view, change.package.path).replace("/", ".")
    return f"{target.view.key.name}.{name}.{workspace}" if workspace else ""
