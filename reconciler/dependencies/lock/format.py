"""Locks as files and as values: their format, and the lock of a solution."""

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Exit, Location, ReconcilerError
from reconciler.base.reasons import Reason
from reconciler.base.text import plural, verb
from reconciler.base.values import Record, read_record
from reconciler.dependencies.model.cluster import ClusterInputs, bundle_name, carvel_name
from reconciler.dependencies.model.instances import (
    SCHEMA,
    Instance,
    LockedRevision,
    Resolution,
    Resolved,
    Slot,
    SlotKind,
    record_bytes,
)
from reconciler.dependencies.model.packages import VARIANT_KIND, Ecosystem, PackageId, dns_label
from reconciler.dependencies.solve.problem import Explanation, Solution
from reconciler.names.problems import Problem
from reconciler.records.state import LOCKS_DIRECTORY

T = TypeVar("T")
LOCK_VERSION = 2
SOLVER = "sat-canonical-2"


class SolverPolicy(Record, frozen=True, kw_only=True):
    """The choices that the answer depends on."""

    select: str = "dialect"
    allow_downgrade: bool = False
    discovery: str = "none"


class SolverRecord(Record, frozen=True, kw_only=True):
    """Name and settings of the solver that computed the resolution."""

    name: str = SOLVER
    policy: SolverPolicy = SolverPolicy()


DEFAULT_SOLVER = SolverRecord()


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
    solver: SolverRecord = DEFAULT_SOLVER
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
    solver: SolverRecord = DEFAULT_SOLVER,
) -> PackageLock:
    """Return a cluster's lock: the previous one if nothing changed, else the next generation."""
    lock = PackageLock(
        scope=LockScope(cluster=cluster),
        generation=previous.generation if previous else 1,
        input_digest=input_digest,
        solver=solver,
        resolution=resolution.digest,
        revisions=revisions,
    )
    is_same = previous is None or lock == previous
    return lock if is_same else replace(lock, generation=lock.generation + 1)


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


def lock_violations(locked: ClusterLock) -> Iterator[str]:
    """Yield the violated invariants of a single lock, in sentences. Total."""
    revisions, packages = locked.lock.revisions, locked.resolution.packages
    for state, owners in (
        ("active", [revision.package for revision in revisions if revision.is_active]),
        ("current", [revision.package for revision in revisions if revision.current]),
    ):
        for package, count in _repeated(owners):
            yield f"{package} has {plural(count, f'{state} revision')}"
    for (package, number), count in _repeated((r.package, r.revision) for r in revisions):
        yield f"{package} has {plural(count, 'revision')} with the number {number}"
    for name, count in _repeated(revision.name for revision in revisions):
        yield f"{plural(count, 'revision')} {verb(count, 'is', 'are')} called {name}"
    objects = {package.object for package in packages}
    for revision in revisions:
        if revision.package not in objects:
            yield f"revision {revision.name} belongs to {revision.package}, which is not there"
    others = {str(package.instance) for package in packages if not keeps_ownership(package.instance)}
    active = {revision.name for revision in revisions if revision.is_active} | others
    names = {revision.name for revision in revisions} | others
    for (_, name), entry in locked.resolution.ownership():
        if entry.controller and entry.controller not in active:
            yield f"{name} is controlled by {entry.controller}, which is not active"
        if entry.controller and (entry.controller not in entry.owners or entry.retained):
            yield f"{name} is controlled by {entry.controller}, which does not own it"
        yield from (
            f"{name} is owned by {owner}, which is gone" for owner in entry.owners if owner not in names
        )


def _repeated(items: Iterable[T]) -> list[tuple[T, int]]:
    return sorted((item, count) for item, count in Counter(items).items() if count > 1)


