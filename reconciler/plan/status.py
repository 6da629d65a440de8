"""Status of every package: its phase, age and pull request, and the files of the status branch (D23)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.meta import Condition
from reconciler.api.porch import GROUP
from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import Text, join_texts
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import Draft, PullRequest, PullRequests, PullState, RepositoryRole
from reconciler.names.ids import ObjectKey, ObjectName, PackageKey
from reconciler.names.refs import DRAFTS, PROPOSED, deletion_ref, short_branch
from reconciler.plan.changes import (
    Change,
    Op,
    Outcome,
    Plan,
    Unfinished,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.conditions import missing_text, plan_conditions
from reconciler.plan.context import PlanContext, PlanTarget, by_weight, newest_pull
from reconciler.plan.deletion_evidence import claimed_packages
from reconciler.plan.draft_decision import asked_text
from reconciler.plan.losses import Loss, loss_value
from reconciler.resolve.ownership import find_view, package_name

Opened = Mapping[tuple[str, str], PullRequest]
"""The pull requests that a run opened or updated, by URL and head."""


class PackageStatus(Struct, frozen=True):
    """Status of one package.

    `since` is a committer time in seconds, never the clock: that of the commit that brought the
    package there, or what the last run recorded for the same phase and branch; 0 is unknown. `head`
    is the branch that waits, `revision` the PackageRevision as Porch calls it, "" for none. `is_dated`
    tells that the forge has the time: a recorded time does not count then. `losses` are the objects that go
    when its proposal is merged.
    """

    phase: Phase
    variant: ObjectName | None = None
    package: PackageKey | None = None
    repository: ObjectName | None = None
    name: str = ""
    since: int = 0
    head: str = ""
    pull: int = 0
    url: str = ""
    reason: str = ""
    message: Text = ""
    revision: str = ""
    is_dated: bool = False
    losses: tuple[Loss, ...] = ()


class _Word(NamedTuple):
    phase: Phase
    reason: str = ""
    message: Text = ""


def package_statuses(
    context: PlanContext,
    changes: Iterable[Change],
    unfinished: Mapping[PackageKey, Unfinished],
    opened: Opened | None = None,
) -> Iterator[PackageStatus]:
    """Yield the status of every owned package after the effects, and of every variant without a package.

    Pure and order-free. A package that is gone, or that this instance does not own, has no status.

    Args:
        context: Input of planning.
        changes: The changes of the plan.
        unfinished: The packages of which some effect is missing; all others have all of theirs.
        opened: The pull requests that the run opened.
    """
    listed: set[ObjectName] = set()
    for change in changes:
        target, missing = context.targets.get(change.package), unfinished.get(change.package)
        # What no stage may look at has a change, and no target.
        status = _status(change, target, context, missing, opened or {}) if target is not None else None
        if status is not None:
            # Where a variant leaves, its package says nothing about the one that it wants.
            listed |= {v.key for v in context.downstreams.get(change.package, ()) if v.key == status.variant}
            yield _with_record(status, context)
    placed = {v.key for variants in context.downstreams.values() for v in variants}
    for variant in context.desired.variants:
        if variant.key in listed:
            continue
        view = find_view(variant, context.inventory)
        # Of a skipped repository another shard tells.
        if view is None or view.role is not RepositoryRole.SKIPPED:
            yield _with_record(_unplaced(variant, context, placed=variant.key in placed), context)


def _unplaced(variant: DesiredVariant, context: PlanContext, *, placed: bool) -> PackageStatus:
    """Return the status of a variant without a change of its own: contested, or of an unread repository."""
    problem = next((p for p in context.resolution.problems if p.owner == variant.owner), None)
    reason = str(problem.reason) if problem else str(Reason.DUPLICATE_DOWNSTREAM if placed else "Error")
    message = problem.message if problem else ""
    phase = Phase.HELD_BACK if placed and not problem else Phase.STALLED
    status = PackageStatus(phase, variant.key, since=variant.source.time, reason=reason, message=message)
    downstream = variant.spec.downstream
    view = find_view(variant, context.inventory)
    if view is not None and not view.is_available:
        # Its manifest is as old as it is: it stalls since a run first saw that it cannot be reached.
        status = replace(status, since=context.inventory.now or context.inventory.control.commit.time)
    if phase is Phase.HELD_BACK or downstream is None or not downstream.repo or not downstream.package:
        return status
    # Of a repository that was not read only the names are known.
    return replace(
        status, repository=ObjectName(variant.key.namespace, downstream.repo), name=downstream.package
    )


def _status(
    change: Change, target: PlanTarget, context: PlanContext, missing: Unfinished | None, opened: Opened
) -> PackageStatus | None:
    head = _head(change, target, context, missing)
    word = _word(change, target, context, missing, head)
    if change.variant is None or word is None:
        return None
    pull = opened.get((target.key.url, head)) or newest_pull(target.pulls, head) if head else None
    if pull is None and word.phase is Phase.REJECTED:
        pulls, prefix = PullRequests.of(target.pulls), f"{DRAFTS}{target.package.path}/"
        deletion = short_branch(deletion_ref(context.inventory.policy.instance, target.package.path))
        is_deletion = target.main_owner is not None and target.key not in context.downstreams
        refused = pulls.at(deletion) if is_deletion else pulls.below(prefix)
        newest = max(refused, key=by_weight, default=None)
        pull = newest if newest is not None and newest.state is PullState.CLOSED else None
    refused_at = pull.closed if pull and word.phase is Phase.REJECTED else 0
    name = package_name(target.view, change.package.path)
    workspace = _workspace(change, target, context, missing, head)
    return PackageStatus(
        phase=word.phase,
        variant=change.variant,
        package=change.package,
        repository=change.repository,
        name=name,
        since=refused_at or _since(word.phase, change, target, context, head),
        is_dated=bool(refused_at),
        head=_as_draft(pull.head if pull else head),
        pull=pull.number if pull else 0,
        url=pull.url if pull else "",
        reason=word.reason,
        message=join_texts("; ", (word.message, *(f"loss: {loss.text}" for loss in change.losses))),
        losses=change.losses,
        # As Porch composes the name of the PackageRevision.
        revision=f"{target.view.key.name}.{name.replace('/', '.')}.{workspace}" if workspace else "",
    )


def _word(
    change: Change, target: PlanTarget, context: PlanContext, missing: Unfinished | None, head: str
) -> _Word | None:
    """Return the phase with why; None if nothing of the package is left."""
    if missing is not None:
        return _Word(Phase.PENDING, "", missing_text(change, missing))
    if change.postponed is not None:
        return _Word(Phase.PENDING, str(change.postponed.reason), change.postponed.message)
    return _obstructed(change, context) or _settled(change, target, context, head)


def _obstructed(change: Change, context: PlanContext) -> _Word | None:
    """Return the phase of a package that cannot proceed, with the reason; None if nothing holds it."""
    reason, phase = str(change.reason), change.reason.facts.phase
    if any(isinstance(write, WriteRemoval) for write in change.writes):
        reason = str(Reason.DELETION_PROPOSED)  # as the next run finds it
    if change.op is Op.BLOCK:
        phase = phase or Phase.STALLED
    if phase is Phase.STALLED and not _is_stalled(change, context):
        phase = Phase.HELD_BACK
    is_kept = change.written is None and phase is not Phase.CONFLICT
    if phase is not None and (is_kept or change.op is Op.BLOCK):
        return _Word(phase, reason, change.message)
    if change.conflicts:
        return _Word(Phase.CONFLICT, str(Reason.MERGE_CONFLICT), asked_text(change.conflicts))
    if change.unready:
        cause = Reason.PIPELINE_FAILED if change.failed else Reason.NOT_READY
        return _Word(Phase.NOT_READY, str(cause), join_texts("; ", change.unready))
    return _Word(Phase.HELD_BACK, reason, change.message) if change.waits else None


def _is_stalled(change: Change, context: PlanContext) -> bool:
    """Tell whether the owner's condition Stalled is True: its manifest, upstream or downstream is wrong.

    Obstacles of a valid variant, such as a package that is not ours, are no fault of its manifest (Porch).
    """
    variant = context.variants.get(change.variant) if change.variant else None
    return variant is None or any(p.owner == variant.owner for p in context.resolution.problems)


def _settled(change: Change, target: PlanTarget, context: PlanContext, head: str) -> _Word | None:
    if head:
        return _Word(Phase.IN_REVIEW, *_review(change, target, context))
    if target.package.main_tree is not None or change.is_merged:
        return _Word(Phase.PUBLISHED)
    return None


def _review(change: Change, target: PlanTarget, context: PlanContext) -> tuple[str, Text]:
    """Return what is reviewed where it is no content, a deletion for example, or what holds its merge."""
    if change.variant is not None and change.variant in context.stopped:
        return str(Reason.AWAITING_WAVE), context.stopped[change.variant]
    if change.reason is Reason.AWAITING_CHECKS:
        return str(change.reason), change.message
    if target.key in context.downstreams:
        return "", ""
    if change.reason is Reason.ORPHANED:
        return str(Reason.ORPHANED), change.message
    return str(Reason.DELETION_PROPOSED), change.message


def _head(change: Change, target: PlanTarget, context: PlanContext, missing: Unfinished | None) -> str:
    """Return the branch that waits for people after the effects, "" for none."""
    branch = _draft(change, target)
    draft = short_branch(branch.ref) if branch else ""
    standing = "" if target.key in context.downstreams else _proposal(target, context)
    if missing is not None and not missing.pushed:
        return standing or draft
    if change.is_merged and missing is None:
        return ""
    if change.group:
        return change.group
    for write in change.writes:
        if isinstance(write, WriteDraft | WriteRemoval):
            return short_branch(write.ref)
    if not (draft or standing):
        return ""
    group_refs = {w.ref for w in change.writes if isinstance(w, WriteGroup)}
    gone = {short_branch(ref) for ref in group_refs | change.removed}
    return next((name for name in (standing, draft) if name and name not in gone), "")


def _proposal(target: PlanTarget, context: PlanContext) -> str:
    """Return the branch that proposes to delete the package, "" if there is none."""
    proposal = short_branch(deletion_ref(context.inventory.policy.instance, target.package.path))
    return proposal if proposal in target.view.branches and not target.is_aside else ""


def _as_draft(head: str) -> str:
    """Return a head as it was first called: proposing it for review moves the branch, not the request."""
    proposed = head.startswith(PROPOSED)
    return f"{DRAFTS}{head.removeprefix(PROPOSED)}" if proposed else head


def _draft(change: Change, target: PlanTarget) -> Draft | None:
    """Return the draft of the package; one that lets it go is ours without naming us any more.

    A draft that has nothing to propose may be left on the branch of a closed group, which others need.
    """
    if change.op is Op.KEEP and change.reason is Reason.DRAFT_SUPERSEDED:
        return None
    if target.draft is not None or change.reason is not Reason.ORPHANED:
        return target.draft
    return next(iter(target.package.drafts), None)


def _since(phase: Phase, change: Change, target: PlanTarget, context: PlanContext, head: str) -> int:
    """Return the time of the newest input that brought the package there, in seconds."""
    if phase is Phase.PUBLISHED:
        return _published_time(change, target)
    inventory = context.inventory
    variant = context.variants.get(change.variant) if change.variant else None
    has_obstacle = change.op is Op.BLOCK or change.reason.facts.phase is Phase.STALLED
    if phase in {Phase.STALLED, Phase.PAUSED} or (phase is Phase.HELD_BACK and has_obstacle):
        return variant.source.time if variant else inventory.control.commit.time
    written = [w.time for w in change.writes if isinstance(w, WriteDraft | WriteGroup | WriteRemoval)]
    if written:
        return max(written)
    if target.draft is not None:
        return target.draft.tip.time
    standing = target.view.branches.get(head)
    return standing.time if standing else inventory.control.commit.time


def _published_time(change: Change, target: PlanTarget) -> int:
    package, head = target.package, target.view.head
    newest = head.time if head else 0
    if change.is_merged and target.draft is not None:
        return max(newest, target.draft.tip.time)
    times = [state.commit.time for state in package.published if state.tree == package.main_tree]
    times += [state.commit.time for state in package.unpublished if state.tree == package.main_tree]
    return max(times, default=newest)


def _workspace(
    change: Change, target: PlanTarget, context: PlanContext, missing: Unfinished | None, head: str
) -> str:
    """Return the workspace of the PackageRevision that the variant is about, "" for none.

    The branch of a group is none to Porch.
    """
    draft = _draft(change, target)
    draft = draft if draft is not None and not draft.is_grouped else None
    pushed = missing is None or missing.pushed
    written = next((w for w in change.writes if isinstance(w, WriteDraft)), None) if pushed else None
    if written is not None:
        return written.ref.rpartition("/")[2]
    if draft is not None and (change.is_merged or head == short_branch(draft.ref)):
        return draft.workspace
    made = context.resolution.publications.get(target.key, ()) if pushed else ()
    numbered = [r for r in (*target.package.published, *made) if r.revision > 0]
    latest = max(numbered, key=lambda r: r.revision, default=None)
    return latest.workspace if latest else ""


def _with_record(status: PackageStatus, context: PlanContext) -> PackageStatus:
    """Keep the recorded time if the phase and the branch are the same."""
    if status.variant is None or status.phase is Phase.PUBLISHED or status.is_dated:
        return status
    recorded = context.inventory.statuses.get(status.variant)
    if recorded is None or (recorded.phase, recorded.head) != (status.phase, status.head):
        return status
    return replace(status, since=recorded.since) if recorded.since else status


DIRECTORY = "conditions"


def status_after(
    plan: Plan, unfinished: Mapping[PackageKey, Unfinished], opened: Opened | None = None
) -> dict[str, bytes]:
    """Return the files of the status branch as a run leaves them. Pure.

    Args:
        plan: What the run was to do.
        unfinished: The packages of which some effect is missing, and why.
        opened: The pull requests that the run opened or updated.
    """
    if plan.context is None:
        return dict(plan.status)
    # Where every effect was done, the conditions are those that the plan expects.
    expected = plan.conditions if not unfinished else {}
    conditions = expected or plan_conditions(plan.context, plan.changes, unfinished)
    statuses = statuses_after(plan, unfinished, opened)
    others = plan.status if plan.other_status is None else plan.other_status
    return {**others, **plan_status(plan.context, conditions, statuses)}


def statuses_after(
    plan: Plan, unfinished: Mapping[PackageKey, Unfinished], opened: Opened | None = None
) -> tuple[PackageStatus, ...]:
    """Return the status of every owned package after a run, sorted. Pure."""
    if plan.context is None:
        return ()
    statuses = package_statuses(plan.context, plan.changes, unfinished, opened)
    return tuple(sorted(statuses, key=lambda s: (s.variant or ("", ""), s.package or ("", ""))))


def current_status(plan: Plan) -> dict[str, bytes]:
    """Return the files of the status branch as the world is now, before any effect of the plan.

    Of an effect that failed in the last run and is still to be done, its words are kept.
    """
    return status_after(plan, _nothing_done(plan))


def current_states(plan: Plan) -> dict[PackageKey, PackageStatus]:
    """Return the status of every owned package before any effect of the plan, by package."""
    if plan.context is None:
        return {}
    statuses = package_statuses(plan.context, plan.changes, _nothing_done(plan))
    return {status.package: status for status in statuses if status.package}


def current_statuses(plan: Plan, outcome: Outcome | None = None) -> tuple[PackageStatus, ...]:
    """Return the status of every owned package before any effect of the plan or after its outcome, sorted."""
    if outcome is None:
        return statuses_after(plan, _nothing_done(plan))
    return statuses_after(plan, outcome.unfinished, outcome.opened)


def _nothing_done(plan: Plan) -> dict[PackageKey, Unfinished]:
    recorded = plan.context.inventory.statuses if plan.context else {}
    unfinished = {}
    for change in plan.changes:
        if change.pending:
            last = recorded.get(change.variant) if change.variant else None
            # What was postponed then is told by its reason, and may be due now.
            was_pending = last is not None and last.phase == Phase.PENDING and not last.reason
            unfinished[change.package] = Unfinished(
                last.message if last and was_pending else "", is_left=True
            )
    return unfinished


def plan_status(
    context: PlanContext,
    conditions: Mapping[ObjectKey, tuple[Condition, ...]],
    statuses: Iterable[PackageStatus] = (),
) -> dict[str, bytes]:
    """Return the files of the status branch: what became of each owner and its package.

    A variant that is gone is listed while anything of it is left.
    """
    variants = {v.key: v for v in context.desired.variants}
    # A variant that moved has a package where it leaves, too: what is known of its downstream comes last.
    ordered = sorted(statuses, key=lambda s: s.package is None or s.package in context.downstreams)
    packages = {ObjectKey(GROUP, "PackageVariant", *s.variant): s for s in ordered if s.variant}
    files = {}
    for key in sorted({*conditions, *packages}):
        own_conditions = conditions.get(key, ())
        value: dict[str, object] = {
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "conditions": [condition.model_dump(exclude_none=True) for condition in own_conditions],
        }
        variant = variants.get(ObjectName(key.namespace, key.name))
        if key.kind == "PackageVariant" and variant is not None:
            value["labels"] = variant.spec.labels or {}
            value["annotations"] = variant.spec.annotations or {}
        if key in packages:
            status = packages[key]
            # Checks and other packages go on without us: recorded, they would make every run write.
            is_lasting = status.reason != Reason.AWAITING_CHECKS
            value["package"] = status_value(status if is_lasting else replace(status, reason="", message=""))
            value["downstreamTargets"] = [{"name": status.revision}] if status.revision else []
        options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        files[_path(key)] = orjson.dumps(value, option=options)
    return files


def status_value(status: PackageStatus) -> dict[str, object]:
    """Return the status of a package as a JSON value."""
    since = datetime.fromtimestamp(status.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if status.since else None
    return {
        "phase": str(status.phase),
        "since": since,
        "repository": status.repository.name if status.repository else "",
        "name": status.name,
        "head": status.head,
        "pullRequest": {"number": status.pull, "url": status.url} if status.pull else None,
        "reason": status.reason,
        "message": status.message,
        **({"losses": [loss_value(loss) for loss in status.losses]} if status.losses else {}),
    }


def status_owners(context: PlanContext, changes: Iterable[Change]) -> dict[str, PackageKey]:
    """Return the package that each file about a variant is about, also after the variant left."""
    return dict(_owners(context, changes))


def _owners(context: PlanContext, changes: Iterable[Change]) -> Iterator[tuple[str, PackageKey]]:
    inventory = context.inventory
    for key, status in inventory.statuses.items():
        if view := inventory.repositories.get(ObjectName(key.namespace, status.repository)):
            yield _path(ObjectKey(GROUP, "PackageVariant", *key)), PackageKey(view.url, "")
    for package, key in claimed_packages(context.stalled, inventory).items():
        yield _path(ObjectKey(GROUP, "PackageVariant", *key)), package
    for record in inventory.records.values():
        yield _path(ObjectKey(GROUP, "PackageVariant", *record.key)), PackageKey(record.url, record.path)
    for change in changes:
        if change.variant is not None:
            yield _path(ObjectKey(GROUP, "PackageVariant", *change.variant)), change.package
    # Last: a variant that moved is told of where it goes, not where it leaves.
    for package, variants in context.downstreams.items():
        yield from ((_path(ObjectKey(GROUP, "PackageVariant", *v.key)), package) for v in variants)


def _path(key: ObjectKey) -> str:
    return f"{DIRECTORY}/{key.kind.lower()}s/{key.namespace}/{key.name}.json"
