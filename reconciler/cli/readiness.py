"""What stands against approving a draft: unmet gates, unanswered conflicts, a failed pipeline (D10, D18)."""

from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.cli.selection import Found
from reconciler.inventory import Draft, Inventory
from reconciler.layout import short_branch
from reconciler.read.index import LARGEST_KPTFILE
from reconciler.render.readiness import unmet_gates
from reconciler.state import PackageVariantRecord


class Readiness(NamedTuple):
    """`against` forbids approval, `shown` a person should know."""

    against: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def find_readiness(inventory: Inventory, found: Found) -> Readiness:
    """Return what is known against a pull request's head as it is now; a deletion is always ready.

    Gates hold where packages are deployed and are shown elsewhere. A conflict that nobody answered
    holds everywhere: approving it would choose without saying so.

    Source: porch pkg/cli/commands/rpkg/approve, which asks the same of every repository.
    """
    drafts = {
        draft.path: draft
        for view in inventory.views_of(found.view.url)
        for package in view.packages.values()
        for draft in package.drafts
        if short_branch(draft.ref) == found.pull.head
    }
    each = [_readiness(drafts[path], found, inventory) for path in sorted(drafts)]
    return Readiness(
        tuple(text for one in each for text in one.against), tuple(text for one in each for text in one.shown)
    )


def _readiness(draft: Draft, found: Found, inventory: Inventory) -> Readiness:
    record = _record_of(draft, found, inventory)
    conflicts = tuple(_conflict(c.path, c.field) for c in record.conflicts) if record else ()
    unmet = _gates(draft, found) + (record.unready if record else ())
    gates = tuple(dict.fromkeys(unmet))
    if found.view.deployment:
        return Readiness(conflicts + gates)
    return Readiness(conflicts, gates)


def _conflict(path: str, field: str) -> str:
    return f"conflict in {path}{f' at {field}' if field else ''}"


def _record_of(draft: Draft, found: Found, inventory: Inventory) -> PackageVariantRecord | None:
    """Return what we recorded of exactly this content; an edited draft has answered."""
    where = (found.view.url, draft.path, draft.tree)
    records = inventory.records.values()
    return next((r for r in records if (r.url, r.path, r.output_tree) == where), None)


def _gates(draft: Draft, found: Found) -> tuple[str, ...]:
    mirror = found.forge.mirror
    blob = mirror.blob_at(draft.tip.oid, f"{draft.path}/{KPTFILE}")
    if blob is None:
        return ()
    mirror.ensure([blob])
    return unmet_gates(mirror.blob(blob, LARGEST_KPTFILE))
