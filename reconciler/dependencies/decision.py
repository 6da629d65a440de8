"""What a run decides about the dependencies of a fleet: which locks stand, and which change."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from reconciler.dependencies.fleet import Memo, outdated
from reconciler.dependencies.lockfile import (
    LOCKS_DIRECTORY,
    RESOLUTIONS_DIRECTORY,
    LockChange,
    PackageLock,
    Resolution,
    lock_changes,
    lock_of,
    lock_path,
    record_bytes,
    resolution_path,
)
from reconciler.dependencies.recording import resolution_of
from reconciler.dependencies.relock import choices_of, pins_of
from reconciler.dependencies.scopes import Scopes
from reconciler.dependencies.solution import Explanation
from reconciler.dependencies.versions import VersionError
from reconciler.dependencies.world import World
from reconciler.errors import Location, Problem, UsageError
from reconciler.reasons import Reason

UNFINISHED = ""
"""The input digest of a lock that has a part without an answer: it is decided anew by every run."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One cluster's lock with the resolution that it names."""

    lock: PackageLock
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class ScopeDecision:
    """One cluster: what was locked, what is, and what has no answer."""

    cluster: str
    before: Locked | None
    after: Locked | None
    explanations: tuple[Explanation, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any file of this cluster changes."""
        return self.before != self.after

    @property
    def changes(self) -> tuple[LockChange, ...]:
        """The pins that differ; none where only inputs changed that do not matter."""
        nothing = Resolution()
        before = self.before.resolution if self.before else nothing
        return lock_changes(before, self.after.resolution if self.after else nothing)


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole fleet: every cluster that has or gets a lock, sorted, and what is wrong."""

    scopes: tuple[ScopeDecision, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any file of any cluster changes."""
        return any(scope.changed for scope in self.scopes)

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the state branch that hold these locks; resolutions that none names are left out."""
        found: dict[str, bytes] = {}
        for scope in self.scopes:
            if scope.after is not None:
                found[lock_path(scope.after.lock)] = record_bytes(scope.after.lock)
                found[resolution_path(scope.after.lock.resolution)] = record_bytes(scope.after.resolution)
        return dict(sorted(found.items()))


def is_lock_file(path: str) -> bool:
    """Tell whether a path of the state branch is a cluster's lock or a resolution."""
    directory = path.rpartition("/")[0]
    return path.endswith(".json") and directory in (LOCKS_DIRECTORY, RESOLUTIONS_DIRECTORY)


@dataclass(frozen=True, slots=True)
class Locks:
    """The locks of a state branch by cluster, and what is wrong with those that cannot be read."""

    by_cluster: Mapping[str, Locked] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_locks(files: Mapping[str, bytes]) -> Locks:
    """Return the locks that the files of a state branch hold. Total.

    A lock that cannot be read costs a new resolution of its cluster, and is a problem.
    """
    found: dict[str, Locked] = {}
    problems = []
    for path, data in sorted(files.items()):
        if path.rpartition("/")[0] != LOCKS_DIRECTORY or not path.endswith(".json"):
            continue
        try:
            lock = PackageLock.model_validate_json(data, by_alias=True, by_name=False)
            body = files.get(resolution_path(lock.resolution), b"")
            resolution = Resolution.model_validate_json(body, by_alias=True, by_name=False)
            pins_of(resolution)
        except (ValidationError, VersionError) as error:
            why = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
            hint = "Correct or remove it on the state branch; the cluster is resolved anew."
            problems.append(
                Problem(Location(path), Reason.INVALID_STATE, f"The lock cannot be read: {why}", hint)
            )
        else:
            found[lock.scope.cluster] = Locked(lock, resolution)
    return Locks(found, tuple(problems))


def decide(
    scopes: Scopes,
    locks: Locks,
    *,
    upgrade: frozenset[str] = frozenset(),
    sure: bool = True,
    unreachable: frozenset[str] = frozenset(),
    memo: Memo | None = None,
) -> Decision:
    """Resolve the clusters whose inputs changed; every other one keeps its lock as it is.

    Deterministic and order-free. A cluster that no manifest mentions any more loses its lock, and a
    package that nobody wants its pin, but only where every manifest was understood.

    Args:
        scopes: What every cluster asks for.
        locks: What was decided before.
        upgrade: Names of packages whose locked versions may move.
        sure: Whether everything that may declare a package was readable.
        unreachable: Repositories, by URL, whose packages are unknown now: what uses one stays locked.
        memo: Answers of this run.

    Raises:
        UnverifiedSolutionError: An answer does not survive the independent check.
        UsageError: A name in `upgrade` is no package's.
    """
    _check_names(scopes, upgrade)
    memo = memo or Memo()
    held = locks.by_cluster
    before = {cluster: one.lock for cluster, one in held.items()}
    stale = set(outdated(scopes.worlds, before, memo))
    decisions: list[ScopeDecision] = []
    problems, warnings = [*scopes.problems, *locks.problems], list(scopes.warnings)
    for world in scopes.worlds:
        old = held.get(world.cluster)
        if old and (_rests_on(old, unreachable) or (world.cluster not in stale and not upgrade)):
            decisions.append(ScopeDecision(world.cluster, old, old))
            continue
        keeps = not sure or bool({"", world.cluster} & scopes.doubtful)
        decided, wrong, words = _decide(world, old, upgrade, memo, keeps=keeps)
        decisions.append(decided)
        problems += wrong
        warnings += words
    wanted = {world.cluster for world in scopes.worlds}
    for cluster in held.keys() - wanted:
        keeps = not sure or bool({"", cluster} & scopes.doubtful)
        decisions.append(ScopeDecision(cluster, held[cluster], held[cluster] if keeps else None))
    decisions.sort(key=lambda one: one.cluster)
    return Decision(tuple(decisions), tuple(sorted(set(problems))), tuple(sorted(set(warnings))))


def _decide(
    world: World, old: Locked | None, upgrade: frozenset[str], memo: Memo, *, keeps: bool
) -> tuple[ScopeDecision, tuple[Problem, ...], tuple[Problem, ...]]:
    asked = replace(world, choices=replace(world.choices, upgrade=_names(world, upgrade)))
    if old is not None:
        asked = replace(asked, pins=pins_of(old.resolution), chosen=choices_of(old.resolution))
    solution = memo.solution(asked)
    resolution = resolution_of(asked, solution, old.resolution if old else None)
    if keeps and old is not None:
        resolution = _with_kept(resolution, old.resolution)
    digest = UNFINISHED if solution.problems or keeps else memo.digest(world)
    previous = old.lock if old else None
    lock = lock_of(world.cluster, input_digest=digest, resolution=resolution, previous=previous)
    decided = ScopeDecision(world.cluster, old, Locked(lock, resolution), solution.explanations)
    return decided, solution.problems, solution.warnings


def _names(world: World, upgrade: frozenset[str]) -> frozenset[str]:
    """Return the packages' own names for the names that a person used."""
    known = world.catalogue
    aliased = {id_.name for alias, id_ in known.names.items() if alias.name in upgrade}
    return frozenset(aliased | {id_.name for id_ in known.packages if id_.name in upgrade})


def _check_names(scopes: Scopes, upgrade: frozenset[str]) -> None:
    for name in sorted(upgrade):
        if not any(_names(world, frozenset({name})) for world in scopes.worlds):
            hint = (
                "Names are those that `reconciler lock` and `reconciler index list` print, without ecosystem."
            )
            raise UsageError(f"No package is called {name}", hint=hint)


def _rests_on(old: Locked, unreachable: frozenset[str]) -> bool:
    return any(one.instance.name.rpartition("//")[0] in unreachable for one in old.resolution.packages)


def _with_kept(fresh: Resolution, old: Resolution) -> Resolution:
    """Return a resolution that forgets nothing: what is not wanted any more may only be misunderstood."""
    there = {one.instance for one in fresh.packages}
    packages = [*fresh.packages, *(one for one in old.packages if one.instance not in there)]
    packages.sort(key=lambda one: one.instance.model_dump_json())
    return fresh.model_copy(update={"packages": tuple(packages)})
