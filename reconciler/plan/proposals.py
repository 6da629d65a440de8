"""Pull requests for the control repository: of a reviewed lock, and of new versions for the index (D29)."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.text import plural, visible
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.dependencies.lock import changes as lock_changes
from reconciler.dependencies.lock import format as formats
from reconciler.dependencies.lock.format import ClusterUpdate, LockUpdate, is_lock_file, read_locks
from reconciler.dependencies.model import instances
from reconciler.expand import Desired
from reconciler.inventory.inventory import Inventory, LockBranch, PullRequest, PullState, ReviewedLock
from reconciler.inventory.standing import Position
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import Commit, File, Files, tree_id
from reconciler.names.refs import lock_ref, short_branch
from reconciler.plan.changes import (
    Change,
    ClosePull,
    LockProposal,
    MoveRef,
    Op,
    PinChange,
    UpstreamPinChange,
    WriteDraft,
    WriteRemoval,
)
from reconciler.plan.compare import pin_change
from reconciler.plan.compose import Held, Veto
from reconciler.plan.context import by_weight
from reconciler.plan.impact import Loss, all_losses
from reconciler.plan.loss_reader import LossReader
from reconciler.plan.requests import close_duplicates, is_right, lock_pull
from reconciler.records.state import (
    LOCKS_DIRECTORY,
    UPSTREAMS_DIRECTORY,
    WANTED_LOCK,
    UpstreamLock,
    WantedLockRecord,
    lock_bytes,
    record_bytes,
)
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.ownership import SUSPENDED
from reconciler.resolve.pins import lock_pin, upstream_data
from reconciler.resolve.resolution import Resolution


class ProposalPlace(NamedTuple):
    """Where files are proposed: a directory of a repository, and the commit and name of its branch."""

    repository: ObjectName
    url: str
    directory: str
    commit: Commit
    base: str


class IndexBranch(NamedTuple):
    """The branch of a proposal: its tip, the tree of its directory, and whether people committed to it.

    `beside` are the files beside that directory which the proposal is to have, as the branch has them.
    """

    tip: Oid
    tree: Oid | None
    is_edited: bool
    beside: Mapping[str, Oid | None] = {}


class IndexProposal(Struct, frozen=True):
    """New versions of one source: the whole index or package with them, and their effect on clusters.

    `versions` are rows of a package and its new version, `pins` the changes of locks, `notes` are about
    versions that may be withdrawn or moved. `subject` is the title, where it is not made of `versions`.
    `beside` are files elsewhere in the repository that belong to it.
    """

    source: str
    ref: str
    files: Files
    versions: tuple[PinChange, ...]
    place: ProposalPlace
    pins: tuple[PinChange, ...] = ()
    notes: tuple[str, ...] = ()
    subject: str = ""
    beside: Files = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title of the pull request."""
        if self.subject:
            return visible(self.subject)
        if len(self.versions) == 1:
            (version,) = self.versions
            return visible(f"Add {version.what} {version.after} to the index")
        return visible(f"Add {plural(len(self.versions), 'version')} of {self.source} to the index")


