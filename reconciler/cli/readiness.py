"""Readiness of drafts for approval: unmet gates and open conflicts (D10, D18)."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.base.reasons import Reason
from reconciler.cli.pull_requests import ListedPull
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Draft
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.refs import short_branch
from reconciler.plan.changes import Change, ConflictNote, Plan
from reconciler.read.repositories.kptfiles import MAX_KPTFILE_BYTES
from reconciler.records.state import PackageVariantRecord, functions_failed
from reconciler.render.kptfile import unmet_gates
from reconciler.run.inputs import RunInputs

_CONFLICT = "conflict in "


class Readiness(NamedTuple):
    """`against` forbids approval, `shown` a person should know."""

    against: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        """The next steps of a person that make approval possible."""
        conflicts = [text for text in self.against if text.startswith(_CONFLICT)]
        answer = "Answer the conflicts in the draft, as its pull request says." if conflicts else ""
        meet = "Meet each condition: it is read from status.conditions of the draft's Kptfile."
        if functions_failed(self.against):
            meet = "Correct the pipeline or its inputs, and run `reconciler apply`."
        if len(conflicts) == len(self.against):
            meet = ""
        return " ".join(filter(None, (answer, meet)))


class ReadinessReader:
    """The unmet conditions of pull requests' heads; a deletion is always ready.

    Unmet gates forbid approval where packages are deployed, and are shown elsewhere. Open conflicts forbid
    it everywhere: approving one would choose a side silently. If the record is not about exactly this
    draft, `plan` is called, once.

    Source: porch pkg/cli/commands/rpkg/approve, which asks the same of every repository.
    """

    def __init__(self, world: RunInputs, plan: Callable[[], Plan]) -> None:
        self._inventory = world.inventory
        self._plan = plan

    def fetch(self, pulls: Iterable[ListedPull]) -> None:
        """Fetch what the gates are read from, in one batch per repository."""
        blobs: dict[Mirror, set[Oid]] = {}
        for listed in pulls:
            for draft in self._drafts_of(listed):
                if blob := _kptfile(draft, listed.mirror):
                    blobs.setdefault(listed.mirror, set()).add(blob)
        for mirror, oids in blobs.items():
            mirror.ensure(oids)

    def find(self, listed: ListedPull) -> Readiness:
        """Return the unmet conditions of a pull request."""
        each = [self._readiness(draft, listed) for draft in self._drafts_of(listed)]
        return Readiness(
            tuple(text for draft_readiness in each for text in draft_readiness.against),
            tuple(text for draft_readiness in each for text in draft_readiness.shown),
        )

    def _readiness(self, draft: Draft, listed: ListedPull) -> Readiness:
        conflicts, unready = self._find_unmet(draft, listed)
        gates = tuple(dict.fromkeys(_gates(draft, listed) + unready))
        if listed.view.deployment:
            return Readiness(conflicts + gates)
        return Readiness(conflicts, gates)

    def _find_unmet(self, draft: Draft, listed: ListedPull) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the open conflicts of a draft, and what else it is not ready for."""
        package = PackageKey(listed.view.url, draft.path)
        record = self._records.get(package)
        if (
            record is not None
            and record.output_tree == draft.tree
            and not (record.conflicts or draft.append_only)
        ):
            return (), record.unready
        change = self._changes.get(package)
        if change is None:
            return (), ()
        # What is held back conflicts with an update that is not in the draft: the draft asks nothing.
        conflicts = () if change.reason is Reason.HELD_BACK else change.conflicts
        return tuple(map(_conflict, conflicts)), change.unready

    def _drafts_of(self, listed: ListedPull) -> list[Draft]:
        drafts = self._drafts.get((listed.view.url, listed.pull.head), {})
        return [drafts[path] for path in sorted(drafts)]

    @cached_property
    def _drafts(self) -> dict[tuple[str, str], dict[str, Draft]]:
        """The drafts by the URL of their repository and their branch, then by their path."""
        drafts: dict[tuple[str, str], dict[str, Draft]] = {}
        for view in self._inventory.repositories.values():
            for package in view.packages.values():
                for draft in package.drafts:
                    drafts.setdefault((view.url, short_branch(draft.ref)), {})[draft.path] = draft
        return drafts

    @cached_property
    def _records(self) -> dict[PackageKey, PackageVariantRecord]:
        records: dict[PackageKey, PackageVariantRecord] = {}
        for record in self._inventory.records.values():
            records.setdefault(PackageKey(record.url, record.path), record)
        return records

    @cached_property
    def _changes(self) -> dict[PackageKey, Change]:
        changes: dict[PackageKey, Change] = {}
        for change in self._plan().changes:
            changes.setdefault(change.package, change)
        return changes


def _conflict(note: ConflictNote) -> str:
    return f"{_CONFLICT}{note.path}{f' at {note.field}' if note.field else ''}"


def _gates(draft: Draft, listed: ListedPull) -> tuple[str, ...]:
    blob = _kptfile(draft, listed.mirror)
    return unmet_gates(listed.mirror.blob(blob, MAX_KPTFILE_BYTES)) if blob else ()


def _kptfile(draft: Draft, mirror: Mirror) -> Oid | None:
    return mirror.blob_at(draft.tip.oid, f"{draft.path}/{KPTFILE}")
