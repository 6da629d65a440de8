"""Decide what happens to the draft of a rendered package: keep, publish, write, update, close or block."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.wording import plural, verb
from reconciler.expand.variants import spec_data
from reconciler.inventory.inventory import Draft, PullRequest, PullState
from reconciler.names.refs import draft_ref
from reconciler.plan.changes import AnswerNote, Change, ConflictNote, Op
from reconciler.plan.commits import start_branch
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.plan.drafts import (
    close_drafts,
    close_pulls,
    draft_message,
    is_behind,
    is_proposed,
    is_rejected,
    next_workspace,
    wanted_pull,
    write_draft,
)
from reconciler.plan.rejection import closed_text, find_rejection, retry_text
from reconciler.records.state import PackageVariantRecord, functions_failed, is_failure
from reconciler.render.answers import Answer
from reconciler.render.conflicts import (
    answered_conflict,
    open_conflict,
    recorded_answers,
    recorded_conflicts,
)
from reconciler.render.rendered import Blocked, Package, RenderedVariant
from reconciler.render.update import Conflict
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.resolution import Pin, ResolvedVariant
from reconciler.resolve.rollout_records import is_asked_again


class Case(Struct, frozen=True):
    """One resolved variant and its package; `op` is what a change of content would be called."""

    target: PlanTarget
    resolved: ResolvedVariant
    rendered: RenderedVariant
    context: PlanContext
    op: Op

    @property
    def record(self) -> PackageVariantRecord | None:
        """The record of the last run for the variant."""
        return self.context.inventory.records.get(self.resolved.variant.key)

    @property
    def is_asked_again(self) -> bool:
        """Whether a person asks for what was rejected: by the retry annotation, or on the dashboard."""
        fresh, draft = self.rendered.fresh, self.target.draft
        trees = (fresh.tree if isinstance(fresh, Package) else None, draft.tree if draft else None)
        return is_asked_again(self.resolved.variant, self.target.key, trees, self.context.inventory)


def decide_output(case: Case, change: Change) -> Change:
    """Return the change that brings the rendered package where people can review it. Total."""
    fresh = case.rendered.fresh
    if case.resolved.moved:
        message = case.resolved.moved
        return replace(change, op=Op.KEEP, reason=Reason.UPSTREAM_TAG_MOVED, message=message, waits=True)
    if isinstance(fresh, Blocked):
        return _blocked(change, fresh.reason, fresh.message, fresh.conflicts)
    draft = case.target.draft
    shown = case.rendered.merged if draft and draft.append_only else None
    change = replace(
        change,
        after=fresh.tree,
        ready=is_proposed(draft) and (shown if isinstance(shown, Package) else fresh).ready,
        unready=shown.unready if isinstance(shown, Package) else fresh.unready,
        warnings=fresh.warnings,
    )
    if fresh.tree == case.target.package.main_tree:
        settled = _unanswered(case, change, fresh.conflicts)
        return _obsolete_draft(case, settled, draft) if draft else settled
    if draft is None:
        return _new_draft(case, change, fresh)
    return _open_draft(case, change, draft, fresh)


def _open_draft(case: Case, change: Change, draft: Draft, fresh: Package) -> Change:
    """Bring an open draft up to date, or find that it is."""
    if draft.append_only:
        return _touched_draft(case, change, draft, fresh)
    if draft.tree == fresh.tree and _is_outdated(case, draft):
        return _renewed(case, change, draft, fresh)
    if draft.tree == fresh.tree:
        return _standing_draft(case, change, draft, fresh)
    if _is_better(case, draft, fresh):
        return _kept_draft(case, change, draft, fresh)
    return _written(case, change, draft, fresh)


def _is_better(case: Case, draft: Draft, package: Package) -> bool:
    """Whether a draft went through its functions, and what would take its place did not (ADR 9)."""
    if package.is_rendered:
        return False
    record = case.record
    is_ours = record is not None and record.output_tree == draft.written
    return not (is_ours and record is not None and functions_failed(record.unready))


def _kept_draft(case: Case, change: Change, draft: Draft, package: Package) -> Change:
    """Keep a good draft while the functions of what would take its place fail; they are tried every run."""
    record = case.record
    failure = next(filter(is_failure, package.unready), "")
    change = replace(change, unready=record.unready if record else ())
    standing = Package(draft.tree, conflicts=recorded_conflicts(record), answers=_recorded(record))
    change = _standing_draft(case, change, draft, standing)
    message = f"{failure}; the draft stays as it was"
    return replace(change, reason=Reason.PIPELINE_FAILED, message=message, ready=False)


def _new_draft(case: Case, change: Change, package: Package) -> Change:
    view = case.target.view
    start = () if view.head else tuple(start_branch(view, case.context.inventory))
    onto = view.head.oid if view.head else start[0].oid if start else None
    if onto is None:
        message = f"Branch {view.branch} of repository {view.key} does not exist"
        return _blocked(change, Reason.BRANCH_NOT_FOUND, message, ())
    target, resolved = case.target, case.resolved
    rejected = find_rejection(target, resolved, case.record, package.tree)
    if rejected and not case.is_asked_again:
        return _rejected(case, replace(change, op=Op.KEEP), rejected)
    workspace = next_workspace(target)
    write = write_draft(
        target,
        package,
        workspace,
        draft=None,
        onto=onto,
        message=draft_message(target, resolved, workspace, package),
        time=case.rendered.time,
    )
    pull = _pull(case, draft_ref(target.package.path, workspace), None)
    reason = _reason(case, None)
    op = Op.EDIT if reason is Reason.CONTENT_CHANGED else case.op
    change = replace(change, op=op, reason=reason, writes=(*start, write), pull=pull)
    change = _explained(case, change, None)
    if rejected:
        again = "It was rejected before, and a person asked for it again"
        change = replace(change, message="; ".join(filter(None, (change.message, again))))
    return _asking(change, package)


def _rejected(case: Case, change: Change, why: str) -> Change:
    """Return the change of content that people refused, with what they write to have it again."""
    message = f"{why}. {retry_text(case.resolved.variant, case.record)}"
    return replace(change, reason=Reason.REJECTED, message=message, waits=True)


def _unanswered(case: Case, change: Change, conflicts: tuple[Conflict, ...]) -> Change:
    """Main keeps what people made of generated files: nothing is written, and they are asked.

    Of any other package the merged draft was the answer.
    """
    if not (conflicts and cluster_of(case.resolved.variant.key)):
        return change
    count = len(conflicts)
    values = f"{plural(count, 'generated value')} {verb(count, 'stays', 'stay')}"
    message = f"{values} as people set {verb(count, 'it', 'them')}"
    notes = tuple(note._replace(name="") for note in _notes(conflicts))
    return replace(change, reason=Reason.MERGE_CONFLICT, message=message, conflicts=notes, waits=True)


def _obsolete_draft(case: Case, change: Change, draft: Draft) -> Change:
    """Main is what it should be: an untouched draft is closed, a person's is kept."""
    if draft.append_only:
        main = "Main is up to date" if not case.resolved.held else "Main has what the package keeps for now"
        message = f"{main}; the draft has a person's commits and is left to them"
        return replace(change, op=Op.KEEP, reason=Reason.DRAFT_EDITED, message=message, waits=True)
    return replace(
        change,
        op=Op.CLOSE,
        reason=Reason.DRAFT_SUPERSEDED,
        message="Main is up to date: the draft has nothing to propose",
        writes=close_drafts([draft]),
        close=close_pulls(case.target, [draft.ref], "Main is what it should be; nothing is left to propose."),
    )