def step_violations(before: ClusterLock, after: ClusterLock) -> Iterator[str]:
    """Yield the violated invariants of the step from one lock to the next, in sentences. Total."""
    # New and reactivated revisions come last: a number never comes back.
    earlier = {(revision.package, revision.name): revision.revision for revision in before.lock.revisions}
    for package in sorted({package for package, _ in earlier}):
        last = max(number for (owner, _), number in earlier.items() if owner == package)
        for revision in after.lock.revisions:
            number = revision.revision
            moved = earlier.get((revision.package, revision.name)) != number
            if revision.package == package and moved and number <= last:
                yield f"revision {revision.name} has the number {number}, and {last} was given already"
    names = {revision.name for revision in after.lock.revisions}
    now = dict(after.resolution.ownership())
    for resource, entry in before.resolution.ownership():
        for owner in entry.owners:
            if owner in names and (resource not in now or owner not in now[resource].owners):
                yield f"{owner} is retained and does not own {resource.name} any more"


class BrokenLockError(ReconcilerError):
    """A new lock violates an invariant. This is a defect of the reconciler: nothing is written."""

    exit_code = Exit.BUG
    hint = "Please report this with the manifests, the index and the lock."

    def __init__(self, cluster: str, violations: Iterable[str]) -> None:
        super().__init__(f"the lock of {cluster} would be wrong: {'; '.join(violations)}")


def check_lock(before: ClusterLock | None, after: ClusterLock, *, is_sound: bool = False) -> None:
    """Refuse a lock that violates an invariant, or does not follow from the previous one.

    With `is_sound` only the generation is checked: an equal lock of another cluster passed the rest.

    Raises:
        BrokenLockError: The lock violates an invariant.
    """
    violations = [] if is_sound else [*lock_violations(after)]
    if before is not None:
        old, new = before.lock.generation, after.lock.generation
        if after.lock != before.lock and new != old + 1:
            violations.append(f"generation {new} follows {old}")
        violations += () if is_sound else step_violations(before, after)
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
    before: ClusterLock | None
    after: ClusterLock | None
    explanations: tuple[Explanation, ...] = ()
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
    def changes(self) -> tuple[LockChange, ...]:
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


def with_lock(inputs: ClusterInputs, resolution: Resolution) -> ClusterInputs:
    """Return the inputs with the locked state: pins, choices of alternatives, and CRD owners.

    Raises:
        VersionError: The lock was edited into something that is no version or range.
    """
    pins = transferred_pins(resolution.packages, inputs)
    return replace(inputs, pins=pins, locked=resolution.packages, held=exclusive_owners(resolution))


def exclusive_owners(
    resolution: Resolution, retained: Container[Instance] = ()
) -> tuple[tuple[str, PackageId], ...]:
    """Return the package that owns each CRD and composition, if ownership needs consent to change.

    That of `retained` instances cannot change: they stay, and nothing decides about their versions.
    """
    holders = ((resource.name, entry.holder) for resource, entry in resolution.ownership())
    return tuple(
        (name, holder.package)
        for name, holder in holders
        if holder is not None and (keeps_ownership(holder) or holder in retained)
    )


SHARED_SLOT_KINDS = frozenset({SlotKind.CLUSTER, SlotKind.NAMESPACE})


def transferred_pins(pins: tuple[Resolved, ...], inputs: ClusterInputs) -> tuple[Resolved, ...]:
    """Return the pins with those of adopted packages: a user's manifest replaces a generated one, or back.

    Either way the version stays, and nothing is installed twice.
    """
    standing = {inputs.instance_of(install) for install in inputs.installs if not install.external}
    pinned = {pin.instance for pin in pins}
    transferred: dict[Instance, Resolved] = {}
    for pin in pins:
        slot = pin.instance.slot
        successors: list[Instance] = []
        if slot.kind is SlotKind.INSTALL and pin.instance not in standing:
            successors = [replace(pin.instance, slot=Slot(SlotKind.NAMESPACE, slot.namespace, slot.path[1:]))]
        elif slot.kind in SHARED_SLOT_KINDS:
            siblings = (
                i for i in standing if i.package == pin.instance.package and i.slot.target == slot.target
            )
            anywhere = slot.kind is SlotKind.CLUSTER
            successors = sorted(i for i in siblings if anywhere or i.slot.namespace == slot.namespace)
        for instance in successors:
            if instance not in pinned:
                transferred.setdefault(instance, replace(pin, instance=instance))
    return (*pins, *(transferred[instance] for instance in sorted(transferred)))


