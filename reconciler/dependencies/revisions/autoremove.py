"""Remove packages that nothing needs any more, and retain those that must stay."""

from collections.abc import Iterable, Iterator

import msgspec

from reconciler.dependencies.lock.format import LockedInstance, LockedPackage, Resolution
from reconciler.dependencies.lock.read import SHARED_SLOT_KINDS
from reconciler.dependencies.lock.write import USER, locked_instance
from reconciler.dependencies.model.cluster import ClusterInputs, Instance, SlotKind
from reconciler.dependencies.solve.solution import Solution


def autoremove(
    fresh: Resolution, before: Resolution, *, needed: frozenset[str] = frozenset(), prune: bool = False
) -> Resolution:
    """Remove packages that nothing needs any more; retained ones are listed as unused. Order-free.

    Marks from the users' packages over every requirement, those of parts that keep their lock included.
    Packages that a user removed go. Generated packages go if all of their former parents allow it
    (`uninstall`) and they have no data to keep; else they stay, with everything that they need.

    Args:
        fresh: The new resolution, with the locked parts that have no solution.
        before: The locked resolution.
        needed: Instances that a running revision still needs, although another version is requested.
        prune: Whether to remove retained packages, too.

    Source: Porter's dependency proposal, detecting unused managed dependencies.
    """
    old = {package.instance: package for package in before.packages}
    used = {package.instance: package for package in fresh.packages}
    running = [
        package
        for package in before.packages
        if str(package.instance) in needed and package.instance not in used
    ]
    used |= {package.instance: package for package in running}
    needed_now = set(_reachable(used.values(), old | used)) - used.keys()
    used |= {instance: old[instance] for instance in needed_now}
    names = frozenset({USER, *map(str, used)})
    used = {instance: _with_present_parents(package, names, used) for instance, package in used.items()}
    left = {
        instance: package
        for instance, package in old.items()
        if instance not in used and not any(_replaces(other, package) for other in used.values())
    }
    retained = () if prune else (p for p in left.values() if _is_retained(p, before))
    unused = {package.instance: package for package in retained}
    unused |= {instance: left[instance] for instance in _reachable(unused.values(), left)}
    packages = [*used.values(), *(_without_removed_parents(package, unused) for package in unused.values())]
    return msgspec.structs.replace(
        fresh,
        packages=tuple(sorted(packages, key=lambda package: package.instance.order)),
        unused=tuple(sorted(unused, key=lambda package: package.order)),
    )


def retain_all(fresh: Resolution, before: Resolution) -> Resolution:
    """Return a resolution with every locked package: missing manifests may only be unreadable."""
    there = {package.instance for package in fresh.packages}
    return _with_kept(fresh, before, {package.instance for package in before.packages} - there)


def leave_dependencies(fresh: Resolution, before: Resolution) -> Resolution:
    """Return a resolution in which only the users' packages changed, and their dependencies are as locked.

    Packages that a user removed go, unless others need them. What the next run must retain of those that
    nothing needs any more is listed as unused, as their parents are gone then.
    """
    locked = {package.instance: package for package in before.packages}
    packages = [
        _with_locked_dependencies(package, locked.get(package.instance)) for package in fresh.packages
    ]
    left = msgspec.structs.replace(fresh, packages=tuple(packages), skipped=before.skipped)
    generated = {package.instance for package in before.packages if package.owner != USER}
    needed = set(_reachable((*packages, *(locked[instance] for instance in generated)), locked))
    kept = _with_kept(left, before, (generated | needed) - {package.instance for package in packages})
    return msgspec.structs.replace(kept, unused=autoremove(left, before).unused)


def _with_kept(fresh: Resolution, before: Resolution, kept: set[LockedInstance]) -> Resolution:
    packages = (*fresh.packages, *(package for package in before.packages if package.instance in kept))
    ordered = sorted(packages, key=lambda package: package.instance.order)
    unused = tuple(package for package in before.unused if package in kept)
    return msgspec.structs.replace(fresh, packages=tuple(ordered), unused=unused)


