"""The run of `lock`: resolve every pin, and write the lock files."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.apply.outcome import Target
from reconciler.apply.preconditions import Checkout, check_checkout
from reconciler.apply.pulls import lock_texts
from reconciler.apply.repository import apply_repository
from reconciler.apply.state import MOST_TRIES, is_overtaken, write_locks
from reconciler.base.errors import RefusedError, UsageError
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, LockUpdate, ResolveOptions
from reconciler.expand import DesiredVariant, expand
from reconciler.git.urls import local_path
from reconciler.git.working_copy import WorkingCopy, find_working_copy
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.standing import Standing
from reconciler.names.problems import Problem
from reconciler.plan.build import find_unread, with_unread_repositories
from reconciler.plan.changes import Outcome, PinChange, UpstreamPinChange
from reconciler.plan.proposals import (
    ComputedLock,
    compute_lock,
    moved_pins,
    pin_changes,
    propose_lock,
    with_pins,
)
from reconciler.policy import OnUnavailable
from reconciler.read.state import read_working_lock
from reconciler.records.state import LOCKS_DIRECTORY, UpstreamLock, is_floating
from reconciler.resolve.ownership import SUSPENDED
from reconciler.resolve.pins import find_floating, follow, hold, upstream_data
from reconciler.run.options import RunOptions
from reconciler.run.plan import RunInputs, read_inputs, resolve_inputs
from reconciler.workdir.directory import write_directory


class PinRequest(Struct, frozen=True):
    """Requests of a person about floating upstreams: variants to `hold` at a revision, and to `follow` again.

    Keys are NAMESPACE/NAME or NAME of variants; an empty revision holds a variant where it is.
    """

    hold: Mapping[str, str] = field(default_factory=dict)
    follow: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Tell whether there is any request."""
        return bool(self.hold or self.follow)


NO_REQUEST = PinRequest()