def propose_index(
    proposal: IndexProposal, branch: IndexBranch | None, pulls: Iterable[PullRequest], inventory: Inventory
) -> Change:
    """Return what happens to the branch and the pull request of a proposal. Pure.

    A fixed point: what was proposed is recognised by its branch and pull request. People's commits on the
    branch stay. A proposal that a person closed is not made again until other versions are there.
    """
    head = short_branch(proposal.ref)
    proposals = sorted((pull for pull in pulls if pull.head == head), key=by_weight)
    last = proposals[-1] if proposals else None
    opened = last if last and last.state is PullState.OPEN else None
    tree = tree_id(proposal.files)

    package, view = _package(proposal.ref, proposal.place), proposal.place.repository
    change = partial(Change, package, view, before=branch.tree if branch else None, tree=tree)
    if inventory.policy.suspend:
        return change(Op.KEEP, Reason.PAUSED, SUSPENDED)
    if branch is not None and branch.is_edited:
        step = f"merge or close pull request #{opened.number}" if opened else f"delete branch {head}"
        message = f"People committed to {head}: {step}, and the next run proposes what is new then"
        return change(Op.KEEP, Reason.DRAFT_EDITED, message, waits=True)
    stands = branch is not None and branch.tree == tree
    if last is not None and opened is None and stands and last.state is PullState.CLOSED:
        message = (
            f"Pull request #{last.number} with these versions was closed: open it again, or delete {head}"
        )
        return change(Op.KEEP, Reason.REJECTED, message, waits=True)
    beside = {path: file.oid for path, file in proposal.beside.items()}
    stands = stands and branch is not None and branch.beside == beside
    place = proposal.place
    pull = PullRequest(head, place.base, proposal.title, "", draft=False)
    pull = lock_pull(pull, opened, inventory, [*proposal.versions, *proposal.pins], proposal.notes)
    doubles = close_duplicates(opened, proposals) if opened else ()
    if stands and opened and is_right(opened, pull) and not doubles:
        return change(Op.KEEP, Reason.UP_TO_DATE, f"Pull request #{opened.number} waits for a review")
    lines = (f"{version.what} {version.after}" for version in proposal.versions)
    message = "\n".join([proposal.title, "", *map(visible, lines), ""])
    commit, expect = place.commit, branch.tip if branch else None
    write = WriteDraft(
        proposal.ref,
        expect,
        commit.oid,
        place.directory,
        proposal.files,
        tree,
        message,
        commit.time,
        beside=proposal.beside,
    )
    return change(
        Op.UPDATE if opened else Op.CREATE,
        Reason.CONTENT_CHANGED,
        writes=() if stands else (write,),
        pull=pull,
        close=doubles,
    )


def withdraw_index(
    ref: str, branch: IndexBranch, pulls: Iterable[PullRequest], inventory: Inventory, place: ProposalPlace
) -> Change | None:
    """Return the end of a branch with nothing left to propose; None for one that people edited."""
    if branch.is_edited or inventory.policy.suspend:
        return None
    comment = "Nothing is left to propose: main has these versions, or nothing needs them any more."
    head = short_branch(ref)
    opened = [pull for pull in pulls if pull.head == head and pull.state is PullState.OPEN]
    closes = tuple(ClosePull(pull.number, pull.head, comment) for pull in opened)
    move = MoveRef(ref, branch.tip, None)
    closing = partial(Change, _package(ref, place), place.repository, Op.CLOSE, Reason.DRAFT_SUPERSEDED)
    return closing(before=branch.tree, writes=(move,), close=closes)


def _package(ref: str, place: ProposalPlace) -> PackageKey:
    is_index = place.directory == INDEX_DIRECTORY
    name = f"{INDEX_DIRECTORY} of {ref.rpartition('/')[2]}" if is_index else place.directory
    return PackageKey(place.url, name)


_SHORT = 8


class ComputedLock(NamedTuple):
    """A whole lock, by path below its directory, what it changes of main's, and its newest input's time.

    `losses` are what goes with the packages that it drops.
    """

    files: Files
    pins: tuple[PinChange, ...]
    time: int
    losses: tuple[Loss, ...] = ()


class MovedPin(NamedTuple):
    """A pin that should change: to what, None for nothing, and the time of the commit it names."""

    variant: ObjectName
    lock: UpstreamLock | None
    change: PinChange
    time: int


