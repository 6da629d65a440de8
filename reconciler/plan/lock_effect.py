"""What merging a change does to the locks: every pin that differs between its two sides."""

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from reconciler.dependencies.lock.format import LockOp, lock_changes
from reconciler.dependencies.lock.format import Resolution as DependencyResolution
from reconciler.dependencies.lock.read import read_locks
from reconciler.inventory import Inventory
from reconciler.lock import LOCKS_DIRECTORY, UPSTREAMS_DIRECTORY, UpstreamLock
from reconciler.plan.changes import PinChange, Plan

LockFiles = Mapping[str, bytes]

_SHORT = 12
_WHY = {
    LockOp.ADD: "newly needed",
    LockOp.CHANGE: "another version is decided",
    LockOp.REMOVE: "nobody needs it any more",
}


def lock_files(inventory: Inventory, plan: Plan | None) -> LockFiles:
    """Return the files of the locks that count on one side of a change, by path on the state branch.

    A reviewed lock is what main holds, whatever would be proposed; any other is what the plan would
    record, so without a plan nothing is known of it.
    """
    if inventory.reviewed is not None:
        return {f"{LOCKS_DIRECTORY}/{path}": file.data for path, file in inventory.reviewed.files.items()}
    records = plan.records if plan else {}
    return {path: data for path, data in records.items() if path.startswith(f"{LOCKS_DIRECTORY}/")}


def compare_locks(before: LockFiles, after: LockFiles) -> tuple[PinChange, ...]:
    """Return every pin that differs, upstreams first, each sorted by what it is of. Total and pure."""
    return (*_upstreams(_pins(before), _pins(after)), *_dependencies(before, after))


def _pins(files: LockFiles) -> dict[str, UpstreamLock]:
    """Return the pins of upstreams by variant; one that cannot be read is a problem of its own elsewhere."""
    found = {}
    for path, data in files.items():
        if path.startswith(f"{UPSTREAMS_DIRECTORY}/"):
            try:
                lock = UpstreamLock.model_validate_json(data)
            except ValidationError:
                continue
            found[str(lock.key)] = lock
    return found


def _upstreams(before: Mapping[str, UpstreamLock], after: Mapping[str, UpstreamLock]) -> Iterator[PinChange]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if _label(old) != _label(new):
            yield PinChange(f"PackageVariant {name}", _label(old), _label(new), _why(old, new))


def _why(old: UpstreamLock | None, new: UpstreamLock | None) -> str:
    if new is None:
        return "no variant floats there any more"
    if new.held:
        return "held by a person"
    if old is None:
        return "takes its first pin"
    return "asks for another upstream" if old.request != new.request else "follows its upstream"


def _label(lock: UpstreamLock | None) -> str:
    return f"{lock.ref or lock.package}@{lock.commit[:_SHORT]}" if lock else ""


def _dependencies(before: LockFiles, after: LockFiles) -> Iterator[PinChange]:
    old, new = read_locks(before).by_cluster, read_locks(after).by_cluster
    nothing = DependencyResolution()
    for cluster in sorted(old.keys() | new.keys()):
        sides = (found[cluster].resolution if cluster in found else nothing for found in (old, new))
        for change in lock_changes(*sides):
            what = f"cluster {cluster}: {change.instance}"
            yield PinChange(what, change.before, change.after, _WHY[change.op])
