"""List everything that locks decide anew, grouped over the clusters where they do, each with its cause."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from reconciler.base.values import grouped
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockOp, LockUpdate, lock_changes
from reconciler.dependencies.model.instances import (
    ActivationBlocker,
    Instance,
    LockedRevision,
    MetNeed,
    OwnershipEntry,
    Resolution,
    Resolved,
)
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.dependencies.solve.problem import AlternativeSource
from reconciler.dependencies.versions import VersionError, parse_loose, parse_relaxed

_MOST_CAUSES = 3


class MoveOp(StrEnum):
    """Kind of change that a lock decides, the dangerous ones first."""

    DROP = "drop"
    """A kind or composition is removed, with all of its objects."""
    HAND_OVER = "hand over"
    """A kind or composition gets another package as its controller."""
    RELEASE = "release"
    """A kind or composition stays without a controller: a new version of its package has it no more."""
    ROLL_BACK = "roll back"
    """An older revision of a package runs again."""
    REPLACE = "replace"
    """Packages use another instance than before; what the old one holds may be data."""
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    REMOVE = "remove"
    CHANGE = "change"
    ADD = "add"
    WAIT = "wait"
    """A revision is there and does not run yet."""
    DISCARD = "discard"
    """A revision that does not run is removed."""
    RETIRE = "retire"
    """Nothing needs a package any more, and it stays."""
    USE = "use"
    """Something needs a package again that nothing needed."""
    REASSIGN = "reassign"
    """A package belongs to another manifest or package."""
    TAKE = "take"
    """A kind or composition without a controller gets one."""
    RESOLVE = "resolve"
    """Something else in the lock: how the needs of packages are met."""

    @property
    def subject(self) -> str:
        """The thing that changes: a pin, a kind, a revision, a package, or the lock as a whole."""
        return _SUBJECTS.get(self, "pin")

    @property
    def is_dangerous(self) -> bool:
        """Whether what runs in a cluster changes hands, stops, or is another one, beside its version."""
        return _PLACES[self] < _PLACES[MoveOp.REMOVE]


_PLACES = {op: place for place, op in enumerate(MoveOp)}
_SUBJECTS = {
    **dict.fromkeys((MoveOp.DROP, MoveOp.HAND_OVER, MoveOp.RELEASE, MoveOp.TAKE), "kind"),
    **dict.fromkeys((MoveOp.ROLL_BACK, MoveOp.ACTIVATE, MoveOp.DEACTIVATE), "revision"),
    **dict.fromkeys((MoveOp.WAIT, MoveOp.DISCARD), "revision"),
    **dict.fromkeys((MoveOp.REPLACE, MoveOp.RETIRE, MoveOp.USE, MoveOp.REASSIGN), "package"),
    MoveOp.RESOLVE: "lock",
}


class VersionChange(NamedTuple):
    """One change of a lock, the same in several clusters; `why` completes a sentence.

    `instance` is that of a pin; else it names a kind, a revision or a package, with its states before and
    after.
    """

    op: MoveOp
    instance: str
    before: str = ""
    after: str = ""
    why: str = ""
    clusters: tuple[str, ...] = ()

    def __str__(self) -> str:
        states = " -> ".join(dict.fromkeys(text for text in (self.before, self.after) if text))
        about = " ".join(filter(None, (self.instance, states)))
        return f"{about}: {self.why}" if about else self.why

    @property
    def line(self) -> str:
        """The change as a sentence without its clusters."""
        done = "" if self.op is MoveOp.RESOLVE else f"{self.op} "
        return f"{self.op.subject}: {done}{self}"


def version_changes(decision: LockUpdate) -> tuple[VersionChange, ...]:
    """Return everything that changes, dangerous first; equal changes of several clusters are one. Pure."""
    by_change = grouped((move, scope.cluster) for scope in decision.scopes for move in cluster_changes(scope))
    moves = (move._replace(clusters=tuple(clusters)) for move, clusters in by_change.items())
    return by_danger(moves)


def by_danger(moves: Iterable[VersionChange]) -> tuple[VersionChange, ...]:
    """Return the changes in the order of reports."""
    return tuple(sorted(moves, key=lambda move: (_PLACES[move.op], move[1:])))


def object_version_changes(
    before: Mapping[str, str],
    after: Mapping[str, str],
    packages: Mapping[str, Resolved],
    resolution: Resolution,
    cluster: str,
) -> tuple[VersionChange, ...]:
    """Return the changes between the present and the new versions of objects, by path.

    So a pull request lists all changes that merging it makes, also those decided in earlier runs.
    """
    changes, asking = [], _asking(resolution)
    for path in sorted(path for path in {*before, *after} if before.get(path) != after.get(path)):
        was, now, new = before.get(path, ""), after.get(path, ""), packages.get(path)
        op = MoveOp.ADD if not was else MoveOp.CHANGE if now else MoveOp.REMOVE
        name = str(new.instance) if new else path
        why = _why(op, (was, ""), new, None, asking)
        changes.append(VersionChange(op, name, was, now, why, (cluster,)))
    return tuple(changes)


def cluster_changes(scope: ClusterUpdate) -> Iterator[VersionChange]:
    """Yield everything that one cluster's lock decides anew, without its name; nothing for new digests alone.

    Total: a lock that is written with another decision yields something.
    """
    if not scope.changed:
        return
    nothing = Resolution()
    old = scope.before.resolution if scope.before else nothing
    fresh = scope.after.resolution if scope.after else nothing
    moves = [
        *resolution_changes(old, fresh),
        *_revision_changes(scope.before, scope.after),
        *_kind_changes(old, fresh),
        *_package_changes(old, fresh),
    ]
    is_full = scope.before and scope.after
    why = "needs are met otherwise, by the same versions" if is_full else "no package is locked"
    yield from by_danger(moves) or (VersionChange(MoveOp.RESOLVE, "", why=why),)


def _revision_changes(before: ClusterLock | None, after: ClusterLock | None) -> Iterator[VersionChange]:
    old, fresh = (
        {(r.package, r.name): r for r in (locked.lock.revisions if locked else ())}
        for locked in (before, after)
    )
    ran = {revision.package: revision for revision in old.values() if revision.is_active}
    runs = {revision.package for revision in fresh.values() if revision.is_active}
    for key, revision in fresh.items():
        was, replaced = old.get(key), ran.get(revision.package)
        label = f"revision {revision.revision} of {revision.package}"
        state = str(was.desired_state) if was else ""
        change = VersionChange(MoveOp.ACTIVATE, revision.name, state, str(revision.desired_state), label)
        if revision.is_active and not (was and was.is_active):
            is_back = was is not None and replaced is not None and was.revision < replaced.revision
            why = f"{label}, in place of {replaced.name}" if replaced else label
            yield change._replace(op=MoveOp.ROLL_BACK if is_back else MoveOp.ACTIVATE, why=why)
        elif revision.awaits and (was is None or was.awaits != revision.awaits):
            yield change._replace(op=MoveOp.WAIT, why=f"{label} {waiting_text(revision)}")
        elif was and was.is_active and not revision.is_active and revision.package not in runs:
            yield change._replace(op=MoveOp.DEACTIVATE, why=f"{label}; no revision of it runs any more")
    for key, gone in old.items():
        why = "" if key in fresh else _removal(gone.package, before, after)
        if why:
            label = f"revision {gone.revision} of {gone.package}, {why}"
            yield VersionChange(MoveOp.DISCARD, gone.name, str(gone.desired_state), why=label)


def waiting_text(revision: LockedRevision) -> str:
    """Return what a revision that does not run yet waits for."""
    match revision.awaits:
        case ActivationBlocker.PERSON:
            kind = f"{revision.package.partition('/')[0]}Revision"
            return f"awaits activation: set desiredState: Active in a {kind} {revision.name}"
        case ActivationBlocker.PARENTS:
            return "waits until a package that needs it is activated"
        case _:
            return "waits until the current owner releases its CRDs"


def _removal(object_name: str, before: ClusterLock | None, after: ClusterLock | None) -> str:
    """Return why a revision of an object is removed, "" where its package is removed with it."""
    packages = after.resolution.packages if after else ()
    if any(package.object == object_name for package in packages):
        return "beyond the history limit"
    former = before.resolution.packages if before else ()
    instances = {package.instance for package in former if package.object == object_name}
    heirs = [package.object for package in packages if package.instance in instances]
    return f"{heirs[0]} installs its package" if heirs else ""


def _kind_changes(old: Resolution, fresh: Resolution) -> Iterator[VersionChange]:
    """Yield the kinds and compositions that go, change hands, or lose or get a controller."""
    before, after = dict(old.ownership()), dict(fresh.ownership())
    objects: dict[Instance | None, str]
    objects = {package.instance: package.object for package in (*old.packages, *fresh.packages)}
    for resource, entry in after.items():
        was, name = before.get(resource), str(resource)
        # Kubernetes removes the definition with the object that owns it.
        goes = not entry.controller and not _is_there(entry, fresh, objects)
        had = was is not None and (bool(was.controller) or _is_there(was, old, objects))
        if was is None or (goes and not had):
            continue
        if not goes and (was.package, bool(was.controller)) == (entry.package, bool(entry.controller)):
            continue
        holder, heir = _name(was.package), _name(entry.package)
        why = f"{entry.controller} controls it"
        if goes:
            cause = f"{was.object.replace('/', ' ')}" if was.object else holder
            why = f"it goes with {cause}" + ("" if resource.is_composition else ", and its objects with it")
            yield VersionChange(MoveOp.DROP, name, holder, why=why)
        elif not entry.controller:
            owners = f" but owned by {', '.join(entry.owners)}" if entry.owners else ""
            use = "composites may use it" if resource.is_composition else "its objects may be data"
            why = f"it stays without a controller{owners}: {use}"
            yield VersionChange(MoveOp.RELEASE, name, holder, why=why)
        elif was.package and was.package != entry.package:
            yield VersionChange(MoveOp.HAND_OVER, name, holder, heir, why)
        else:
            yield VersionChange(MoveOp.TAKE, name, "", heir, why)
    for resource in sorted(before.keys() - after.keys()):
        holder = _name(before[resource].package)
        yield VersionChange(MoveOp.DROP, str(resource), holder, why="no revision has it any more")


def _name(instance: Instance | None) -> str:
    return instance.name if instance is not None else ""


def _is_there(entry: OwnershipEntry, side: Resolution, objects: Mapping[Instance | None, str]) -> bool:
    owner = entry.object or objects.get(entry.package)
    return any(package.object == owner for package in side.packages)


def _package_changes(old: Resolution, fresh: Resolution) -> Iterator[VersionChange]:
    """Yield the packages that others take the place of, those with another owner, and those out of use."""
    before = {package.instance: package for package in old.packages}
    moved: dict[tuple[str, str], list[str]] = {}
    for package in fresh.packages:
        was = before.get(package.instance)
        used = dict(_met_needs(was)) if was is not None else {}
        for need, now in _met_needs(package):
            # A package in Git has a row of its own, also where it changes hands at its place.
            if used.get(need, now) != now and now.ecosystem != Ecosystem.KPT:
                moved.setdefault((str(used[need]), str(now)), []).append(str(package.instance))
        belongs = package.by_user or package.owner is not None
        if was is not None and belongs and _owner(was) != _owner(package):
            owners = (_owner(was), _owner(package))
            yield VersionChange(MoveOp.REASSIGN, str(package.instance), *owners, "its owner is another one")
    for (former, taken), users in sorted(moved.items()):
        more = f" and {len(users) - _MOST_CAUSES} more" if len(users) > _MOST_CAUSES else ""
        why = f"{taken} takes its place for {', '.join(users[:_MOST_CAUSES])}{more}"
        yield VersionChange(MoveOp.REPLACE, former, why=why)
    names = {str(package.instance) for package in fresh.packages}
    unused = (set(map(str, old.unused)), set(map(str, fresh.unused)))
    for instance in sorted(unused[1] - unused[0]):
        why = "nothing needs it any more; `reconciler lock --prune` removes it"
        yield VersionChange(MoveOp.RETIRE, instance, why=why)
    for instance in sorted((unused[0] - unused[1]) & names):
        yield VersionChange(MoveOp.USE, instance, why="something needs it again")


def _met_needs(package: Resolved) -> Iterator[tuple[tuple[str, str], Instance]]:
    """Yield the requirements of a package, by what its author calls each, with what meets them."""
    for need in package.dependencies:
        if need.resolved is not None:
            yield (need.need, need.alias or need.id), need.resolved


def _owner(package: Resolved) -> str:
    return "a manifest" if package.by_user else str(package.owner or "nobody")


def resolution_changes(old: Resolution, fresh: Resolution) -> Iterator[VersionChange]:
    """Yield the changes between two resolutions of one cluster, by instance, without its name.

    An object that installs another package than before is one change.
    """
    moves = {package.instance: former for former, package in _moved_objects(old, fresh)}
    gone, asking = {former.instance for former in moves.values()}, _asking(fresh)
    for change in lock_changes(old, fresh):
        instance, was, now = change.instance, change.before, change.after
        if instance in gone:
            continue
        former = moves.get(instance)
        if former is not None and now is not None:
            before, after = (f"{side.instance.name} {side.version}" for side in (former, now))
            why = _why(LockOp.ADD, ("", ""), now, old, asking)
            yield VersionChange(MoveOp.CHANGE, str(instance), before, after, why)
            continue
        before, after = (side.version if side is not None else "" for side in (was, now))
        why = _why(change.op, (before, was.digest if was is not None else ""), now, old, asking)
        yield VersionChange(MoveOp(change.op), str(instance), before, after, why)


def _moved_objects(before: Resolution, after: Resolution) -> Iterator[tuple[Resolved, Resolved]]:
    """Yield the packages that are gone, each with the one that its object installs now."""
    old, fresh = ({package.instance for package in side.packages} for side in (before, after))
    gone = {(p.object, p.instance.slot.namespace): p for p in before.packages if p.instance not in fresh}
    for package in after.packages:
        was = gone.get((package.object, package.instance.slot.namespace))
        if was is not None and package.name and package.instance not in old:
            yield was, package


Asking = Mapping[Instance, Sequence[tuple[Instance, MetNeed]]]
"""The needs that each package meets, with their parents."""


def _asking(resolution: Resolution) -> Asking:
    return grouped(
        (need.resolved, (parent.instance, need))
        for parent in resolution.packages
        for need in parent.dependencies
        if need.resolved is not None
    )


def _why(
    op: LockOp | MoveOp, before: tuple[str, str], new: Resolved | None, old: Resolution | None, asking: Asking
) -> str:
    if new is None:
        return "nothing requires it any more"
    needs = asking.get(new.instance, ())
    if op == LockOp.ADD:
        parents = list(_parents(new, needs))
        more = [f"and {len(parents) - _MOST_CAUSES} more"] if len(parents) > _MOST_CAUSES else []
        return "; ".join([*parents[:_MOST_CAUSES], *more]) or "nothing requires it"
    # Requirements that exclude the old version, or that are new
    excluding = (n for n in needs if n[1].constraints and _requirement(n[1]) and not is_met_by(n[1], *before))
    forced = sorted({f"{parent} asks for {need.constraints}" for parent, need in excluding})
    if not forced and new.by_user:
        return "its manifest asks for it"
    if reasons := forced or sorted(set(_added_requirements(needs, old))):
        return "; ".join(reasons[:_MOST_CAUSES])
    if before[0] == new.version:
        return "its content changed under the same version"
    return "the version that fits best now"


def _parents(package: Resolved, needs: Sequence[tuple[Instance, MetNeed]]) -> Iterator[str]:
    if package.by_user:
        yield "a manifest asks for it"
    for who in package.requested_by:
        texts = sorted(filter(None, (_requirement(need) for parent, need in needs if parent == who)))
        yield f"{who} asks for {' and '.join(texts) or 'it'}"


def _requirement(need: MetNeed) -> str:
    """Return what a requirement asks of the package that meets it; empty if any version will do.

    What a user binds may be of any version.
    """
    if need.via == AlternativeSource.BINDING:
        return ""
    match need.need:
        case "api":
            return f"the API {need.id}"
        case "interface":
            return f"the interface {need.id} {need.constraints}".rstrip()
        case _:
            return need.constraints


def _added_requirements(needs: Sequence[tuple[Instance, MetNeed]], old: Resolution | None) -> Iterator[str]:
    """Yield the APIs and interfaces that parents require of a package now, and did not before."""
    before = {(p.instance, d.signature) for p in (old.packages if old else ()) for d in p.dependencies}
    for parent, need in needs if old else ():
        if need.need != "package" and (parent, need.signature) not in before:
            yield f"{parent} asks for {_requirement(need)}"


def is_met_by(need: MetNeed, version: str, digest: str = "") -> bool:
    """Tell whether a version is one that a need asks for; one that cannot be compared is."""
    with suppress(VersionError):
        return need.range.allows(parse_relaxed(version), digest)
    with suppress(VersionError):
        return need.constraints == version or parse_loose(need.constraints) == parse_loose(version)
    return True