def _touched_draft(case: Case, change: Change, draft: Draft, fresh: Package) -> Change:
    """A draft with a person's commits: leave it, or append one commit with what is new on our side."""
    merged = case.rendered.merged
    if isinstance(merged, Blocked):
        is_same = fresh.tree in (draft.written, draft.tree)
        return (
            _standing_or_renewed(case, change, draft, Package(draft.tree))
            if is_same
            else _blocked(change, merged.reason, merged.message, merged.conflicts)
        )
    if merged is None:
        standing = fresh if fresh.is_recorded else Package(draft.tree)
        return _standing_or_renewed(case, change, draft, standing)
    is_asked = bool(merged.conflicts or merged.answers)
    if merged.tree == draft.tree or (fresh.tree in (draft.written, draft.tree) and not is_asked):
        return _standing_or_renewed(case, change, draft, merged)
    if _is_better(case, draft, merged):
        return _kept_draft(case, change, draft, merged)
    change = replace(change, after=merged.tree, ready=change.ready and merged.ready)
    return _written(case, change, draft, merged)


def _standing_or_renewed(case: Case, change: Change, draft: Draft, package: Package) -> Change:
    """Keep a draft that is up to date; one that is behind main gets one more commit."""
    if package.conflicts or not _is_outdated(case, draft):
        return _standing_draft(case, change, draft, package)
    return _renewed(case, change, draft, replace(package, tree=draft.tree, files={}))


def _is_outdated(case: Case, draft: Draft) -> bool:
    """Whether the draft cannot be merged as it is because its package changed on main (D4).

    One that people refused is left alone: a commit would propose it again.
    """
    is_refused = is_rejected(case.target, draft) and not case.is_asked_again
    return is_behind(case.target, draft) and not is_refused