class FleetLocks(Struct, frozen=True):
    """The locks of a state branch by cluster, and problems of those that cannot be read.

    `broken` are clusters with a lock that violates an invariant: it was edited, and stays until corrected.
    """

    by_cluster: Mapping[str, ClusterLock] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def read_locks(files: Mapping[str, bytes], *, reviewed: bool = False) -> FleetLocks:
    """Return the locks that the files of a state branch hold, or those of main if they are `reviewed`. Total.

    A lock that cannot be read costs a new resolution of its cluster, and is a problem. One that
    breaks a law is kept as it is: which of two revisions is active is nothing to guess. On the state branch
    a resolution is called by the digest of its bytes; on main people may edit it.
    """
    place = "main" if reviewed else "the state branch"
    locks: dict[str, ClusterLock] = {}
    broken: set[str] = set()
    bodies: dict[str, Resolution] = {}
    edited: set[str] = set()
    sound: set[tuple[str, tuple[LockedRevision, ...]]] = set()
    problems = []
    for path, data in sorted(files.items()):
        if path.rpartition("/")[0] != LOCKS_DIRECTORY or not path.endswith(".json"):
            continue
        try:
            lock = read_record(data, PackageLock)
            if lock.resolution not in bodies:
                text = files.get(resolution_path(lock.resolution), b"")
                body = read_record(text, Resolution)
                for package in body.packages:
                    _ = package.candidate  # versions and ranges in it, too
                bodies[lock.resolution] = body
                if not reviewed and f"sha256:{hashlib.sha256(text).hexdigest()}" != lock.resolution:
                    edited.add(lock.resolution)
        except ValueError as error:
            message = f"The lock cannot be read: {error}"
            hint = f"Correct or remove it on {place}; the cluster is resolved anew."
            problems.append(Problem(Location(path), Reason.INVALID_STATE, message, hint))
            continue
        locked = locks[lock.scope.cluster] = ClusterLock(lock, bodies[lock.resolution])
        content = (lock.resolution, lock.revisions)
        changed = f"{resolution_path(lock.resolution)} was edited" if lock.resolution in edited else ""
        if content not in sound and (wrong := [*filter(None, [changed]), *lock_violations(locked)]):
            broken.add(lock.scope.cluster)
            message = f"The lock is broken: {'; '.join(wrong)}"
            hint = f"Correct it on {place}; until then nothing of this cluster changes."
            problems.append(Problem(Location(path), Reason.INVALID_STATE, message, hint))
        else:
            sound.add(content)
    return FleetLocks(locks, frozenset(broken), tuple(problems))


RequirementPath = tuple[Resolved, ...]


class NeededPackage(Struct, frozen=True):
    """A kpt package that a cluster needs because its variants require it.

    Each of the `paths` leads to one direct parent: from the package of a variant, first, to the parent,
    last. They are sorted by their instances.
    """

    package: Resolved
    paths: tuple[RequirementPath, ...]

    @property
    def roots(self) -> tuple[Instance, ...]:
        """The variants' own packages that it is there for."""
        return tuple(dict.fromkeys(trail[0].instance for trail in self.paths))


def needed_packages(resolution: Resolution) -> Iterator[NeededPackage]:
    """Yield every kpt package that the variants of a cluster need and no manifest installs. Order-free.

    Each is listed once, however many need it, as its slot demands. Packages that only installs of other
    kinds need are left out: no repository is known to deliver them.
    """
    by_instance = {package.instance: package for package in resolution.packages}
    for package in sorted(resolution.packages, key=lambda package: str(package.instance)):
        if package.instance.ecosystem == Ecosystem.KPT and package.instance.slot.kind != SlotKind.INSTALL:
            parents = (by_instance[parent] for parent in package.requested_by if parent in by_instance)
            paths = [path for parent in parents if (path := _shortest(parent, by_instance)) is not None]
            if paths:
                paths.sort(key=lambda path: [str(step.instance) for step in path])
                yield NeededPackage(package, tuple(paths))


def _shortest(last: Resolved, by_instance: Mapping[Instance, Resolved]) -> RequirementPath | None:
    """Return the shortest way from a variant to a package, the first of several; None if none leads there."""
    paths: list[RequirementPath] = [(last,)]
    seen = {last.instance}
    for path in paths:
        if path[0].kind == VARIANT_KIND:
            return path
        above = sorted(path[0].requested_by, key=str)
        parents = [parent for parent in above if parent in by_instance and parent not in seen]
        seen.update(parents)
        paths += [(by_instance[parent], *path) for parent in parents]
    return None