def compute_lock(
    reviewed: ReviewedLock,
    inventory: Inventory,
    desired: Desired,
    resolution: Resolution,
    decision: LockUpdate,
) -> ComputedLock:
    """Return the lock that main should have. Pure and order-free.

    A pin that is current stays byte for byte, and so does one that a person holds. One without a variant
    leaves after its package, and only if every manifest was understood. Other files are left alone.
    """
    files = dict(reviewed.files)
    scopes = [*_proposed_scopes(decision, reviewed)]
    pins: list[PinChange] = []
    time = inventory.control.commit.time
    for moved in moved_pins(reviewed.pins, reviewed.broken, resolution):
        pins.append(moved.change)
        _put(files, moved.variant, moved.lock)
        time = max(time, moved.time)
    for key in _unasked(reviewed, inventory, desired):
        pins.append(_removed(reviewed.pins[key], "no variant asks for it"))
        _put(files, key, None)
    moves = lock_changes.by_danger(
        move._replace(clusters=(scope.cluster,))
        for scope in scopes
        for move in lock_changes.cluster_changes(scope)
    )
    dangers = [pin_change(move) for move in moves if move.op.is_dangerous]
    pins = [*dangers, *pins, *map(pin_change, moves[len(dangers) :])]
    others = {path: file for path, file in files.items() if not is_lock_file(f"{LOCKS_DIRECTORY}/{path}")}
    losses = all_losses(LossReader(inventory, replace(decision, scopes=tuple(scopes))).of_locks())
    return ComputedLock(others | _dependency_files(scopes, reviewed), tuple(pins), time, losses)


def _proposed_scopes(decision: LockUpdate, reviewed: ReviewedLock) -> Iterator[ClusterUpdate]:
    """Yield the locks to propose: none that is empty, where a manifest of the first one has no solution now.

    What is proposed for it already stays so.
    """
    there = reviewed.branch.files if reviewed.branch else {}
    proposed = read_locks({f"{LOCKS_DIRECTORY}/{path}": file.data for path, file in there.items()}).by_cluster
    for scope in decision.scopes:
        is_empty = scope.after is None or not scope.after.resolution.packages
        if scope.before is not None or scope.finished or not is_empty:
            yield scope
        elif scope.cluster in proposed:
            yield replace(scope, after=proposed[scope.cluster])


def moved_pins(
    pins: Mapping[ObjectName, UpstreamLock], broken: Container[ObjectName], resolution: Resolution
) -> Iterator[MovedPin]:
    """Yield the pins that are not what their upstreams mean now, by variant; one that is held stays."""
    offered = [(resolved.variant, resolved.offers) for resolved in resolution.variants]
    offered += [(resolved.variant, resolved.offers) for resolved in resolution.waiting]
    for variant, offers in sorted(offered, key=lambda pair: pair[0].key):
        key = variant.key
        lock = lock_pin(key, upstream_data(variant), offers) if offers else None
        change = None if key in broken else _upstream_change(key, lock, pins.get(key))
        if change is not None:
            yield MovedPin(key, lock, change, offers.commit.time if offers else 0)


def with_pins(lock: ComputedLock, chosen: Iterable[UpstreamLock], reviewed: ReviewedLock) -> ComputedLock:
    """Return the lock in which these pins are as a person chose them, whatever else they would be."""
    files, pins = dict(lock.files), {pin.what: pin for pin in lock.pins}
    chosen = tuple(chosen)
    for choice in chosen:
        _put(files, choice.key, choice)
    pins |= {pin.what: pin for pin in pin_changes(chosen, reviewed.pins)}
    return lock._replace(files=files, pins=tuple(pins[what] for what in sorted(pins)))


def pin_changes(
    chosen: Iterable[UpstreamLock], pins: Mapping[ObjectName, UpstreamLock]
) -> Iterator[PinChange]:
    """Yield what a person's choices change."""
    for lock in chosen:
        why = "held by a person" if lock.held else "follows its upstream"
        old = pins.get(lock.key)
        if old != lock:
            yield UpstreamPinChange(f"PackageVariant {lock.key}", _label(old), _label(lock), why)


