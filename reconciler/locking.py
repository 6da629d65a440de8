"""The run of the `lock` command: resolve every pin, and write the lock files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.apply.directory import write_directory
from reconciler.apply.gate import Checkout, check_merged
from reconciler.apply.locks import is_overtaken, write_locks
from reconciler.apply.repository import apply_repository
from reconciler.apply.reviewed import lock_change
from reconciler.apply.state import MOST_TRIES
from reconciler.apply.target import Target
from reconciler.dependencies.update.cluster import DEFAULT_OPTIONS, ResolveOptions
from reconciler.dependencies.update.fleet import LockUpdate
from reconciler.errors import Problem, UsageError
from reconciler.expand import DesiredVariant, expand
from reconciler.git.urls import local_path
from reconciler.git.working_copy import WorkingCopy, find_working_copy
from reconciler.inventory import Inventory
from reconciler.lock import LOCKS_DIRECTORY, UpstreamLock
from reconciler.plan.changes import Outcome, PinChange
from reconciler.plan.lock_files import WantedLock, moved_pins, pin_changes, want_lock, with_pins
from reconciler.plan.reviewed import propose_lock
from reconciler.plan.unread import find_unread
from reconciler.policy import OnUnavailable
from reconciler.read.locks import read_working_lock
from reconciler.reasons import Reason
from reconciler.resolve.holding import find_floating, follow, hold
from reconciler.run import Settings, World, close_world, read_world


@dataclass(frozen=True, slots=True)
class Pinning:
    """What a person says of floating upstreams: variants to `hold`, at what, and those that `follow` again.

    Variants are called NAMESPACE/NAME, or NAME; they are held where they are if nothing else is said.
    """

    hold: Mapping[str, str] = field(default_factory=dict)
    follow: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything is said."""
        return bool(self.hold or self.follow)


NOTHING = Pinning()