def _renewed(case: Case, change: Change, draft: Draft, package: Package) -> Change:
    """Write the same content once more, on main as it is now."""
    change = _written(case, replace(change, after=draft.tree), draft, package)
    message = f"{draft.path} changed on {case.target.view.branch}; the draft has that already"
    return replace(change, op=Op.EDIT, reason=Reason.CONTENT_CHANGED, message=message)


def _standing_draft(case: Case, change: Change, draft: Draft, package: Package) -> Change:
    """Keep a draft that is up to date, and open its pull request if it is missing."""
    reason = Reason.DRAFT_EDITED if draft.is_edited else Reason.UP_TO_DATE
    reason = Reason.MERGE_CONFLICT if package.conflicts else reason
    change = _asking(replace(change, op=Op.KEEP, reason=reason, after=draft.tree), package)
    pull = newest_pull(case.target.pulls, draft.ref)
    if pull is not None and pull.state is PullState.OPEN:
        return change
    if is_rejected(case.target, draft) and not case.is_asked_again:
        return _rejected(case, change, closed_text(pull) if pull else "")
    request = _pull(case, draft.ref, draft)
    if request is None:
        return change
    return replace(change, op=Op.UPDATE, reason=Reason.PULL_REQUEST_MISSING, pull=request)


def _recorded(record: PackageVariantRecord | None) -> tuple[Answer, ...]:
    return recorded_answers(record) if record else ()


def _written(case: Case, change: Change, draft: Draft, package: Package) -> Change:
    """Write the draft in place: anew on main's head, or appended to a person's tip."""
    head = case.target.view.head
    onto = draft.tip.oid if draft.append_only or head is None else head.oid
    write = write_draft(
        case.target,
        package,
        draft.workspace,
        draft=draft,
        onto=onto,
        message=draft_message(case.target, case.resolved, draft.workspace, package),
        time=max(case.rendered.time, draft.foreign_commit_time if draft.append_only else 0),
    )
    reason = _reason(case, draft)
    op = {Reason.OWNER_CHANGED: Op.TRANSFER, Reason.CONTENT_CHANGED: Op.EDIT}.get(reason, Op.UPDATE)
    change = replace(change, op=op, reason=reason, writes=(write,), pull=_pull(case, draft.ref, draft))
    return _asking(_explained(case, change, draft), package)


def _explained(case: Case, change: Change, draft: Draft | None) -> Change:
    """Add the causes of a change that its reason and the revisions do not show."""
    resolved, record = case.resolved, case.record
    if change.reason is Reason.CONTENT_CHANGED:
        return replace(change, message=content_causes(resolved, record, asked_again=case.is_asked_again))
    if change.reason is Reason.UPSTREAM_CHANGED:
        before = resolved.draft_base if draft else resolved.base
        return replace(change, message=upstream_causes(resolved, record, before))
    return change


def _pull(case: Case, ref: str, draft: Draft | None) -> PullRequest | None:
    open_on = case.context.inventory.policy.pull_requests.open_on
    return wanted_pull(case.target, ref, open_on=open_on, proposed=is_proposed(draft))


def _reason(case: Case, draft: Draft | None) -> Reason:
    """Return why the content changes, the most telling cause first."""
    if case.op is Op.TRANSFER:
        return Reason.OWNER_CHANGED
    if draft is None and case.op in _BY_OP:
        return _BY_OP[case.op]
    base = case.resolved.draft_base if draft else case.resolved.base
    moved = base is None or base.commit.oid != case.resolved.pin.commit.oid
    return Reason.UPSTREAM_CHANGED if moved else Reason.CONTENT_CHANGED


_BY_OP = {Op.CREATE: Reason.NEW, Op.ADOPT: Reason.ADOPTED}


def asked_text(conflicts: Sequence[ConflictNote]) -> str:
    """Return what open conflicts ask of a person."""
    files = sorted({note.path for note in conflicts})
    shown = ", ".join(files[:_MAX_FILES]) + (
        f" and {plural(len(files) - _MAX_FILES, 'more file')}" if len(files) > _MAX_FILES else ""
    )
    count = f"{plural(len(conflicts), 'conflict')} in {shown}"
    return f"{count}. Change the values in the draft, or add `Keep:` to a commit there"


_MAX_FILES = 3


def _asking(change: Change, package: Package) -> Change:
    """Return the change with the conflicts that a person must answer, and with those that were answered."""
    message = "; ".join(part for part in (change.message, *(package.notes if change.writes else ())) if part)
    change = replace(change, message=message, answers=_answer_notes(package.answers))
    if not package.conflicts:
        return change
    conflicts = _notes(package.conflicts)
    message = "; ".join(part for part in (change.message, asked_text(conflicts)) if part)
    return replace(change, message=message, conflicts=conflicts, waits=True, ready=False)


