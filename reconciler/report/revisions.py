"""Lines about revisions, owners and CRDs of one cluster that change or wait."""

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
    for package in after.resolution.packages:
        if package.unavailable:
            yield f"unavailable: {package.instance} {package.version} is no longer published; it stays"
    for instance in after.resolution.unused:
        yield f"unused: {instance} is no longer needed; `lock --prune` removes it"


def _revision_lines(before: ClusterLock | None, after: ClusterLock) -> Iterator[str]:
    old_revisions, revisions = _by_name(before), _by_name(after)
    for key, revision in revisions.items():
        old = old_revisions.get(key)
        if old is None or (old.revision, old.desired_state) != (revision.revision, revision.desired_state):
            state = f"{revision.desired_state}{f', was {old.desired_state}' if old else ''}"
            yield f"revision {revision.revision} of {revision.package}: {revision.name} {state}"
        if revision.awaits:
            yield f"revision {revision.revision} of {revision.package} {_waiting(revision)}"
    packages = {package.object for package in after.resolution.packages}
    for key, gone in old_revisions.items():
        if key not in revisions:
            why = "beyond the history limit" if gone.package in packages else "its package is gone"
            yield f"revision {gone.revision} of {gone.package}: {gone.name} removed, {why}"


def _waiting(revision: LockedRevision) -> str:
    match revision.awaits:
        case ActivationBlocker.PERSON:
            kind = f"{revision.package.partition('/')[0]}Revision"
            return f"awaits activation: set desiredState: Active in a {kind} {revision.name}"
        case ActivationBlocker.PARENTS:
            return "waits until a package that needs it is activated"
        case _:
            return "waits until the current owner releases its CRDs"


def _by_name(locked: ClusterLock | None) -> Mapping[tuple[str, str], LockedRevision]:
    return {(r.package, r.name): r for r in (locked.lock.revisions if locked else ())}


def _owner_lines(before: Resolution, after: Resolution) -> Iterator[str]:
    """Yield the packages that another owner has now."""
    old_packages = {package.instance: package for package in before.packages}
    for package in after.packages:
        old = old_packages.get(package.instance)
        if old is not None and old.owner != package.owner and package.owner:
            yield f"{package.instance} belongs to {_owner(package)} now, and not to {_owner(old)}"


def _owner(package: LockedPackage) -> str:
    return "a manifest" if package.owner == USER else package.owner or "nobody"


def _kind_lines(before: Resolution, after: Resolution) -> Iterator[str]:
    """Yield the CRDs that another package controls now, and those without a controller."""
    old_entries, entries = dict(ownership_entries(before)), dict(ownership_entries(after))
    for name, entry in entries.items():
        old = old_entries.get(name)
        if old is None or (old.package, bool(old.controller)) == (entry.package, bool(entry.controller)):
            continue
        yield f"{name} {_fate(old, entry)}"
    for name in sorted(old_entries.keys() - entries.keys()):
        yield f"{name} is removed: no revision has it any more"


def _fate(old: OwnershipEntry, entry: OwnershipEntry) -> str:
    if not entry.controller:
        owners = f", owned by {', '.join(entry.owners)}" if entry.owners else ""
        return f"stays without a controller{owners}: its objects may be data"
    if old.package and old.package != entry.package:
        return f"is taken over from {package_name(old.package)} by {package_name(entry.package)}"
    return f"is controlled by {entry.controller}"