class LockResult(Struct, frozen=True):
    """Result of `lock`.

    `decision` are the locks of clusters. `pins` are the changed pins of floating upstreams, `chosen` the
    upstream locks that a person requested. `reviewed` is the complete lock where locks are reviewed.
    `written` and `removed` are files of the working copy, `outcome` are all other effects. `unread` are the
    repositories that could not be read, `invalid` the problems of manifests beside those of `decision`.
    `standing` is the position of the commit that was read. `is_empty` tells that there was nothing to lock.
    """

    decision: LockUpdate
    pins: tuple[PinChange, ...] = ()
    chosen: tuple[UpstreamLock, ...] = ()
    reviewed: ComputedLock | None = None
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)
    unread: Mapping[Problem, OnUnavailable] = field(default_factory=dict)
    invalid: tuple[Problem, ...] = ()
    standing: Standing = Standing()
    is_empty: bool = False

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every problem of the inputs, sorted."""
        return tuple(sorted({*self.invalid, *self.decision.problems}))

    @property
    def deferred(self) -> tuple[PinChange, ...]:
        """Pins that only `apply` moves, together with the drafts made from them."""
        if self.reviewed is not None:
            return ()
        requested = {f"PackageVariant {lock.key}" for lock in self.chosen}
        return tuple(pin for pin in self.pins if pin.what not in requested)

    @property
    def changed(self) -> bool:
        """Whether any lock is out of date."""
        return self.decision.changed or bool(self.pins)


def read_lock_inputs(options: RunOptions) -> RunInputs:
    """Read everything; a reviewed lock from the working copy, committed or not."""
    inputs = read_inputs(options)
    copy = _working_copy(options)
    if copy is None or inputs.inventory.reviewed is None:
        return inputs
    reviewed = read_working_lock(copy.root / LOCKS_DIRECTORY, inputs.inventory.reviewed)
    return replace(inputs, inventory=replace(inputs.inventory, reviewed=reviewed))


def decide_lock(
    inputs: RunInputs, resolve_options: ResolveOptions = DEFAULT_OPTIONS, request: PinRequest = NO_REQUEST
) -> LockResult:
    """Resolve every pin, starting from the present locks. Writes nothing.

    An upgrade of a variant's name lets that variant follow its upstream again. A `request` moves the pins
    that it names and no other.

    Raises:
        UsageError: The options name a variant or package that does not exist.
    """
    inventory = inputs.inventory
    variants = expand(inventory).variants
    released = frozenset(name for name in resolve_options.upgrade if find_floating(variants, name))
    resolve_options = resolve_options._replace(upgrade=resolve_options.upgrade - released)
    fleet = resolve_inputs(inputs, resolve_options)
    problems = {*inventory.problems, *fleet.desired.problems, *fleet.resolution.problems}
    problems = {*with_unread_repositories(problems - {*fleet.locks.problems}, inventory)}
    chosen = tuple(_chosen(variants, inventory, replace(request, follow=request.follow | released)))
    result = LockResult(
        LockUpdate() if request else fleet.wanted_locks,
        chosen=chosen,
        unread=find_unread(inventory),
        standing=inventory.control.standing,
        is_empty=not fleet.clusters.worlds and not any(is_floating(upstream_data(v)) for v in variants),
        invalid=tuple(sorted(p for p in problems if p.reason != Reason.REPOSITORY_UNAVAILABLE)),
    )
    if inventory.control.standing.is_outdated:
        return result  # pins are decided at the tip
    present = inventory.reviewed
    if request:
        pins = tuple(pin_changes(chosen, present.pins if present else inventory.locks))
        there = ComputedLock(present.files, (), 0) if present else None
        reviewed = with_pins(there, chosen, present) if there and present else None
        return replace(result, pins=pins, reviewed=reviewed)
    if present is None:
        changes = {
            moved.change.what: moved.change for moved in moved_pins(inventory.locks, (), fleet.resolution)
        }
        changes |= {change.what: change for change in pin_changes(chosen, inventory.locks)}
        return replace(result, pins=tuple(sorted(changes.values())))
    lock = compute_lock(present, inventory, fleet.desired, fleet.resolution, fleet.wanted_locks)
    lock = with_pins(lock, chosen, present)
    pins = tuple(pin for pin in lock.pins if isinstance(pin, UpstreamPinChange))
    return replace(result, pins=pins, reviewed=lock)


def lock_fleet(
    options: RunOptions, resolve_options: ResolveOptions = DEFAULT_OPTIONS, request: PinRequest = NO_REQUEST
) -> LockResult:
    """Resolve the lock and write it: to the state branch, to the working copy, or as a pull request.

    The state branch moves by compare-and-swap. If another run wrote first, everything is read and
    resolved again: locks are never merged, and no generation is skipped or used twice. Each round lets
    one writer through. A reviewed lock is written to the working copy, for a person to commit; without
    a working copy the pull request that `apply` would open is opened.

    Raises:
        UsageError: The options name a variant that does not exist, or need a working copy.
        RefusedError: The lock would be written for everybody, and the commit is not merged, or every change
            is suspended.
    """
    result, is_stale = _lock_once(options, resolve_options, request)
    for _ in range(MOST_TRIES):
        if not is_stale:
            break
        result, is_stale = _lock_once(options, resolve_options, request)
    return result


def _lock_once(
    options: RunOptions, resolve_options: ResolveOptions, request: PinRequest
) -> tuple[LockResult, bool]:
    """Return the result of one attempt, and whether another run wrote first."""
    inputs, copy = read_lock_inputs(options), _working_copy(options)
    inventory, control = inputs.inventory, inputs.mirrors.open(inputs.inventory.control.remote)
    is_shared = inventory.reviewed is None or copy is None
    # A lock on the state branch or in a pull request is shared: only a merged commit may change it. Files in
    # a working copy are for a commit on its branch: an unmerged one may be checked out, an outdated one not.
    if is_shared or inventory.control.standing.is_outdated:
        checkout = Checkout.of(inventory.control)
        check_checkout(checkout, control.head_branch if is_shared else checkout.branch)
    result = decide_lock(inputs, resolve_options, request)
    if is_shared:
        _check_active(result, inventory, request)
    if result.reviewed is None:
        files = None if request else result.decision.files
        written = write_locks(inventory, control, files, result.chosen)
        outcome = Outcome(written.effects, written.exits)
        return replace(result, outcome=outcome), is_overtaken(inventory, control, written)
    if copy is not None:
        paths = tuple(_write(copy, result.reviewed, inventory))
        removed = tuple(path for path in paths if not (copy.root / path).exists())
        return replace(result, written=tuple(p for p in paths if p not in removed), removed=removed), False
    if request or resolve_options != DEFAULT_OPTIONS:
        hint = "Clone the control repository and run the command there; commit what it writes."
        raise UsageError("What is chosen for a reviewed lock is written in a working copy", hint=hint)
    return replace(result, outcome=_propose(inputs, result.reviewed)), False


def _check_active(result: LockResult, inventory: Inventory, request: PinRequest) -> None:
    """Refuse to change a lock that everybody shares while the configuration suspends every change."""
    if inventory.policy.suspend and (request or result.decision.changed):
        hint = "Set spec.suspend to false in reconciler.yaml; `reconciler lock --check` shows the decision."
        raise RefusedError(SUSPENDED, hint=hint)


def _chosen(
    variants: Sequence[DesiredVariant], inventory: Inventory, request: PinRequest
) -> Iterator[UpstreamLock]:
    locks = inventory.locks if inventory.reviewed is None else inventory.reviewed.pins
    for name, revision in sorted(request.hold.items()):
        variant = _named(variants, name, inventory)
        yield hold(variant, revision, locks.get(variant.key), inventory)
    for name in sorted(request.follow):
        yield follow(_named(variants, name, inventory), inventory)


def _named(variants: Sequence[DesiredVariant], name: str, inventory: Inventory) -> DesiredVariant:
    variant = find_floating(variants, name)
    if variant is None:
        hint = "Name one whose upstream floats: a revision or a workspace in a manifest holds it already."
        if inventory.stalled or inventory.problems:
            hint += " Manifests that could not be read are named by `reconciler lock`."
        # A variant of that name exists, but its upstream does not float: no other name is meant.
        exists = any(name in (str(variant.key), variant.key.name) for variant in variants)
        keys = [variant.key for variant in variants if not exists and is_floating(upstream_data(variant))]
        hint = suggest(name, [spelled for key in keys for spelled in (str(key), key.name)], otherwise=hint)
        raise UsageError(f"No PackageVariant with a floating upstream is called {name}", hint=hint)
    return variant


def _working_copy(options: RunOptions) -> WorkingCopy | None:
    path = local_path(options.control)
    return find_working_copy(path) if path else None


def _write(copy: WorkingCopy, lock: ComputedLock, inventory: Inventory) -> Iterator[str]:
    """Write the lock into a working copy, completely or not at all; yield the files that changed."""
    before = inventory.reviewed.files if inventory.reviewed else {}
    paths = sorted(before.keys() | lock.files.keys())
    changed = [path for path in paths if before.get(path) != lock.files.get(path)]
    if changed:
        directory = copy.root / LOCKS_DIRECTORY
        write_directory(lock.files, directory, replaces=directory)
    yield from (f"{LOCKS_DIRECTORY}/{path}" for path in changed)


def _propose(inputs: RunInputs, lock: ComputedLock) -> Outcome:
    """Open or update the pull request that `apply` would open, and nothing else."""
    inventory = inputs.inventory
    proposal = propose_lock(lock, inventory.reviewed, inventory) if inventory.reviewed else None
    if proposal is None:
        return Outcome()
    policy, control = inventory.policy, inputs.mirrors.open(inventory.control.remote)
    forge, texts = inputs.forges.of(control), lock_texts(proposal)
    target = Target(control, forge, policy.commits, inputs.names, texts=texts)
    result = apply_repository(target, [proposal.change])
    return Outcome(result.effects, result.exits)