@dataclass(frozen=True, slots=True)
class Locking:
    """What `lock` decided.

    `decision` is about dependencies. `pins` are those of floating upstreams that are not what the lock
    says, `chosen` what a person made of some. `wanted` is the whole lock where it is reviewed. `written`
    are files of the working copy, `outcome` is what was written elsewhere. Of repositories in `unread`
    nothing is known. `wrong` are manifests whose pins could not be decided, beside those of `decision`.
    """

    decision: LockUpdate
    pins: tuple[PinChange, ...] = ()
    chosen: tuple[UpstreamLock, ...] = ()
    wanted: WantedLock | None = None
    written: tuple[str, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)
    unread: Mapping[Problem, OnUnavailable] = field(default_factory=dict)
    wrong: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong with what was read, sorted."""
        return tuple(sorted({*self.wrong, *self.decision.problems}))

    @property
    def changed(self) -> bool:
        """Whether any lock is not what it should be."""
        return self.decision.changed or bool(self.pins)


def read_lock_world(settings: Settings) -> World:
    """Read everything; a reviewed lock as it stands in the working copy, committed or not."""
    world = read_world(settings)
    copy = _working_copy(settings)
    if copy is None or world.inventory.reviewed is None:
        return world
    reviewed = read_working_lock(copy.root / LOCKS_DIRECTORY, world.inventory.reviewed)
    return replace(world, inventory=replace(world.inventory, reviewed=reviewed))


def decide_lock(
    world: World, wishes: ResolveOptions = DEFAULT_OPTIONS, pinning: Pinning = NOTHING
) -> Locking:
    """Decide every pin, starting from what is locked. Writes nothing.

    A name to upgrade that is a variant's lets that variant follow its upstream again.

    Raises:
        UsageError: A person names something that there is not.
    """
    inventory = world.inventory
    variants = expand(inventory).variants
    released = frozenset(name for name in wishes.upgrade if find_floating(variants, name))
    closed = close_world(world, wishes._replace(upgrade=wishes.upgrade - released))
    found = {*inventory.problems, *closed.desired.problems, *closed.resolution.problems}
    found -= set(closed.decision.problems)
    wrong = tuple(sorted(p for p in found if p.reason != Reason.REPOSITORY_UNAVAILABLE))
    unread = find_unread(inventory)
    chosen = tuple(_chosen(variants, inventory, replace(pinning, follow=pinning.follow | released)))
    if inventory.reviewed is None:
        moved = moved_pins(inventory.locks, (), closed.resolution)
        said = {change.what: change for change in pin_changes(chosen, inventory.locks)}
        said = {**{one.change.what: one.change for one in moved}, **said}
        pins = tuple(sorted(said.values()))
        return Locking(closed.wanted, pins, chosen, unread=unread, wrong=wrong)
    wanted = want_lock(inventory.reviewed, inventory, closed.desired, closed.resolution, closed.wanted)
    wanted = with_pins(wanted, chosen, inventory.reviewed)
    pins = tuple(pin for pin in wanted.pins if pin.what.startswith("PackageVariant "))
    return Locking(closed.wanted, pins, chosen, wanted, unread=unread, wrong=wrong)


def lock_fleet(
    settings: Settings, wishes: ResolveOptions = DEFAULT_OPTIONS, pinning: Pinning = NOTHING
) -> Locking:
    """Decide the lock and write it: to the state branch, to the working copy, or as a pull request.

    On the state branch by compare-and-swap. Where another run wrote first, everything is read and
    decided again from what it wrote: no lock is ever merged, and no generation skipped or given twice.
    Each round lets one writer through. Where locks are reviewed, a working copy gets the files, for a
    person to commit; without one the pull request that `apply` would open is opened.

    Raises:
        UsageError: A person names something that there is not, or wants it written where nobody could.
        RefusedError: The commit is not merged, and its lock would be written for everybody.
    """
    locking, overtaken = _lock_once(settings, wishes, pinning)
    for _ in range(MOST_TRIES):
        if not overtaken:
            break
        locking, overtaken = _lock_once(settings, wishes, pinning)
    return locking


def _lock_once(settings: Settings, wishes: ResolveOptions, pinning: Pinning) -> tuple[Locking, bool]:
    world = read_lock_world(settings)
    locking = decide_lock(world, wishes, pinning)
    inventory, control = world.inventory, world.mirrors.open(world.inventory.control.remote)
    copy = _working_copy(settings)
    if locking.wanted is None or copy is None:
        check_merged(Checkout.of(inventory.control), control.head_branch)
    if locking.wanted is None:
        result = write_locks(inventory, control, locking.decision.files, locking.chosen)
        outcome = Outcome(result.effects, result.exits)
        return replace(locking, outcome=outcome), is_overtaken(inventory, control, result)
    if copy is not None:
        return replace(locking, written=tuple(_write(copy, locking.wanted, inventory))), False
    if pinning or wishes != DEFAULT_OPTIONS:
        hint = "Clone the control repository and run the command there; commit what it writes."
        raise UsageError("What is chosen for a reviewed lock is written in a working copy", hint=hint)
    return replace(locking, outcome=_propose(world, locking.wanted)), False


def _chosen(
    variants: Sequence[DesiredVariant], inventory: Inventory, pinning: Pinning
) -> Iterator[UpstreamLock]:
    locks = inventory.locks if inventory.reviewed is None else inventory.reviewed.pins
    for name, what in sorted(pinning.hold.items()):
        variant = _named(variants, name, inventory)
        yield hold(variant, what, locks.get(variant.key), inventory)
    for name in sorted(pinning.follow):
        yield follow(_named(variants, name, inventory), inventory)


def _named(variants: Sequence[DesiredVariant], name: str, inventory: Inventory) -> DesiredVariant:
    variant = find_floating(variants, name)
    if variant is None:
        hint = "One whose upstream names a revision or a workspace is held by its manifest already."
        if inventory.stalled or inventory.problems:
            hint += " Manifests that could not be read are named by `reconciler lock`."
        raise UsageError(f"No PackageVariant with a floating upstream is called {name}", hint=hint)
    return variant


def _working_copy(settings: Settings) -> WorkingCopy | None:
    path = local_path(settings.control)
    return find_working_copy(path) if path else None


def _write(copy: WorkingCopy, wanted: WantedLock, inventory: Inventory) -> Iterator[str]:
    """Write the lock into a working copy, whole or not at all; yield the files that differ now."""
    before = inventory.reviewed.files if inventory.reviewed else {}
    paths = sorted(before.keys() | wanted.files.keys())
    changed = [path for path in paths if before.get(path) != wanted.files.get(path)]
    if changed:
        directory = copy.root / LOCKS_DIRECTORY
        write_directory(wanted.files, directory, replaces=directory)
    yield from (f"{LOCKS_DIRECTORY}/{path}" for path in changed)


def _propose(world: World, wanted: WantedLock) -> Outcome:
    """Open or update the pull request that `apply` would, and nothing else."""
    inventory = world.inventory
    proposal = propose_lock(wanted, inventory.reviewed, inventory) if inventory.reviewed else None
    if proposal is None:
        return Outcome()
    policy, control = inventory.policy, world.mirrors.open(inventory.control.remote)
    target = Target(control, world.forges.of(control), policy.commits, world.names)
    result = apply_repository(target, [lock_change(proposal)])
    return Outcome(result.effects, result.exits)
