"""What moves: every pin that a decision changes, once for all clusters where it does, and why."""

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.dependencies.decision import Decision, ScopeDecision
from reconciler.dependencies.lockfile import LockChange, LockedDependency, LockedPackage, LockOp, Resolution
from reconciler.dependencies.model import Dialect, version_range
from reconciler.dependencies.recording import USER
from reconciler.dependencies.versions import VersionError, parse_loose, parse_relaxed

_SHOWN = 3


class PinMove(NamedTuple):
    """One change of a pin, the same in several clusters; `why` is a sentence's rest."""

    op: LockOp
    instance: str
    before: str
    after: str
    why: str
    clusters: tuple[str, ...]

    def __str__(self) -> str:
        versions = " -> ".join(text for text in (self.before, self.after) if text)
        return f"{self.instance} {versions}: {self.why}"


def pin_moves(decision: Decision) -> tuple[PinMove, ...]:
    """Return what moves where, sorted by package; equal moves of several clusters are one. Pure."""
    found: dict[PinMove, list[str]] = {}
    for scope in decision.scopes:
        for move in _moves(scope):
            found.setdefault(move, []).append(scope.cluster)
    return tuple(sorted(move._replace(clusters=tuple(clusters)) for move, clusters in found.items()))


def _moves(scope: ScopeDecision) -> Iterator[PinMove]:
    before, after = (
        _by_instance(one.resolution if one else Resolution()) for one in (scope.before, scope.after)
    )
    for change in scope.changes:
        was, now = (version.partition("@")[0] for version in (change.before, change.after))
        new = after.get(change.instance)
        instance = new or before[change.instance]
        yield PinMove(change.op, str(instance.instance), was, now, _why(change, new, scope), ())


def _by_instance(resolution: Resolution) -> dict[str, LockedPackage]:
    return {one.instance.key: one for one in resolution.packages}


def _why(change: LockChange, new: LockedPackage | None, scope: ScopeDecision) -> str:
    if new is None:
        return "nobody needs it any more"
    if change.op is LockOp.ADD:
        asked = ["a manifest" if who == USER else who for who in new.requested_by]
        more = f" and {len(asked) - _SHOWN} more" if len(asked) > _SHOWN else ""
        return f"asked for by {', '.join(asked[:_SHOWN])}{more}"
    forced = sorted({text for text in _forced(change, new, scope) if text})
    if forced:
        return "; ".join(forced[:_SHOWN])
    if new.owner == USER:
        return "its manifest asks for it"
    if change.before.partition("@")[0] == change.after.partition("@")[0]:
        return "its content changed under the same version"
    return "the version that fits best now"


def _forced(change: LockChange, new: LockedPackage, scope: ScopeDecision) -> Iterator[str]:
    """Yield who asks for what the old version was not."""
    old, _, digest = change.before.partition("@")
    for parent in scope.after.resolution.packages if scope.after else ():
        for need in parent.dependencies:
            if need.resolved == new.instance and need.constraints and not _allows(need, old, digest):
                yield f"{parent.instance} asks for {need.constraints}"


def _allows(need: LockedDependency, version: str, digest: str) -> bool:
    try:
        wanted = version_range(Dialect(need.dialect), need.constraints, prereleases=need.prereleases)
        return wanted.allows(parse_relaxed(version), digest)
    except VersionError:
        return need.constraints == version or _same(need.constraints, version)


def _same(constraints: str, version: str) -> bool:
    try:
        return parse_loose(constraints) == parse_loose(version)
    except VersionError:
        return True