CARVEL_KIND, CARVEL_API_VERSION = "PackageInstall", "packaging.carvel.dev/v1alpha1"
PORTER_KIND, PORTER_SCHEMA = "Installation", "1.0.2"
_XPKG_API_VERSION = "pkg.crossplane.io/v1"


ClusterObject = tuple[str, str, str]
"""API version, kind and name of a package's object in its cluster; empty where that is named later."""


def lock_solution(
    inputs: ClusterInputs, solution: Solution, previous: Resolution | None = None
) -> Resolution:
    """Return the resolution to lock, without ownership. Parts without a solution stay as locked before.

    A generated package belongs to the direct parent that it has, while that asks for it, else to the one with
    the lowest namespace and name. Deterministic, order-free and independent of the cluster's name.
    """
    held = {package.instance: package for package in (previous.packages if previous else ())}
    named = _with_objects(inputs, solution, held)

    def place(parent: Instance) -> tuple[str, str, str]:
        return (parent.slot.namespace, named[parent].name or parent.name, str(parent))

    objects = installing_objects(named.values())
    unsolved = (package for instance, package in held.items() if instance in solution.failed)
    fresh = [package for package in unsolved if package.object not in objects]
    for instance, package in named.items():
        parents, former = package.requested_by, held.get(instance)
        owner = former.owner if former and former.owner in parents else min(parents, key=place, default=None)
        fresh.append(package if package.by_user else replace(package, owner=owner))
    return Resolution(
        packages=tuple(sorted(fresh, key=lambda package: package.instance)),
        skipped=tuple(sorted(solution.skipped, key=lambda skipped: (skipped.parent, skipped.requirement))),
    )


def installing_objects(packages: Iterable[Resolved]) -> frozenset[str]:
    """Return the objects that install Crossplane packages: what one of them installed before is replaced."""
    return frozenset(package.object for package in packages if keeps_ownership(package.instance))


def _with_objects(
    inputs: ClusterInputs, solution: Solution, held: Mapping[Instance, Resolved]
) -> dict[Instance, Resolved]:
    """Return every package with its object: the user's own, the locked one, else a new free name.

    Source: crossplane, internal/xpkg, ToDNSLabel of the repository: the name of a generated package.
    Differs: two repositories with one path in two registries get two names.
    """
    installs = inputs.installs_by_instance()
    objects: dict[Instance, ClusterObject] = {
        instance: (install.api_version, install.kind, install.name)
        for instance, install in installs.items()
        if instance in solution.resolved
    }
    for instance in sorted(solution.resolved.keys() - objects.keys(), key=str):
        kind, taken = solution.candidates[instance].kind, frozenset(objects.values())
        objects[instance] = _generated_object(instance, kind, held.get(instance), taken)
    return {
        instance: replace(package, api_version=version, kind=kind, name=name)
        for instance, package in solution.resolved.items()
        for version, kind, name in [objects[instance]]
    }


def _generated_object(
    instance: Instance, kind: str, previous: Resolved | None, taken: Container[ClusterObject]
) -> ClusterObject:
    if previous is not None and not previous.by_user:
        previous_object = (previous.api_version, previous.kind, previous.name)
        if previous_object not in taken:
            return previous_object
    match instance.ecosystem:
        case Ecosystem.CARVEL:
            return (CARVEL_API_VERSION, CARVEL_KIND, carvel_name(instance.name, instance.slot))
        case Ecosystem.BUNDLE:
            return (PORTER_SCHEMA, PORTER_KIND, bundle_name(instance.name, instance.slot))
        case Ecosystem.KPT:
            return ("", "", "")
    name = dns_label(instance.name)
    if (_XPKG_API_VERSION, kind, name) not in taken:
        return (_XPKG_API_VERSION, kind, name)
    mark = hashlib.sha256(instance.name.encode()).hexdigest()[:8]
    return (_XPKG_API_VERSION, kind, f"{name[:54]}-{mark}")
