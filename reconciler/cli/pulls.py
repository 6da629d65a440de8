"""Refusals of pull requests that are merged, closed or outdated, each with the next step that helps."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.errors import RefusedError
from reconciler.forge.local_merge import OutdatedError
from reconciler.forge.local_store import head_branches
from reconciler.forge.local_transaction import missing_branch_hint
from reconciler.inventory import PullState
from reconciler.plan.changes import Change, Plan, WriteDraft, WriteRemoval
from reconciler.refs import HEADS, short_branch

if TYPE_CHECKING:
    from reconciler.cli.selection import Found


def is_merged(found: "Found") -> bool:
    """Whether nothing is left to be done with a pull request because it was merged."""
    return found.pull.state is PullState.MERGED


def closed_error(found: "Found") -> RefusedError | None:
    """Return why a closed pull request is not merged, and how it is proposed again; None for others."""
    if found.pull.state is not PullState.CLOSED:
        return None
    message = f"Pull request {found.name} was closed"
    refs = found.forge.mirror.refs()
    if any(f"{HEADS}{name}" in refs for name in head_branches(found.pull.head)):
        hint = f"Open it again with `reconciler pr reopen {found.name}`, then approve it."
        return RefusedError(message, hint=hint)
    return RefusedError(message, hint=missing_branch_hint(found.pull.head))


def outdated_error(error: OutdatedError, found: "Found", plan: Callable[[], Plan]) -> RefusedError:
    """Return the refusal with the step that helps: `apply` if it renews the branch, else git."""
    changes = [change for change in plan().everything if change.package.url == found.view.url]
    write = next((w for change in changes for w in change.writes if _renews(w, found)), None)
    if write is not None:
        removes = isinstance(write, WriteRemoval)
        then = "proposes the deletion anew, with that change in it" if removes else "brings it into the draft"
        return RefusedError(str(error), hint=f"Run `reconciler apply`: it {then}.")
    change = next((change for change in changes if change.package.path == error.path), None)
    why = f" `reconciler apply` leaves the branch as it is: {_reason(change)}." if change else ""
    return RefusedError(str(error), hint=f"{error.hint}{why}")


def _renews(write: object, found: "Found") -> bool:
    """Whether a planned write makes the branch start at the base's head, or merges that."""
    if not isinstance(write, WriteDraft | WriteRemoval):
        return False
    base = found.forge.mirror.refs().get(f"{HEADS}{found.pull.base}")
    renewed = {write.onto, write.merges} if isinstance(write, WriteDraft) else {write.onto}
    return short_branch(write.ref) in head_branches(found.pull.head) and base in renewed


def _reason(change: Change) -> str:
    return f"{change.reason}: {change.message}" if change.message else str(change.reason)
