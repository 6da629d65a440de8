"""What becomes of revisions and of what they bring, as lines: what runs now, what waits, what is kept."""

from collections.abc import Iterator, Mapping

from reconciler.dependencies.lock.format import (
    ActivationBlocker,
    ClusterLock,
    LockedPackage,
    LockedRevision,
    OwnershipEntry,
    Resolution,
    ownership_entries,
    package_name,
)
from reconciler.dependencies.lock.write import USER
from reconciler.dependencies.update.fleet import ClusterUpdate


def lifecycle_lines(scope: ClusterUpdate) -> Iterator[str]:
    """Yield what changes for the revisions, owners and kinds of a cluster, and what waits for a person."""
    before, after = scope.before, scope.after
    if after is None:
        return
    yield from _revision_lines(before, after)
    yield from _owner_lines(before.resolution if before else Resolution(), after.resolution)
    yield from _kind_lines(before.resolution if before else Resolution(), after.resolution)
    for one in after.resolution.packages:
        if one.unavailable:
            yield f"unavailable: {one.instance} {one.version} is no longer published; it stays"
    for instance in after.resolution.unused:
        yield f"unused: {instance} stays, though nobody needs it; `lock --prune` removes it"


def _revision_lines(before: ClusterLock | None, after: ClusterLock) -> Iterator[str]:
    known = _by_name(before)
    now = _by_name(after)
    for one in after.lock.revisions:
        old = known.get((one.package, one.name))
        if old is None or (old.revision, old.desired_state) != (one.revision, one.desired_state):
            state = f"{one.desired_state}{f', was {old.desired_state}' if old else ''}"
            yield f"revision {one.revision} of {one.package}: {one.name} {state}"
        if one.awaits:
            yield f"revision {one.revision} of {one.package} {_waiting(one)}"
    there = {one.object for one in after.resolution.packages}
    for key, gone in known.items():
        if key not in now:
            why = "beyond the history limit" if gone.package in there else "its package is gone"
            yield f"revision {gone.revision} of {gone.package}: {gone.name} removed, {why}"


def _waiting(one: LockedRevision) -> str:
    match one.awaits:
        case ActivationBlocker.PERSON:
            kind = f"{one.package.partition('/')[0]}Revision"
            return f"awaits activation: say desiredState: Active in a {kind} {one.name}"
        case ActivationBlocker.PARENTS:
            return "waits until one of those who need it is activated"
        case _:
            return "waits until what it brings is let go of"


def _by_name(locked: ClusterLock | None) -> Mapping[tuple[str, str], LockedRevision]:
    return {(one.package, one.name): one for one in (locked.lock.revisions if locked else ())}


def _owner_lines(before: Resolution, after: Resolution) -> Iterator[str]:
    """Yield whose a package is now that was another's."""
    known = {one.instance: one for one in before.packages}
    for one in after.packages:
        old = known.get(one.instance)
        if old is not None and old.owner != one.owner and one.owner:
            yield f"{one.instance} belongs to {_owner(one)} now, and not to {_owner(old)}"


def _owner(one: LockedPackage) -> str:
    return "a manifest" if one.owner == USER else one.owner or "nobody"


def _kind_lines(before: Resolution, after: Resolution) -> Iterator[str]:
    """Yield which kinds change hands, and which lose who controls them."""
    known, now = dict(ownership_entries(before)), dict(ownership_entries(after))
    for name, entry in now.items():
        old = known.get(name)
        if old is None or (old.package, bool(old.controller)) == (entry.package, bool(entry.controller)):
            continue
        yield f"{name} {_fate(old, entry)}"
    for name in sorted(known.keys() - now.keys()):
        yield f"{name} goes: no revision has it any more"


def _fate(old: OwnershipEntry, entry: OwnershipEntry) -> str:
    if not entry.controller:
        owners = f", owned by {', '.join(entry.owners)}" if entry.owners else ""
        return f"stays without a controller{owners}: its objects may be data"
    if old.package and old.package != entry.package:
        return f"is taken over from {package_name(old.package)} by {package_name(entry.package)}"
    return f"is controlled by {entry.controller}"