def _put(files: dict[str, File], key: ObjectName, lock: UpstreamLock | None) -> None:
    path = f"{UPSTREAMS_DIRECTORY}/{key.namespace}/{key.name}.json".removeprefix(f"{LOCKS_DIRECTORY}/")
    files.pop(path, None)
    if lock is not None:
        files[path] = File.of(lock_bytes(lock))


def _upstream_change(key: ObjectName, new: UpstreamLock | None, old: UpstreamLock | None) -> PinChange | None:
    """Return how a variant's pin should change, None if it should stay."""
    if new is None:
        return _removed(old, "names one revision by itself") if old else None
    same = old is not None and old.request == new.request
    if old and same and (old.held or old.commit == new.commit):
        return None
    why = _found_by(new.selector) if same else f"asks for {_request(new.selector)}"
    return UpstreamPinChange(f"PackageVariant {key}", _label(old), _label(new), why)


def _removed(old: UpstreamLock, why: str) -> PinChange:
    return UpstreamPinChange(f"PackageVariant {old.key}", _label(old), "", why)


def _label(lock: UpstreamLock | None) -> str:
    return f"{lock.ref or lock.package}@{lock.commit[:_SHORT]}" if lock else ""


def _request(selector: Mapping[str, object]) -> str:
    return " and ".join(f"{how} {what}" for how, what in sorted(selector.items())) or "the latest revision"


def _found_by(selector: Mapping[str, object]) -> str:
    """Return why a selector finds another commit than it did."""
    if "version" in selector:
        return f"the newest that {selector['version']} allows"
    return f"{_request(selector)} moved" if selector else "the latest published revision"


def _unasked(reviewed: ReviewedLock, inventory: Inventory, desired: Desired) -> Iterator[ObjectName]:
    """Yield the variants with a pin that are certainly gone, and their packages too (law 4)."""
    control = inventory.control
    if not control.readable or control.broken or inventory.stalled or desired.stalled:
        return
    there = {variant.key for variant in desired.variants} | inventory.records.keys()
    yield from sorted(reviewed.pins.keys() - there)


def _dependency_files(scopes: Iterable[ClusterUpdate], reviewed: ReviewedLock) -> dict[str, File]:
    """Return the locks of clusters: main's own bytes where no more changed than what they were made from."""
    files: dict[str, File] = {}
    for scope in scopes:
        settled = scope.before if scope.is_refresh else scope.after
        if settled is not None:
            paths = (formats.lock_path(settled.lock), formats.resolution_path(settled.lock.resolution))
            for full, record in zip(paths, (settled.lock, settled.resolution), strict=True):
                path = full.removeprefix(f"{LOCKS_DIRECTORY}/")
                mine = reviewed.files.get(path) if settled is scope.before else None
                files[path] = mine or File.of(instances.record_bytes(record))
    return files


CONTROL = ObjectName("", "control")
"""How reports call the control repository."""


class LockPlan(NamedTuple):
    """Plan of the lock: its pull request, and the records of what was proposed, with their package."""

    proposal: LockProposal | None = None
    records: Mapping[str, bytes] = {}
    record_owners: Mapping[str, PackageKey] = {}


def plan_lock(inventory: Inventory, fleet: ResolvedFleet) -> LockPlan:
    """Return the pull request of a reviewed lock; nothing where the lock is not reviewed.

    The state records the lock that was proposed last: it distinguishes a proposal that a person
    closed from one that was never made.
    """
    reviewed = inventory.reviewed
    if reviewed is None:
        return LockPlan()
    lock = compute_lock(reviewed, inventory, fleet.desired, fleet.resolution, fleet.wanted_locks)
    # What was not proposed is not recorded either: a person cannot have closed it.
    is_proposed = reviewed.is_open and not inventory.policy.suspend
    tree = _tree(lock.files) if is_proposed else reviewed.computed_tree
    records = {WANTED_LOCK: record_bytes(WantedLockRecord(tree=tree))} if tree else {}
    proposal = propose_lock(lock, reviewed, inventory, _find_veto(inventory))
    return LockPlan(proposal, records, {WANTED_LOCK: lock_package(inventory)})