def _notes(conflicts: tuple[Conflict, ...]) -> tuple[ConflictNote, ...]:
    recorded = map(open_conflict, conflicts)
    return tuple(ConflictNote(c.path, c.field, c.upstream, c.local, c.resource, c.name) for c in recorded)


def _answer_notes(answers: tuple[Answer, ...]) -> tuple[AnswerNote, ...]:
    recorded = map(answered_conflict, answers)
    return tuple(
        AnswerNote(
            c.path, c.field, c.upstream, c.local, c.resource, c.name, c.chosen, c.by, c.policy, c.source
        )
        for c in recorded
    )


def _blocked(change: Change, reason: Reason, message: str, conflicts: tuple[Conflict, ...]) -> Change:
    is_postponed = reason is Reason.FUNCTIONS_POSTPONED  # by this run alone, and for nobody to settle
    return replace(
        change,
        op=Op.KEEP if is_postponed else Op.BLOCK,
        reason=reason,
        message=message,
        conflicts=_notes(conflicts),
        waits=not is_postponed,
        after=change.before,
        ready=False,
    )


def upstream_labels(resolved: ResolvedVariant) -> tuple[str, str]:
    """Return how a person names where the package comes from now, and where it should come from."""
    base = resolved.base or resolved.draft_base
    return base.label if base else "", resolved.pin.label


_SPEC = ("packageContext", "pipeline", "mutators", "injectors")
_MAX_CAUSES = 5
_FACTS = {
    "deployment": "spec.deployment of the Repository",
    "functions": "the configuration of functions",
    "instance": "the name of this instance",
    "policies": "the conflict policies",
    "repository": "the name of the Repository",
    "engine": "the version of this tool",
}
"""Names of the recorded inputs in messages, the last resort last."""


def content_causes(
    resolved: ResolvedVariant, record: PackageVariantRecord | None, *, asked_again: bool = False
) -> str:
    """Return what changed since the variant was last applied. Total: never empty. Deterministic.

    These are fields of its spec, objects that its injectors may take, the package on main, and the
    configuration.
    """
    if record is None:
        return "Nothing was recorded of the last time; the package is not what it should be"
    changed = _listed([*_causes(resolved, record)])
    sentences = [f"{changed} changed"] if changed else []
    if asked_again:
        sentences.append("A person asked for it again")
    if not sentences and functions_failed(record.unready):
        sentences.append("A function that failed or could not run was tried again")
    return "; ".join(sentences) or "No input changed, but the draft that was proposed is gone"


def upstream_causes(
    resolved: ResolvedVariant, record: PackageVariantRecord | None, before: Pin | None
) -> str:
    """Return the other changes beside the upstream, and the commits if its name is the same."""
    pin = resolved.pin
    moved = ""
    if before is not None and before.package.url != pin.package.url:
        moved = f"The upstream repository was {before.address}, and is {pin.address}"
    elif before is not None and (before.ref, before.revision) == (pin.ref, pin.revision) and pin.revision > 0:
        moved = f"{pin.ref} moved from commit {before.commit.oid} to {pin.commit.oid}"
    changed = _listed([*_causes(resolved, record)]) if record is not None else ""
    also = f"{changed} also changed" if changed else ""
    return "; ".join(part for part in (moved, also) if part)


def _listed(causes: Sequence[str]) -> str:
    """Return causes as the subject of a sentence; more than a few are counted."""
    shown = [
        *causes[:_MAX_CAUSES],
        *([f"{len(causes) - _MAX_CAUSES} more"] if len(causes) > _MAX_CAUSES else []),
    ]
    text = " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)
    return text if text.startswith("spec.") else text[:1].upper() + text[1:]


def _causes(resolved: ResolvedVariant, record: PackageVariantRecord) -> Iterator[str]:
    """Yield what differs, what people write themselves first."""
    now = spec_data(resolved.variant)
    for name in _SPEC:
        yield from _fields(f"spec.{name}", record.spec.get(name), now.get(name))
    objects = {**record.objects, **resolved.objects}
    yield from (
        f"object {name}" for name in sorted(objects) if _differ(name, record.objects, resolved.objects)
    )
    if resolved.local and resolved.local not in (record.local_tree, record.output_tree):
        yield "the package on main"
    if record.facts:
        yield from (words for name, words in _FACTS.items() if _differ(name, record.facts, resolved.facts))


def _differ(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return bool(old.get(name) != new.get(name))


def _fields(path: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the fields that differ, as deep as both sides have them."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _fields(f"{path}.{name}", old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _fields(f"{path}[{index}]", before, after)
    else:
        yield path
