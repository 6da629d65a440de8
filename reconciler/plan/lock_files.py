"""The reviewed lock as it should be: every pin that is asked for, and how that differs from main's (D3)."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.dependencies.lock.format import (
    ClusterLock,
    LockOp,
    is_lock_file,
    lock_changes,
    lock_path,
    record_bytes,
    resolution_path,
)
from reconciler.dependencies.lock.format import Resolution as DependencyResolution
from reconciler.dependencies.update.fleet import ClusterUpdate, LockUpdate
from reconciler.expand import Desired
from reconciler.ids import ObjectName
from reconciler.inventory import Inventory, ReviewedLock
from reconciler.lock import LOCKS_DIRECTORY, UPSTREAMS_DIRECTORY, UpstreamLock, lock_bytes
from reconciler.objects import File, Files
from reconciler.plan.changes import PinChange
from reconciler.resolve.locked import lock_pin, upstream_data
from reconciler.resolve.resolution import Resolution

_SHORT = 8
_WHY = {
    LockOp.ADD: "asked for",
    LockOp.CHANGE: "decided anew",
    LockOp.REMOVE: "not asked for any more",
}


class WantedLock(NamedTuple):
    """A whole lock, by path below its directory, what it changes of main's, and its newest input's time."""

    files: Files
    pins: tuple[PinChange, ...]
    time: int


class MovedPin(NamedTuple):
    """A pin that should change: to what, None for nothing, and the time of the commit it names."""

    variant: ObjectName
    lock: UpstreamLock | None
    change: PinChange
    time: int


def want_lock(
    reviewed: ReviewedLock,
    inventory: Inventory,
    desired: Desired,
    resolution: Resolution,
    decision: LockUpdate,
) -> WantedLock:
    """Return the lock that main should have. Pure and order-free.

    A pin that is current stays byte for byte, and so does one that a person holds. One that nobody
    asks for leaves after its package, and only where every manifest was understood; what is not a
    lock is left alone.
    """
    files = dict(reviewed.files)
    pins: list[PinChange] = []
    time = inventory.control.commit.time
    for moved in moved_pins(reviewed.pins, reviewed.broken, resolution):
        pins.append(moved.change)
        _put(files, moved.variant, moved.lock)
        time = max(time, moved.time)
    for key in _unasked(reviewed, inventory, desired):
        pins.append(_removed(reviewed.pins[key], "no variant asks for it"))
        _put(files, key, None)
    pins += _dependency_pins(decision)
    kept = {path: file for path, file in files.items() if not is_lock_file(f"{LOCKS_DIRECTORY}/{path}")}
    return WantedLock(kept | _dependency_files(decision, reviewed), tuple(pins), time)


def moved_pins(
    pins: Mapping[ObjectName, UpstreamLock], broken: Container[ObjectName], resolution: Resolution
) -> Iterator[MovedPin]:
    """Yield the pins that are not what their upstreams mean now, by variant; one that is held stays."""
    asked = [(one.variant, one.offers) for one in resolution.variants]
    asked += [(one.variant, one.offers) for one in resolution.waiting]
    for variant, offers in sorted(asked, key=lambda one: one[0].key):
        key = variant.key
        lock = lock_pin(key, upstream_data(variant), offers) if offers else None
        change = None if key in broken else _upstream_change(key, lock, pins.get(key))
        if change is not None:
            yield MovedPin(key, lock, change, offers.commit.time if offers else 0)


def with_pins(wanted: WantedLock, chosen: Iterable[UpstreamLock], reviewed: ReviewedLock) -> WantedLock:
    """Return the lock in which these pins are as a person chose them, whatever else they would be."""
    files, pins = dict(wanted.files), {pin.what: pin for pin in wanted.pins}
    chosen = tuple(chosen)
    for lock in chosen:
        _put(files, lock.key, lock)
    pins |= {pin.what: pin for pin in pin_changes(chosen, reviewed.pins)}
    return wanted._replace(files=files, pins=tuple(pins[what] for what in sorted(pins)))


def pin_changes(
    chosen: Iterable[UpstreamLock], pins: Mapping[ObjectName, UpstreamLock]
) -> Iterator[PinChange]:
    """Yield what a person's choices change."""
    for lock in chosen:
        why = "held by a person" if lock.held else "follows its upstream"
        old = pins.get(lock.key)
        if old != lock:
            yield PinChange(f"PackageVariant {lock.key}", _label(old), _label(lock), why)


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
    return PinChange(f"PackageVariant {key}", _label(old), _label(new), why)


def _removed(old: UpstreamLock, why: str) -> PinChange:
    return PinChange(f"PackageVariant {old.key}", _label(old), "", why)


def _label(lock: UpstreamLock | None) -> str:
    return f"{lock.ref or lock.package}@{lock.commit[:_SHORT]}" if lock else ""


def _request(selector: Mapping[str, Any]) -> str:
    return " and ".join(f"{how} {what}" for how, what in sorted(selector.items())) or "the latest revision"


def _found_by(selector: Mapping[str, Any]) -> str:
    """Return why a selector finds another commit than it did."""
    if "version" in selector:
        return f"the newest that {selector['version']} allows"
    return f"{_request(selector)} moved" if selector else "the latest published revision"


def _unasked(reviewed: ReviewedLock, inventory: Inventory, desired: Desired) -> Iterator[ObjectName]:
    """Yield the variants that have a pin, are gone for certain, and whose package is settled (law 4)."""
    control = inventory.control
    if not control.readable or control.broken or inventory.stalled or desired.stalled:
        return
    there = {variant.key for variant in desired.variants} | inventory.records.keys()
    yield from sorted(reviewed.pins.keys() - there)


def _dependency_files(decision: LockUpdate, reviewed: ReviewedLock) -> dict[str, File]:
    """Return the locks of clusters: main's own bytes where no more changed than what they were made from."""
    found: dict[str, File] = {}
    for scope in decision.scopes:
        one = _settled(scope)
        if one is not None:
            paths = (lock_path(one.lock), resolution_path(one.lock.resolution))
            for full, record in zip(paths, (one.lock, one.resolution), strict=True):
                path = full.removeprefix(f"{LOCKS_DIRECTORY}/")
                mine = reviewed.files.get(path) if one is scope.before else None
                found[path] = mine or File.of(record_bytes(record))
    return found


def _settled(scope: ClusterUpdate) -> ClusterLock | None:
    before, after = scope.before, scope.after
    return before if before and after and before.resolution == after.resolution else after


def _dependency_pins(decision: LockUpdate) -> Iterator[PinChange]:
    nothing = DependencyResolution()
    for scope in decision.scopes:
        one = _settled(scope)
        before = scope.before.resolution if scope.before else nothing
        changes = lock_changes(before, one.resolution if one else nothing)
        for change in changes:
            what = f"cluster {scope.cluster}: {change.instance}"
            yield PinChange(what, change.before, change.after, _WHY[change.op])
        if not changes and one != scope.before:
            yield PinChange(f"cluster {scope.cluster}", "", "", "how its needs are met")