def _with_locked_dependencies(package: LockedPackage, locked: LockedPackage | None) -> LockedPackage:
    """Return a package with the dependencies that are locked, and the version that has them."""
    if locked is None:
        return package
    resolved = locked.resolved_version or locked.version
    return msgspec.structs.replace(
        package,
        dependencies=locked.dependencies,
        resolved_version=None if resolved == package.version else resolved,
    )


def _reachable(
    start: Iterable[LockedPackage], by_instance: dict[LockedInstance, LockedPackage]
) -> Iterator[LockedInstance]:
    """Yield every known instance that packages need, directly or not, each once.

    That includes those that were present for other reasons when a requirement was resolved.
    """
    queue, seen = list(start), set()
    for package in queue:
        for target in (dependency.resolved for dependency in package.dependencies):
            if target is not None and target in by_instance and target not in seen:
                seen.add(target)
                queue.append(by_instance[target])
                yield target


def _is_retained(package: LockedPackage, before: Resolution) -> bool:
    """Tell whether a package that nothing needs must stay for now."""
    if package.owner == USER:
        return False
    if package.retain or package.instance in before.unused:
        return True
    pointing = (d for other in before.packages for d in other.dependencies if d.resolved == package.instance)
    return not all(dependency.uninstall for dependency in pointing)


def _replaces(user: LockedPackage, package: LockedPackage) -> bool:
    """Tell whether a user's manifest replaces a generated package: same package, same place."""
    mine, other = user.instance, package.instance
    same = (mine.ecosystem, mine.name) == (other.ecosystem, other.name)
    near = other.slot.kind == SlotKind.CLUSTER or mine.slot.namespace == other.slot.namespace
    return user.owner == USER and same and near and other.slot.kind in SHARED_SLOT_KINDS


def _with_present_parents(
    package: LockedPackage, names: frozenset[str], used: dict[LockedInstance, LockedPackage]
) -> LockedPackage:
    """Return a package without its removed parents; without any other, those that it satisfies are left."""
    parents = tuple(who for who in package.requested_by if who in names)
    if parents == package.requested_by:
        return package
    users = (
        str(other.instance)
        for other in used.values()
        if any(dependency.resolved == package.instance for dependency in other.dependencies)
    )
    parents = parents or tuple(sorted(users)) or package.requested_by
    owner = package.owner if package.owner in parents else min(parents)
    return msgspec.structs.replace(package, requested_by=parents, owner=owner)


def _without_removed_parents(
    package: LockedPackage, unused: dict[LockedInstance, LockedPackage]
) -> LockedPackage:
    """Return an unused package with only those parents that are left."""
    left = {str(instance) for instance in unused}
    parents = tuple(who for who in package.requested_by if who in left)
    return msgspec.structs.replace(package, requested_by=parents, owner=min(parents, default=""))


def upgraded_with_parent(
    inputs: ClusterInputs, solution: Solution, before: Resolution
) -> frozenset[Instance]:
    """Return the locked dependencies that are upgraded together with their parent.

    A managed dependency takes the best version when its parent gets another one; an unmanaged one keeps its
    version while that fits. That includes what a run before left for the next one.

    Source: Porter's dependency proposal, managed and unmanaged dependencies.
    """
    locked = {pin.instance: pin.candidate.version for pin in inputs.pins}
    behind = {package.instance for package in before.packages if package.resolved_version}
    resolved = solution.resolved
    queue = [
        i
        for i, resolved_instance in resolved.items()
        if i in locked and (resolved_instance.candidate.version != locked[i] or locked_instance(i) in behind)
    ]
    unlocked: set[Instance] = set()
    for instance in queue:
        for edge in resolved[instance].edges if instance in resolved else ():
            target = edge.target
            if edge.requirement.actions.upgrade and target in locked and target not in unlocked:
                unlocked.add(target)
                queue.append(target)
    return frozenset(unlocked)