def _find_veto(inventory: Inventory) -> Held | None:
    """Return why this run proposes no lock."""
    if inventory.control.standing.is_outdated:
        why = f"{inventory.control.standing.sentence}: the pins are decided at the tip"
        return Held(Veto.UPSTREAM, Reason.LOCK_PENDING, why)
    return Held(Veto.PAUSE, Reason.PAUSED, SUSPENDED) if inventory.policy.suspend else None


_Make = Callable[..., Change]
"""Makes the change of the lock from its operation, its reason, a message and what is written."""


def propose_lock(
    lock: ComputedLock, reviewed: ReviewedLock, inventory: Inventory, veto: Held | None = None
) -> LockProposal | None:
    """Return what happens to the branch and the pull request that propose another lock; None for nothing.

    A fixed point: what was proposed is recognised by its branch and pull request, without any state.
    People's changes on the branch stay, file by file. A proposal that a person closed, or reverted on
    main, is not made again until another lock is computed. `veto` holds every effect back.
    """
    if not reviewed.is_open:
        return None
    branch = reviewed.branch
    edited = branch.edited_files if branch else frozenset()
    files = _with_edits(lock.files, branch.files if branch else {}, edited)
    before, after = _tree(branch.files if branch else reviewed.files), _tree(files)
    is_done = after == _tree(reviewed.files)
    if is_done and branch is None:
        return None
    make = partial(Change, lock_package(inventory), CONTROL, before=before)
    if is_done and branch:
        change = _obsolete(branch, reviewed, inventory, partial(make, tree=after))
    else:
        change = _proposed(files, lock, reviewed, inventory, partial(make, tree=after))
    if veto is not None and (veto.reason is Reason.LOCK_PENDING or change.pending):
        change = make(veto.op, veto.reason, veto.why, tree=before)
    if is_done:
        return LockProposal(change)
    return LockProposal(change, lock.pins, tuple(sorted(edited)), lock.losses)


def lock_package(inventory: Inventory) -> PackageKey:
    """Return the key of the lock among packages."""
    return PackageKey(inventory.control.url, LOCKS_DIRECTORY)


def _with_edits(computed: Files, there: Files, edited: Iterable[str]) -> Files:
    files = dict(computed)
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


def _obsolete(branch: LockBranch, reviewed: ReviewedLock, inventory: Inventory, make: _Make) -> Change:
    """Main is what the lock should be: a branch without a person's content goes, and its pull request."""
    is_theirs = branch.edited_files and _tree(branch.files) != _tree(reviewed.files)
    opened = [pull for pull in _pulls(inventory) if pull.state is PullState.OPEN]
    if is_theirs or not branch.only_locks:
        name = short_branch(lock_ref(inventory.policy.instance))
        steps = [*(f"close pull request #{pull.number}" for pull in opened), f"delete branch {name}"]
        message = f"The lock is what it should be; the branch has a person's changes: {' and '.join(steps)}"
        return make(Op.KEEP, Reason.DRAFT_EDITED, message, waits=True)
    comment = "The lock of the main branch is what it should be; nothing is left to propose."
    closes = (ClosePull(pull.number, pull.head, comment) for pull in opened)
    removal = MoveRef(lock_ref(inventory.policy.instance), branch.tip.oid, None)
    return make(Op.CLOSE, Reason.DRAFT_SUPERSEDED, writes=(removal,), close=tuple(closes))


def _refused_text(last: PullRequest, *, stands: bool) -> str:
    """Return why pins are not proposed again after their last pull request ended, and when they are.

    What people merged may be less than was proposed, so nothing tells whether they took these pins back.
    """
    what = f"Pull request #{last.number} with these pins was closed"
    if last.state is not PullState.CLOSED:
        what = f"Pull request #{last.number} was merged, and main does not have these pins"
    elif stands:
        return f"{what}. They are proposed again when they change, or when it is opened again"
    step = "`reconciler lock` in a working copy writes them all the same, to be committed"
    return f"{what}. They are proposed again when they change; {step}"


