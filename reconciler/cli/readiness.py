"""Reasons not to approve a draft: unmet gates, unanswered conflicts, a failed pipeline (D10, D18)."""

from collections.abc import Callable
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.cli.selection import Found
from reconciler.ids import PackageKey
from reconciler.inventory import Draft, Inventory
from reconciler.plan.changes import ConflictNote, Plan
from reconciler.read.repositories.kptfiles import MAX_KPTFILE_BYTES
from reconciler.reasons import Reason
from reconciler.refs import short_branch
from reconciler.render.kptfile import unmet_gates
from reconciler.run.inputs import RunInputs
from reconciler.state import functions_failed

_CONFLICT = "conflict in "


class Readiness(NamedTuple):
    """`against` forbids approval, `shown` a person should know."""

    against: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        """What a person can do about what forbids approval."""
        conflicts = [text for text in self.against if text.startswith(_CONFLICT)]
        answer = "Answer the conflicts in the draft, as its pull request says." if conflicts else ""
        meet = "Meet each condition: it is read from status.conditions of the draft's Kptfile."
        if functions_failed(self.against):
            meet = "Correct the pipeline or its inputs, and run `reconciler apply`."
        if len(conflicts) == len(self.against):
            meet = ""
        return " ".join(filter(None, (answer, meet)))


def find_readiness(world: RunInputs, found: Found, plan: Callable[[], Plan]) -> Readiness:
    """Return what is known against a pull request's head as it is now; a deletion is always ready.

    Gates hold where packages are deployed and are shown elsewhere. A conflict that nobody answered
    holds everywhere: approving it would choose without saying so. What a record does not tell of exactly
    this draft, a plan tells: `plan` makes it, once.

    Source: porch pkg/cli/commands/rpkg/approve, which asks the same of every repository.
    """
    drafts = {
        draft.path: draft
        for view in world.inventory.views_of(found.view.url)
        for package in view.packages.values()
        for draft in package.drafts
        if short_branch(draft.ref) == found.pull.head
    }
    each = [_readiness(drafts[path], found, world.inventory, plan) for path in sorted(drafts)]
    return Readiness(
        tuple(text for one in each for text in one.against), tuple(text for one in each for text in one.shown)
    )


def _readiness(draft: Draft, found: Found, inventory: Inventory, plan: Callable[[], Plan]) -> Readiness:
    conflicts, unready = _known(draft, found, inventory, plan)
    gates = tuple(dict.fromkeys(_gates(draft, found) + unready))
    if found.view.deployment:
        return Readiness(conflicts + gates)
    return Readiness(conflicts, gates)


def _known(
    draft: Draft, found: Found, inventory: Inventory, plan: Callable[[], Plan]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the open conflicts of a draft, and what else it is not ready for."""
    package = PackageKey(found.view.url, draft.path)
    several = (r for r in inventory.records.values() if (r.url, r.path) == package)
    record = next(several, None)
    if (
        record is not None
        and record.output_tree == draft.tree
        and not (record.conflicts or draft.append_only)
    ):
        return (), record.unready
    change = next((each for each in plan().changes if each.package == package), None)
    if change is None:
        return (), ()
    # What is held back conflicts with an update that is not in the draft: the draft asks nothing.
    asked = () if change.reason is Reason.HELD_BACK else change.conflicts
    return tuple(map(_conflict, asked)), change.unready


def _conflict(note: ConflictNote) -> str:
    return f"{_CONFLICT}{note.path}{f' at {note.field}' if note.field else ''}"


def _gates(draft: Draft, found: Found) -> tuple[str, ...]:
    mirror = found.forge.mirror
    blob = mirror.blob_at(draft.tip.oid, f"{draft.path}/{KPTFILE}")
    if blob is None:
        return ()
    mirror.ensure([blob])
    return unmet_gates(mirror.blob(blob, MAX_KPTFILE_BYTES))
