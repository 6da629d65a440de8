"""Remove packages that nothing needs any more, and retain those that must stay."""

from collections.abc import Iterable, Iterator

from reconciler.dependencies.lock.format import LockedInstance, LockedPackage, Resolution
from reconciler.dependencies.lock.read import SHARED_SLOT_KINDS
from reconciler.dependencies.lock.write import USER
from reconciler.dependencies.model.cluster import ClusterInputs, Instance, SlotKind
from reconciler.dependencies.solve.solution import Solution


def autoremove(
    fresh: Resolution, before: Resolution, *, needed: frozenset[str] = frozenset(), prune: bool = False
) -> Resolution:
    """Return a resolution with what nobody needs any more, but must stay, listed as unused. Order-free.

    Marks from the users' packages over every need, those of parts that keep their lock too. What a
    user removed goes. What was installed for others goes if everybody who needed it lets it go
    (`uninstall`), unless it has data to keep; it stays with all that it needs. With `prune` all of it goes.

    Args:
        fresh: What was resolved, and what has no answer and keeps its lock.
        before: What was locked.
        needed: Instances that something needs which runs, though another version of it is asked for.
        prune: Whether nothing unused stays.

    Source: Porter's dependency proposal, detecting unused managed dependencies.
    """
    old = {one.instance: one for one in before.packages}
    used = {one.instance: one for one in fresh.packages}
    running = [one for one in before.packages if str(one.instance) in needed and one.instance not in used]
    used |= {one.instance: one for one in running}
    used |= {instance: old[instance] for instance in _reached(used.values(), old) if instance not in used}
    left = {instance: one for instance, one in old.items() if instance not in used}
    wanted = () if prune else (one for one in left.values() if _stays(one, before, used.values()))
    unused = {one.instance: one for one in wanted}
    unused |= {instance: left[instance] for instance in _reached(unused.values(), left)}
    packages = [*used.values(), *(_alone(one, unused) for one in unused.values())]
    return fresh.model_copy(
        update={
            "packages": tuple(sorted(packages, key=lambda one: one.instance.order)),
            "unused": tuple(sorted(unused, key=lambda one: one.order)),
        }
    )


def retain_all(fresh: Resolution, before: Resolution, *, users: bool = True) -> Resolution:
    """Return a resolution that forgets nothing: what is not wanted may only be misunderstood, or left alone.

    Without `users` what users removed goes all the same.
    """
    there = {one.instance for one in fresh.packages}
    gone = (one for one in before.packages if one.instance not in there)
    kept = [one for one in gone if users or one.owner != USER]
    packages = sorted((*fresh.packages, *kept), key=lambda one: one.instance.order)
    still = {one.instance for one in kept}
    unused = tuple(one for one in before.unused if one in still)
    return fresh.model_copy(update={"packages": tuple(packages), "unused": unused})


def _reached(
    start: Iterable[LockedPackage], known: dict[LockedInstance, LockedPackage]
) -> Iterator[LockedInstance]:
    """Yield every known instance that packages need, directly or not, each once."""
    queue, seen = list(start), set()
    for one in queue:
        for target in (d.resolved for d in one.dependencies if d.active):
            if target is not None and target in known and target not in seen:
                seen.add(target)
                queue.append(known[target])
                yield target


def _stays(one: LockedPackage, before: Resolution, used: Iterable[LockedPackage]) -> bool:
    """Whether a package that nobody needs must stay for now."""
    if one.owner == USER or any(_adopts(other, one) for other in used):
        return False
    if one.retain or one.instance in before.unused:
        return True
    pointing = (d for other in before.packages for d in other.dependencies if d.resolved == one.instance)
    return not all(dependency.uninstall for dependency in pointing)


def _adopts(user: LockedPackage, one: LockedPackage) -> bool:
    """Whether a user's own manifest stands for what was generated before: same package, same place."""
    mine, other = user.instance, one.instance
    same = (mine.ecosystem, mine.name) == (other.ecosystem, other.name)
    near = other.slot.kind == SlotKind.CLUSTER or mine.slot.namespace == other.slot.namespace
    return user.owner == USER and same and near and other.slot.kind in SHARED_SLOT_KINDS


def _alone(one: LockedPackage, unused: dict[LockedInstance, LockedPackage]) -> LockedPackage:
    """Return an unused package with only those parents that are left."""
    left = {str(instance) for instance in unused}
    asked = tuple(who for who in one.requested_by if who in left)
    return one.model_copy(update={"requested_by": asked, "owner": min(asked, default="")})


def upgraded_with_parent(world: ClusterInputs, solution: Solution) -> frozenset[Instance]:
    """Return the locked dependencies that are upgraded with a package that moves, as it asks for.

    What is managed in lockstep is free to take the best version when its parent gets another one;
    what is not stays where it is, while it fits.

    Source: Porter's dependency proposal, managed and unmanaged dependencies.
    """
    locked = {pin.instance: pin.candidate.version for pin in world.pins}
    resolved = solution.resolved
    queue = [i for i, one in resolved.items() if i in locked and one.candidate.version != locked[i]]
    free: set[Instance] = set()
    for instance in queue:
        for edge in resolved[instance].edges if instance in resolved else ():
            target = edge.target
            if edge.requirement.actions.upgrade and target in locked and target not in free:
                free.add(target)
                queue.append(target)
    return frozenset(free)
