"""The reviewed lock as a pull request on the control repository: one branch, updated in place (D3)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from reconciler.ids import ObjectName, Oid, PackageKey
from reconciler.inventory import Inventory, PullRequest, PullState, ReviewedLock
from reconciler.lock import LOCKS_DIRECTORY
from reconciler.objects import Files, tree_id
from reconciler.plan.changes import (
    Change,
    ClosePull,
    LockProposal,
    MoveRef,
    Op,
    PinChange,
    WriteDraft,
    WriteRemoval,
)
from reconciler.plan.context import by_weight
from reconciler.plan.lock_files import WantedLock, want_lock
from reconciler.plan.requests import close_duplicates, is_right, lock_pull
from reconciler.reasons import Reason
from reconciler.refs import lock_ref, short_branch
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.state import WANTED_LOCK, WantedLockRecord, record_bytes

CONTROL = ObjectName("", "control")
"""How reports call the control repository."""


class LockPlan(NamedTuple):
    """Plan of the lock: its pull request, and the records of what was proposed, with their package."""

    proposal: LockProposal | None = None
    records: Mapping[str, bytes] = {}
    record_owners: Mapping[str, PackageKey] = {}


def plan_lock(inventory: Inventory, fleet: ResolvedFleet) -> LockPlan:
    """Return the pull request of a reviewed lock; nothing where the lock is not reviewed.

    The state records the lock that was proposed last: with it, a proposal that a person closed is told
    from one that was never made.
    """
    reviewed = inventory.reviewed
    if reviewed is None:
        return LockPlan()
    wanted = want_lock(reviewed, inventory, fleet.desired, fleet.resolution, fleet.wanted_locks)
    tree = _tree(wanted.files) if reviewed.is_open else reviewed.computed_tree
    records = {WANTED_LOCK: record_bytes(WantedLockRecord(tree=tree))} if tree else {}
    proposal = propose_lock(wanted, reviewed, inventory)
    return LockPlan(proposal, records, {WANTED_LOCK: lock_package(inventory)})


def propose_lock(wanted: WantedLock, reviewed: ReviewedLock, inventory: Inventory) -> LockProposal | None:
    """Return what happens to the branch and the pull request that propose another lock; None for nothing.

    A fixed point: what was proposed is recognised by its branch and pull request, without any state.
    What people wrote on the branch stays, file by file. A proposal that a person closed, or whose
    content they took back from main, is not made again until another lock is wanted.
    """
    if not reviewed.is_open:
        return None
    branch = reviewed.branch
    kept = branch.edited_files if branch else frozenset()
    files = _with_edits(wanted.files, branch.files if branch else {}, kept)
    change = Change(
        package=lock_package(inventory),
        repository=CONTROL,
        op=Op.KEEP,
        reason=Reason.UP_TO_DATE,
        before=_tree(branch.files if branch else reviewed.files),
        after=_tree(files),
    )
    pulls = _pulls(inventory)
    if _tree(files) == _tree(reviewed.files):
        done = _obsolete(change, reviewed, pulls, inventory)
        return LockProposal(done) if done else None
    change = _proposed(change, files, wanted, reviewed, inventory)
    return LockProposal(change, wanted.pins, tuple(sorted(kept)))


def lock_package(inventory: Inventory) -> PackageKey:
    """Return what stands for the lock where changes are told apart."""
    return PackageKey(inventory.control.url, LOCKS_DIRECTORY)


def _with_edits(wanted: Files, there: Files, edited: Iterable[str]) -> Files:
    files = dict(wanted)
    for path in edited:
        files.pop(path, None)
        if path in there:
            files[path] = there[path]
    return files


def _tree(files: Files) -> Oid | None:
    return tree_id(files) if files else None


def _pulls(inventory: Inventory) -> tuple[PullRequest, ...]:
    """Return the pull requests of the lock's branch, the one that counts last."""
    head = short_branch(lock_ref(inventory.policy.instance))
    pulls = inventory.pulls.get(inventory.control.url, ())
    return tuple(sorted((pull for pull in pulls if pull.head == head), key=by_weight))


