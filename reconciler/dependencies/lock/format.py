"""Locks as files and as values: their format, their invariants, and what a run changes in them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.text import plural, verb
from reconciler.base.values import Record
from reconciler.dependencies.model.instances import (
    SCHEMA,
    Instance,
    OwnershipEntry,
    Resolution,
    Resolved,
    record_bytes,
)
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.names.problems import Problem
from reconciler.records.upstream_lock import LOCKS_DIRECTORY

if TYPE_CHECKING:
    from reconciler.dependencies.solve.problem import Explanation

LOCK_VERSION = 2
SOLVER = "sat-canonical-2"


class DesiredState(StrEnum):
    """Whether a revision runs, as Crossplane spells it."""

    ACTIVE = "Active"
    INACTIVE = "Inactive"


class ActivationBlocker(StrEnum):
    """Reason why the requested revision is not active yet."""

    NOTHING = ""
    PERSON = "Person"
    PARENTS = "Parents"
    KINDS = "Kinds"


class LockedRevision(Record, frozen=True, kw_only=True):
    """One revision of a Crossplane package in a cluster: numbered, of which at most one is Active.

    `package` is the object that it belongs to (`Provider/aws`), `image` has the tag. The `current`
    one is what the package asks for; if it is Inactive, it `awaits` a person, the activation of those
    who need it, or kinds that another package has. `needs` are the instances that meet what it
    requires: they stay as long as it runs.
    """

    package: str
    name: str
    revision: int
    desired_state: DesiredState
    image: str = ""
    digest: str = ""
    current: bool = False
    awaits: ActivationBlocker = ActivationBlocker.NOTHING
    needs: tuple[Instance, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether this is the revision that runs."""
        return self.desired_state is DesiredState.ACTIVE


class SolverPolicy(Record, frozen=True, kw_only=True):
    """The choices that the answer depends on."""

    select: str = "dialect"
    allow_downgrade: bool = False
    discovery: str = "none"


class SolverRecord(Record, frozen=True, kw_only=True):
    """Name and settings of the solver that computed the resolution."""

    name: str = SOLVER
    policy: SolverPolicy = SolverPolicy()


class LockScope(Record, frozen=True, kw_only=True):
    """The cluster of a lock."""

    cluster: str


class PackageLock(Record, frozen=True, kw_only=True):
    """The lock of one cluster: its resolution, the digest of its inputs, and its revisions."""

    api_version: str = SCHEMA
    kind: str = "PackageLock"
    scope: LockScope
    lock_version: int = LOCK_VERSION
    generation: int = 1
    input_digest: str
    solver: SolverRecord = SolverRecord()
    resolution: str
    revisions: tuple[LockedRevision, ...] = ()


def lock_path(lock: PackageLock) -> str:
    """Return a cluster lock's path on the state branch."""
    return f"{LOCKS_DIRECTORY}/{lock.scope.cluster}.json"


def resolution_path(digest: str) -> str:
    """Return a resolution's path on the state branch."""
    return f"{RESOLUTIONS_DIRECTORY}/{digest.removeprefix('sha256:')}.json"


def next_lock(
    cluster: str,
    *,
    input_digest: str,
    resolution: Resolution,
    revisions: tuple[LockedRevision, ...] = (),
    previous: PackageLock | None = None,
    solver: SolverRecord | None = None,
) -> PackageLock:
    """Return a cluster's lock: the previous one if nothing changed, else the next generation."""
    fresh = PackageLock(
        scope=LockScope(cluster=cluster),
        generation=previous.generation + 1 if previous else 1,
        input_digest=input_digest,
        solver=solver or SolverRecord(),
        resolution=resolution.digest,
        revisions=revisions,
    )
    if previous is None:
        return fresh
    same = replace(fresh, generation=previous.generation)
    return previous if same == previous else fresh


