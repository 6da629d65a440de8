"""Whether a person may merge what a branch proposes: conflicts, gates, and whether it is wanted (D18)."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import UNWANTED, Reason
from reconciler.base.text import Text
from reconciler.inventory.inventory import Draft, Inventory, RepositoryView
from reconciler.names.ids import PackageKey
from reconciler.names.refs import deletion_ref, short_branch
from reconciler.plan.approvals import consent_text, lacks_consent
from reconciler.plan.changes import Approvable, Change, MoveRef, Objection, Op, Plan, WriteDraft, WriteGroup
from reconciler.plan.context import PlanContext
from reconciler.plan.deletions import left_drafts

Place = tuple[str, str | int]
"""The URL of a repository, and a branch or the number of a pull request in it."""

_UNWANTED = frozenset(
    (
        *UNWANTED,
        Reason.DRAFT_EDITED,
        Reason.DELETION_GUARD,
        Reason.AWAITING_WAVE,
        Reason.OWNER_UNKNOWN,
        Reason.REMOVAL_UNPROVEN,
    )
)
_NOT_UNDERSTOOD = frozenset((Reason.OWNER_STALLED, Reason.MANIFEST_UNREADABLE))
_NOT_MADE = frozenset((Reason.FUNCTIONS_POSTPONED, Reason.PAUSED))
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
    drafts: dict[Place, dict[str, tuple[RepositoryView, Draft]]] = {}
    for view in inventory.views.values():
        for path, package in view.packages.items():
            if package.drafts and inventory.view_of(PackageKey(view.url, path)) is view:
                for draft in package.drafts:
                    drafts.setdefault((view.url, short_branch(draft.ref)), {})[draft.path] = view, draft
    return {
        place: _joined(reader.approvable(*by_path[path]) for path in sorted(by_path))
        for place, by_path in drafts.items()
    }


def _joined(parts: Iterable[Approvable]) -> Approvable:
    return Approvable(*(tuple(chain.from_iterable(texts)) for texts in zip(*parts, strict=True)))


class _Reader:
    def __init__(self, inventory: Inventory, changes: Iterable[Change]) -> None:
        self._records = {PackageKey(r.url, r.path): r for r in reversed([*inventory.records.values()])}
        self._changes = {change.package: change for change in reversed([*changes])}

    def approvable(self, view: RepositoryView, draft: Draft) -> Approvable:
        package = PackageKey(view.url, draft.path)
        try:
            with guard(f"approval of {package}"):
                return self._approvable(package, view, draft)
        except DefectError as error:
            return Approvable(unmet=(str(error),))

    def _approvable(self, package: PackageKey, view: RepositoryView, draft: Draft) -> Approvable:
        conflicts, unready, failed = self._find_unmet(package, draft)
        gates = tuple(dict.fromkeys((*draft.header.unmet, *unready)))
        failures = unready[:1] if failed else ()
        is_unfinished = not conflicts and self._is_unfinished(package, draft)
        unfinished = (_unfinished_text(draft),) if is_unfinished else ()
        lenient = Approvable(conflicts, lenient=gates, failures=failures, unfinished=unfinished)
        return lenient.strict if view.deployment else lenient

    def _find_unmet(self, package: PackageKey, draft: Draft) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Return the open conflicts of a draft, its unmet gates, and whether its functions failed."""
        record, change = self._records.get(package), self._changes.get(package)
        is_exact = record is not None and record.output_tree == draft.tree
        if record is not None and is_exact and not (record.conflicts or draft.append_only):
            return (), record.unready, record.is_failed
        if change is None:
            return (), (), False
        # What is held back conflicts with an update that is not in the draft: the draft asks nothing.
        notes = () if change.reason is Reason.HELD_BACK else change.conflicts
        conflicts = (f"conflict in {n.path}{f' at {n.field}' if n.field else ''}" for n in notes)
        return tuple(conflicts), tuple(map(str, change.unready)), change.failed

    def _is_unfinished(self, package: PackageKey, draft: Draft) -> bool:
        """Whether functions have not run since people answered the conflicts of a draft."""
        change = self._changes.get(package)
        if change is None or not draft.answers.has_asked:
            return False
        is_made = change.op is not Op.BLOCK and change.reason not in _NOT_MADE
        return not is_made or change.tree != draft.tree


def _unfinished_text(draft: Draft) -> str:
    return f"no run has finished the draft of {draft.path} since people answered its conflicts"


def find_objections(plan: Plan) -> dict[Place, Objection]:
    """Return why pull requests are against what manifests want, or take objects with them without consent.

    Only a person who names such a pull request approves it.
    """
    objections: dict[Place, Objection] = {}
    for number, change in enumerate(plan.all_changes):
        for name, objection in _unwanted(change, plan, number):
            objections.setdefault((change.package.url, name), objection)
    for change in plan.changes:
        for head, objection in _losing(change, plan):
            objections.setdefault((change.package.url, head), objection)
    return objections


def early_deletions(plan: Plan) -> Mapping[Place, Text]:
    """Return why deletions at former places wait for a name: the package is not at the new place yet."""
    context, waiting = plan.context, dict[Place, Text]()
    for change in plan.changes if context is not None else ():
        target = context.targets.get(change.package) if context is not None else None
        if context is None or target is None or target.view.former is None:
            continue
        if change.variant is None or change.variant not in context.variants:
            continue
        resolved = context.resolved.get(change.variant)
        successor = context.targets.get(resolved.downstream) if resolved is not None else None
        if successor is None or successor.main_owner != change.variant:
            head = short_branch(deletion_ref(context.inventory.policy.instance, change.package.path))
            why = f"{target.view.former.message}, and the package is not merged there yet"
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
        who = former.message if former is not None else _WHO_LEFT.get(change.reason, "A person left it there")
        yield branch, Objection((number, 1), f"{what}: {path}", who, way)


def _losing(change: Change, plan: Plan) -> Iterator[tuple[str, Objection]]:
    context = plan.context
    target = context.targets.get(change.package) if context is not None else None
    if context is None or target is None or not lacks_consent(change, context.inventory.policy):
        return
    lost = "; ".join(loss.text for loss in change.losses if loss.needs_consent)
    objection = Objection(_LAST, f"takes objects with it: {lost}", step=f"{consent_text(change)}.")
    heads = {change.group, short_branch(deletion_ref(context.inventory.policy.instance, change.package.path))}
    heads |= {short_branch(target.draft.ref)} if target.draft is not None else set()
    yield from ((head, objection) for head in sorted(heads - {""}))


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
    is_first = change.reason is Reason.ORPHANED and target.package.main_tree is None
    # Where no Repository is any more, only what ends the management of a package is proposed.
    is_placed = target.view.former is None or change.reason is Reason.ORPHANED
    is_left = change.reason in _UNWANTED or is_first or not is_placed
    if package in context.downstreams:
        resolved = context.resolved.get(change.variant) if change.variant else None
        base = resolved.draft_base if resolved is not None else None
        is_other = base is not None and resolved is not None and base.commit.oid != resolved.pin.commit.oid
        is_over = change.reason is Reason.DRAFT_EDITED and change.tree == target.package.main_tree
        is_left = (is_over and is_other) or target.draft in left_drafts(target, context)
    return target.draft if is_left else None