def _obsolete(
    change: Change, reviewed: ReviewedLock, pulls: Iterable[PullRequest], inventory: Inventory
) -> Change | None:
    """Main is what the lock should be: a branch without a person's content goes, and its pull request."""
    branch = reviewed.branch
    if branch is None:
        return None
    if branch.edited_files and _tree(branch.files) != _tree(reviewed.files):
        message = "The lock is what it should be; its branch has a person's changes and is left to them"
        return replace(change, reason=Reason.DRAFT_EDITED, message=message, waits=True)
    comment = "The lock of the main branch is what it should be; nothing is left to propose."
    closes = (ClosePull(p.number, p.head, comment) for p in pulls if p.state is PullState.OPEN)
    return replace(
        change,
        op=Op.CLOSE,
        reason=Reason.DRAFT_SUPERSEDED,
        writes=(MoveRef(lock_ref(inventory.policy.instance), branch.tip.oid, None),),
        close=tuple(closes),
    )


def _refused_text(last: PullRequest) -> str:
    """Return why pins are not proposed again after their last pull request ended, and when they are."""
    if last.state is PullState.CLOSED:
        return (
            f"Pull request #{last.number} was closed. "
            "These pins are proposed again when they change, or when it is opened again"
        )
    return f"Pull request #{last.number} was reverted on main. These pins are proposed again when they change"


def _proposed(
    change: Change, files: Files, wanted: WantedLock, reviewed: ReviewedLock, inventory: Inventory
) -> Change:
    """Another lock is wanted: see that one commit on its branch says so, and one open pull request."""
    branch, pulls = reviewed.branch, _pulls(inventory)
    last = pulls[-1] if pulls else None
    opened = last if last and last.state is PullState.OPEN else None
    stands = branch is not None and _tree(branch.files) == _tree(files)
    again = stands or (branch is None and reviewed.computed_tree == _tree(wanted.files))
    if last is not None and opened is None and again:
        message = _refused_text(last)
        return replace(change, reason=Reason.REJECTED, message=message, waits=True)
    reason = Reason.DRAFT_EDITED if branch and branch.edited_files else Reason.LOCK_PENDING
    pull = lock_pull(
        PullRequest(
            head=short_branch(lock_ref(inventory.policy.instance)),
            base=reviewed.base,
            title=_title(wanted),
            body="",
            draft=False,
            number=opened.number if opened else 0,
            labels=tuple(sorted(inventory.policy.labels)),
        ),
        wanted.pins,
        branch.edited_files if branch else (),
    )
    doubles = close_duplicates(opened, pulls) if opened else ()
    if stands and opened and is_right(opened, pull) and not doubles:
        return replace(change, reason=reason, message=f"Pull request #{opened.number} waits for a review")
    writes = () if stands else (_write(files, wanted, reviewed, inventory),)
    if stands and opened:
        reason = Reason.PULL_REQUEST_DUPLICATE if doubles else Reason.PULL_REQUEST_OUTDATED
    op = Op.UPDATE if opened else Op.CREATE
    return replace(change, op=op, reason=reason, writes=writes, pull=pull, close=doubles)


def _write(
    files: Files, wanted: WantedLock, reviewed: ReviewedLock, inventory: Inventory
) -> WriteDraft | WriteRemoval:
    """Return the one commit, anew on main's head; appended where people's commits stand on the branch."""
    branch = reviewed.branch
    appends = branch is not None and branch.has_foreign_commits
    onto = branch.tip.oid if branch and appends else inventory.control.commit.oid
    ref, expect = lock_ref(inventory.policy.instance), branch.tip.oid if branch else None
    message = "\n".join([_title(wanted), "", *map(_line, wanted.pins), ""])
    time = max(wanted.time, branch.foreign_commit_time if branch else 0)
    tree = _tree(files)
    if tree is None:
        return WriteRemoval(ref, expect, onto, LOCKS_DIRECTORY, message, time)
    return WriteDraft(ref, expect, onto, LOCKS_DIRECTORY, files, tree, message, time)


def _title(wanted: WantedLock) -> str:
    if len(wanted.pins) != 1:
        return f"Lock {len(wanted.pins)} pins"
    (pin,) = wanted.pins
    return f"Lock {pin.what} at {pin.after}" if pin.after else f"Drop the lock of {pin.what}"


def _line(pin: PinChange) -> str:
    moves = " -> ".join(part for part in (pin.before, pin.after) if part)
    return f"{pin.what}: {moves} ({pin.why})" if moves else f"{pin.what}: {pin.why}"