class LockOp(StrEnum):
    """Change of one locked instance."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


class LockChange(NamedTuple):
    """One instance with different versions in two resolutions; None where one does not have it."""

    instance: Instance
    before: Resolved | None
    after: Resolved | None

    @property
    def op(self) -> LockOp:
        """The change of the instance."""
        if self.before is None:
            return LockOp.ADD
        return LockOp.REMOVE if self.after is None else LockOp.CHANGE


def lock_changes(before: Resolution, after: Resolution) -> tuple[LockChange, ...]:
    """Compare the versions of two resolutions; equal ones yield nothing. Sorted by the texts of instances."""
    old, new = ({package.instance: package for package in side.packages} for side in (before, after))
    changes = (LockChange(i, old.get(i), new.get(i)) for i in sorted(old.keys() | new.keys(), key=str))
    return tuple(change for change in changes if _content(change.before) != _content(change.after))


def _content(package: Resolved | None) -> tuple[str, str] | None:
    return (package.version, package.digest) if package is not None else None


def keeps_ownership(instance: Instance | None) -> bool:
    """Tell whether an instance keeps its CRDs until its owner consents, as Crossplane's packages do.

    CRDs of other installers have no controller reference, and change owners when their package goes.
    """
    return instance is not None and instance.ecosystem is Ecosystem.XPKG


def ownership_entries(resolution: Resolution) -> Iterator[tuple[str, OwnershipEntry]]:
    """Yield the owners of every kind and then of every composition of a resolution."""
    yield from resolution.custom_resource_definitions.items()
    yield from resolution.compositions.items()


class ClusterLock(Struct, frozen=True):
    """The lock of one cluster with the resolution that it names."""

    lock: PackageLock
    resolution: Resolution

    def revisions_of(self, package: Resolved) -> tuple[LockedRevision, ...]:
        """Return the revisions of a package, lowest number first."""
        return tuple(revision for revision in self.lock.revisions if revision.package == package.object)


RESOLUTIONS_DIRECTORY = f"{LOCKS_DIRECTORY}/resolutions"


def is_lock_file(path: str) -> bool:
    """Tell whether a path of the state branch is a lock or a resolution."""
    directory = path.rpartition("/")[0]
    return path.endswith(".json") and directory in (LOCKS_DIRECTORY, RESOLUTIONS_DIRECTORY)


def lock_violations(lock: PackageLock, resolution: Resolution) -> tuple[str, ...]:
    """Return the violated invariants of a single lock, in sentences. Total."""
    objects = {package.object for package in resolution.packages}
    strays = (revision for revision in lock.revisions if revision.package not in objects)
    astray = (f"revision {r.name} belongs to {r.package}, which is not there" for r in strays)
    return (*_revision_violations(lock.revisions), *astray, *_ownership_violations(lock, resolution))


def step_violations(
    before: tuple[PackageLock, Resolution], after: tuple[PackageLock, Resolution]
) -> tuple[str, ...]:
    """Return the violated invariants of the step from one lock to the next, in sentences. Total."""
    return (*_number_violations(before[0], after[0]), *_losses(before, after))


def generation_violations(before: PackageLock, after: PackageLock) -> tuple[str, ...]:
    """Return an error if the generation of a lock does not follow the previous one. Total."""
    follows = after == before or after.generation == before.generation + 1
    return () if follows else (f"generation {after.generation} follows {before.generation}",)


def _revision_violations(revisions: Iterable[LockedRevision]) -> Iterator[str]:
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


def _ownership_violations(lock: PackageLock, resolution: Resolution) -> Iterator[str]:
    others = {str(p.instance) for p in resolution.packages if not keeps_ownership(p.instance)}
    active = {revision.name for revision in lock.revisions if revision.is_active} | others
    names = {revision.name for revision in lock.revisions} | others
    for name, entry in ownership_entries(resolution):
        if entry.controller and entry.controller not in active:
            yield f"{name} is controlled by {entry.controller}, which is not active"
        if entry.controller and (entry.controller not in entry.owners or entry.retained):
            yield f"{name} is controlled by {entry.controller}, which does not own it"
        for owner in entry.owners:
            if owner not in names:
                yield f"{name} is owned by {owner}, which is gone"


def _number_violations(before: PackageLock, after: PackageLock) -> Iterator[str]:
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
    names = {revision.name for revision in after[0].revisions}
    now = dict(ownership_entries(after[1]))
    for name, entry in ownership_entries(before[1]):
        for owner in entry.owners:
            if owner in names and (name not in now or owner not in now[name].owners):
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


class ResolveOptions(NamedTuple):
    """Options of one run, in addition to the manifests.

    The packages of `upgrade` may change their locked version. Without `dependencies` generated packages
    stay as they are: none is added, changed or removed. With `prune` everything unneeded goes, also
    packages that are retained by default, and the entries of CRDs that went with removed packages.
    """

    upgrade: frozenset[str] = frozenset()
    dependencies: bool = True
    prune: bool = False


DEFAULT_OPTIONS = ResolveOptions()


class ClusterUpdate(Struct, frozen=True):
    """One cluster: its lock before and after, explanations of conflicts, problems and warnings.

    It is not `finished` if a part has no solution, or an input is unknown. It `is_outdated` if it was
    resolved again with the same result, and keeps the digest of other inputs until a run writes.
    `unavailable` completes a sentence about each package with a locked version that is no candidate, by its
    instance.
    """

    cluster: str
    before: "ClusterLock | None"
    after: "ClusterLock | None"
    explanations: "tuple[Explanation, ...]" = ()
    finished: bool = True
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    is_outdated: bool = False
    unavailable: Mapping[Instance, str] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether anything was decided anew: a new digest of the inputs alone is no change."""
        return self.before != self.after and not self.is_refresh

    @property
    def is_refresh(self) -> bool:
        """Whether nothing but the digest of the inputs differs, so that nothing was decided anew."""
        if self.before is None or self.after is None or self.before.resolution != self.after.resolution:
            return False
        same = {"input_digest": self.after.lock.input_digest, "generation": self.after.lock.generation}
        return replace(self.before.lock, **same) == self.after.lock

    @property
    def changes(self) -> "tuple[LockChange, ...]":
        """The pins that differ; none where only inputs changed that do not matter."""
        nothing = Resolution()
        before = self.before.resolution if self.before else nothing
        return lock_changes(before, self.after.resolution if self.after else nothing)


class LockUpdate(Struct, frozen=True):
    """Lock updates of the whole fleet: every cluster that has or gets a lock, sorted, and problems."""

    scopes: tuple[ClusterUpdate, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any file of any cluster changes."""
        return any(scope.changed for scope in self.scopes)

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the state branch that hold these locks; resolutions that none names are left out."""
        files: dict[str, bytes] = {}
        for scope in self.scopes:
            if scope.after is not None:
                files[lock_path(scope.after.lock)] = record_bytes(scope.after.lock)
                path = resolution_path(scope.after.lock.resolution)
                if path not in files:
                    files[path] = record_bytes(scope.after.resolution)
        return dict(sorted(files.items()))