def _proposed(
    files: Files, lock: ComputedLock, reviewed: ReviewedLock, inventory: Inventory, make: _Make
) -> Change:
    """Propose another lock: one commit on its branch, and one open pull request."""
    branch, pulls = reviewed.branch, _pulls(inventory)
    last = pulls[-1] if pulls else None
    opened = last if last and last.state is PullState.OPEN else None
    stands = branch is not None and _tree(branch.files) == _tree(files)
    again = stands or (branch is None and reviewed.computed_tree == _tree(lock.files))
    if last is not None and opened is None and again:
        is_unmerged = inventory.control.standing.position is Position.UNMERGED
        if is_unmerged and last.state is PullState.MERGED:
            message = f"Pull request #{last.number} was merged; this commit is not, and has other pins"
            return make(Op.KEEP, Reason.LOCK_PENDING, message)
        return make(Op.KEEP, Reason.REJECTED, _refused_text(last, stands=stands), waits=True)
    if branch is not None and branch.renews:
        stands = False  # made anew from main, or merged with it, so that it merges without a conflict
    reason = Reason.DRAFT_EDITED if branch and branch.edited_files else Reason.LOCK_PENDING
    pull = PullRequest(
        short_branch(lock_ref(inventory.policy.instance)), reviewed.base, _title(lock), "", draft=False
    )
    edited = branch.edited_files if branch else ()
    pull = lock_pull(pull, opened, inventory, lock.pins, edited, losses=lock.losses)
    doubles = close_duplicates(opened, pulls) if opened else ()
    if stands and opened and is_right(opened, pull) and not doubles:
        return make(Op.KEEP, reason, f"Pull request #{opened.number} waits for a review")
    writes = () if stands else (_write(files, lock, reviewed, inventory),)
    if stands and opened:
        reason = Reason.PULL_REQUEST_DUPLICATE if doubles else Reason.PULL_REQUEST_OUTDATED
    return make(Op.UPDATE if opened else Op.CREATE, reason, writes=writes, pull=pull, close=doubles)


def _write(
    files: Files, lock: ComputedLock, reviewed: ReviewedLock, inventory: Inventory
) -> WriteDraft | WriteRemoval:
    """Return the one commit on main's head, or appended to people's commits on the branch.

    Main is merged where the lock changed there since, unless that would undo what people did.
    """
    branch = reviewed.branch
    appends = branch is not None and branch.has_foreign_commits
    onto = branch.tip.oid if branch and appends else inventory.control.commit.oid
    ref, expect = lock_ref(inventory.policy.instance), branch.tip.oid if branch else None
    message = "\n".join([_title(lock), "", *map(_line, lock.pins), ""])
    time = max(lock.time, branch.foreign_commit_time if branch else 0)
    tree = _tree(files)
    if tree is None:
        return WriteRemoval(ref, expect, onto, LOCKS_DIRECTORY, message, time)
    merges = inventory.control.commit.oid if branch and appends and branch.renews else None
    return WriteDraft(ref, expect, onto, LOCKS_DIRECTORY, files, tree, message, time, merges)


def _title(lock: ComputedLock) -> str:
    if len(lock.pins) != 1:
        return f"Lock {plural(len(lock.pins), 'change')}"
    (pin,) = lock.pins
    return visible(f"Lock {pin.what} at {pin.after}" if pin.after else f"Drop the lock of {pin.what}")


def _line(pin: PinChange) -> str:
    moves = " -> ".join(part for part in (pin.before, pin.after) if part)
    return visible(f"{pin.what}: {moves} ({pin.why})" if moves else f"{pin.what}: {pin.why}")
