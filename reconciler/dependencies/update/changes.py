"""List every version that changes, grouped over the clusters where it does, with its cause."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reconciler.dependencies.lock.format import (
    LockedDependency,
    LockedPackage,
    LockOp,
    Resolution,
    lock_changes,
)
from reconciler.dependencies.lock.write import USER
from reconciler.dependencies.model.packages import Dialect, version_range
from reconciler.dependencies.update.locks import ClusterUpdate, LockUpdate
from reconciler.dependencies.versions import VersionError, parse_loose, parse_relaxed

_SHOWN = 3


class VersionChange(NamedTuple):
    """One change of a locked version, the same in several clusters; `why` completes a sentence."""

    op: LockOp
    instance: str
    before: str
    after: str
    why: str
    clusters: tuple[str, ...]

    def __str__(self) -> str:
        versions = " -> ".join(text for text in (self.before, self.after) if text)
        return f"{self.instance} {versions}: {self.why}"


def version_changes(decision: LockUpdate) -> tuple[VersionChange, ...]:
    """Return the changed versions, sorted by package; equal changes of several clusters are one. Pure."""
    by_change: dict[VersionChange, list[str]] = {}
    for scope in decision.scopes:
        for move in _cluster_changes(scope):
            by_change.setdefault(move, []).append(scope.cluster)
    return tuple(sorted(move._replace(clusters=tuple(clusters)) for move, clusters in by_change.items()))


def object_version_changes(
    before: Mapping[str, str],
    after: Mapping[str, str],
    packages: Mapping[str, LockedPackage],
    resolution: Resolution,
    cluster: str,
) -> tuple[VersionChange, ...]:
    """Return the changes between the present and the new versions of objects, by path.

    So a pull request lists all changes that merging it makes, also those decided in earlier runs.
    """
    changes = []
    for path in sorted(path for path in {*before, *after} if before.get(path) != after.get(path)):
        was, now, new = before.get(path, ""), after.get(path, ""), packages.get(path)
        op = LockOp.ADD if not was else LockOp.CHANGE if now else LockOp.REMOVE
        name = str(new.instance) if new else path
        changes.append(VersionChange(op, name, was, now, _why(op, was, new, None, resolution), (cluster,)))
    return tuple(changes)


def _cluster_changes(scope: ClusterUpdate) -> Iterator[VersionChange]:
    nothing = Resolution()
    old = scope.before.resolution if scope.before else nothing
    return resolution_changes(old, scope.after.resolution if scope.after else nothing)


def resolution_changes(old: Resolution, fresh: Resolution) -> Iterator[VersionChange]:
    """Yield the changes between two resolutions of one cluster, by instance, without its name."""
    before, after = _by_instance(old), _by_instance(fresh)
    for change in lock_changes(old, fresh):
        was, now = (version.partition("@")[0] for version in (change.before, change.after))
        new = after.get(change.instance)
        instance = (new or before[change.instance]).instance
        why = _why(change.op, change.before, new, old, fresh)
        yield VersionChange(change.op, str(instance), was, now, why, ())


def _by_instance(resolution: Resolution) -> dict[str, LockedPackage]:
    return {str(package.instance): package for package in resolution.packages}


def _why(
    op: LockOp, before: str, new: LockedPackage | None, old: Resolution | None, resolution: Resolution
) -> str:
    if new is None:
        return "nothing requires it any more"
    if op is LockOp.ADD:
        parents = list(_parents(new, resolution))
        more = [f"and {len(parents) - _SHOWN} more"] if len(parents) > _SHOWN else []
        return "; ".join([*parents[:_SHOWN], *more]) or "nothing requires it"
    forced = sorted(set(_conflicting_requirements(before, new, resolution)))
    if not forced and new.owner == USER:
        return "its manifest asks for it"
    if reasons := forced or sorted(set(_added_requirements(new, old, resolution))):
        return "; ".join(reasons[:_SHOWN])
    if before.partition("@")[0] == new.version:
        return "its content changed under the same version"
    return "the version that fits best now"


def _parents(package: LockedPackage, resolution: Resolution) -> Iterator[str]:
    """Yield the parents of a package, each with what it requires of it."""
    needs: dict[str, list[str]] = {}
    for parent in resolution.packages:
        texts = [_requirement(need) for need in parent.dependencies if need.resolved == package.instance]
        needs[str(parent.instance)] = sorted(filter(None, texts))
    for who in package.requested_by:
        text = " and ".join(needs.get(who, ())) or "it"
        yield f"{'a manifest' if who == USER else who} asks for {text}"


def _requirement(need: LockedDependency) -> str:
    """Return what a requirement asks of the package that meets it; empty if any version will do."""
    match need.need:
        case "api":
            return f"the API {need.id}"
        case "interface":
            return f"the interface {need.id} {need.constraints}".rstrip()
        case _:
            return need.constraints


def _added_requirements(
    package: LockedPackage, old: Resolution | None, resolution: Resolution
) -> Iterator[str]:
    """Yield the APIs and interfaces that parents require of a package now, and did not before."""
    before = {(str(p.instance), d.signature) for p in (old.packages if old else ()) for d in p.dependencies}
    for parent in resolution.packages if old else ():
        for need in parent.dependencies:
            is_new = (str(parent.instance), need.signature) not in before
            if is_new and need.need != "package" and need.resolved == package.instance:
                yield f"{parent.instance} asks for {_requirement(need)}"


def _conflicting_requirements(before: str, new: LockedPackage, resolution: Resolution) -> Iterator[str]:
    """Yield the parents with requirements that exclude the old version."""
    old, _, digest = before.partition("@")
    for parent in resolution.packages:
        for need in parent.dependencies:
            if need.resolved == new.instance and need.constraints and not _allows(need, old, digest):
                yield f"{parent.instance} asks for {need.constraints}"


def _allows(need: LockedDependency, version: str, digest: str) -> bool:
    try:
        range_ = version_range(Dialect(need.dialect), need.constraints, prereleases=need.prereleases)
        return range_.allows(parse_relaxed(version), digest)
    except VersionError:
        return need.constraints == version or _same(need.constraints, version)


def _same(constraints: str, version: str) -> bool:
    try:
        return parse_loose(constraints) == parse_loose(version)
    except VersionError:
        return True
