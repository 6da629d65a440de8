"""Check the invariants of locks before any lock is written."""

from collections import Counter
from collections.abc import Iterable, Iterator

from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.wording import plural, verb
from reconciler.dependencies.lock.format import (
    ClusterLock,
    LockedRevision,
    PackageLock,
    Resolution,
    keeps_ownership,
    ownership_entries,
)


def lock_violations(lock: PackageLock, resolution: Resolution) -> tuple[str, ...]:
    """Return the violated invariants of a single lock, in sentences. Total."""
    return (*_revisions(lock.revisions), *_objects(lock, resolution), *_ownership(lock, resolution))


def step_violations(
    before: tuple[PackageLock, Resolution], after: tuple[PackageLock, Resolution]
) -> tuple[str, ...]:
    """Return the violated invariants of the step from one lock to the next, in sentences. Total."""
    return (*_numbers(before[0], after[0]), *_losses(before, after))


def generation_violations(before: PackageLock, after: PackageLock) -> tuple[str, ...]:
    """Return an error if the generation of a lock does not follow the previous one. Total."""
    follows = after == before or after.generation == before.generation + 1
    return () if follows else (f"generation {after.generation} follows {before.generation}",)


def _revisions(revisions: Iterable[LockedRevision]) -> Iterator[str]:
    ordered = tuple(revisions)
    for state, names in {
        "active": [revision.package for revision in ordered if revision.is_active],
        "current": [revision.package for revision in ordered if revision.current],
    }.items():
        for package, count in sorted(Counter(names).items()):
            if count > 1:
                yield f"{package} has {plural(count, f'{state} revision')}"
    for (package, number), count in sorted(
        Counter((revision.package, revision.revision) for revision in ordered).items()
    ):
        if count > 1:
            yield f"{package} has {plural(count, 'revision')} with the number {number}"
    for name, count in sorted(Counter(revision.name for revision in ordered).items()):
        if count > 1:
            yield f"{plural(count, 'revision')} {verb(count, 'is', 'are')} called {name}"


def _objects(lock: PackageLock, resolution: Resolution) -> Iterator[str]:
    objects = {package.object for package in resolution.packages}
    for revision in lock.revisions:
        if revision.package not in objects:
            yield f"revision {revision.name} belongs to {revision.package}, which is not there"


def _ownership(lock: PackageLock, resolution: Resolution) -> Iterator[str]:
    instances = {str(revision.instance) for revision in resolution.packages}
    others = {revision for revision in instances if not keeps_ownership(revision)}
    active = {revision.name for revision in lock.revisions if revision.is_active} | others
    kept = {revision.name for revision in lock.revisions} | others
    for name, entry in ownership_entries(resolution):
        if entry.controller and entry.controller not in active:
            yield f"{name} is controlled by {entry.controller}, which is not active"
        if entry.controller and (entry.controller not in entry.owners or entry.retained):
            yield f"{name} is controlled by {entry.controller}, which does not own it"
        for owner in entry.owners:
            if owner not in kept:
                yield f"{name} is owned by {owner}, which is gone"


def _numbers(before: PackageLock, after: PackageLock) -> Iterator[str]:
    """Yield revisions with a number that does not rise: new and reactivated ones come last."""
    earlier = {(revision.package, revision.name): revision for revision in before.revisions}
    for package in sorted({revision.package for revision in before.revisions}):
        last = max(revision.revision for revision in before.revisions if revision.package == package)
        for revision in after.revisions:
            old = earlier.get((revision.package, revision.name))
            moved = old is None or old.revision != revision.revision
            if revision.package == package and moved and revision.revision <= last:
                number = revision.revision
                yield f"revision {revision.name} has the number {number}, and {last} was given already"


def _losses(before: tuple[PackageLock, Resolution], after: tuple[PackageLock, Resolution]) -> Iterator[str]:
    """Yield resources that a retained revision does not own any more."""
    kept = {revision.name for revision in after[0].revisions}
    now = dict(ownership_entries(after[1]))
    for name, entry in ownership_entries(before[1]):
        for owner in entry.owners:
            if owner in kept and (name not in now or owner not in now[name].owners):
                yield f"{owner} is retained and does not own {name} any more"


class BrokenLockError(ReconcilerError):
    """A new lock violates an invariant. This is a defect of the reconciler: nothing is written."""

    exit_code = Exit.BUG
    hint = "Please report this with the manifests, the index and the lock."

    def __init__(self, cluster: str, breaches: tuple[str, ...]) -> None:
        super().__init__(f"the lock of {cluster} would be wrong: {'; '.join(breaches)}")
        self.breaches = breaches


def check_lock(before: ClusterLock | None, after: ClusterLock, *, is_sound: bool = False) -> None:
    """Refuse a lock that violates an invariant, or does not follow from the previous one.

    With `is_sound` only the generation is checked: an equal lock of another cluster passed the rest.

    Raises:
        BrokenLockError: The lock violates an invariant.
    """
    violations = () if is_sound else lock_violations(after.lock, after.resolution)
    if before is not None:
        violations += generation_violations(before.lock, after.lock)
        if not is_sound:
            violations += step_violations((before.lock, before.resolution), (after.lock, after.resolution))
    if violations:
        raise BrokenLockError(after.lock.scope.cluster, violations)
