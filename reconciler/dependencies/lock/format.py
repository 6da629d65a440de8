"""Locks as files and as values: their format, their invariants, and what a run changes in them."""

import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.wire import Record, canonical_json
from reconciler.base.wording import plural, verb
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import Ecosystem, PackageId
from reconciler.names.problems import Problem
from reconciler.records.upstream_lock import LOCKS_DIRECTORY

if TYPE_CHECKING:
    from reconciler.dependencies.solve.problem import Explanation

SCHEMA = "reconciler.dev/v1alpha1"
LOCK_VERSION = 1
SOLVER = "sat-canonical-2"


class LockedDependency(Record, frozen=True, kw_only=True):
    """How one requirement was met: its range in its dialect, and the instance that satisfies it.

    `need` is `package`, `api` or `interface`; `signature` names the requirement among its package's.
    `upgrade` and `uninstall` are the actions on the parent that reach what meets it.
    """

    signature: str
    need: str
    id: str
    dialect: str = ""
    constraints: str = ""
    prereleases: tuple[str, ...] | None = None
    alias: str = ""
    resolved: Instance | None = None
    detail: str = ""
    via: str
    active: bool = True
    alternative: int = 0
    alternatives: int = 1
    optional: bool = False
    upgrade: bool = False
    uninstall: bool = True

    @property
    def installation(self) -> str:
        """The installation that meets it, as `NAMESPACE/NAME`, if nothing of ours installs it."""
        return self.detail.partition(":")[2]


class LockedPackage(Record, frozen=True, kw_only=True):
    """One instance and the version that was chosen for it, in its original spelling.

    `api_version`, `kind` and `name` are those of its object in the cluster: the user's own, or the
    one that a generated Crossplane package gets. `owner` is `user`, or the direct parent that it
    belongs to. `retain` keeps it when nothing needs it any more; `prune_kinds` lets its kinds go with it.
    `resolved_version` is the version that has these dependencies, if a run without dependencies changed it.
    """

    instance: Instance
    dialect: str
    api_version: str = ""
    kind: str = ""
    name: str = ""
    source: str = ""
    version: str
    digest: str = ""
    requested_by: tuple[str, ...] = ()
    owner: str = ""
    last_attempted_version: str = ""
    unavailable: bool = False
    retain: bool = False
    prune_kinds: bool = False
    resolved_version: str | None = None
    dependencies: tuple[LockedDependency, ...] = ()

    @property
    def object(self) -> str:
        """Its object in the cluster as revisions name it: `Provider/aws`."""
        return f"{self.kind}/{self.name}" if self.kind else self.name


class OwnershipEntry(Record, frozen=True, kw_only=True):
    """Owner of a CRD or composition: the active revision that controls it, and every revision that has it.

    Revisions are listed by name, instances of ecosystems without revisions by `ecosystem:name@slot`.
    Without a controller it is `retained` if its package has it in the cluster, else not created yet. The
    `object` that has it there is named if it installed another package since: `Provider/aws`.
    """

    package: str = ""
    controller: str = ""
    owners: tuple[str, ...] = ()
    retained: bool = False
    object: str = ""


class SkippedDependency(Record, frozen=True, kw_only=True):
    """An optional requirement that was not met, and why."""

    parent: Instance
    requirement: str
    reason: str = ""


class Resolution(Record, frozen=True, kw_only=True, dict=True):
    """Locked versions and ownership, the same for every cluster with the same inputs; named by content."""

    api_version: str = SCHEMA
    kind: str = "PackageResolution"
    packages: tuple[LockedPackage, ...] = ()
    custom_resource_definitions: dict[str, OwnershipEntry] = msgspec.field(default_factory=dict)
    compositions: dict[str, OwnershipEntry] = msgspec.field(default_factory=dict)
    skipped: tuple[SkippedDependency, ...] = ()
    unused: tuple[Instance, ...] = ()

    @functools.cached_property
    def digest(self) -> str:
        """Its name: the SHA-256 of its canonical bytes."""
        return f"sha256:{hashlib.sha256(record_bytes(self)).hexdigest()}"


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
    needs: tuple[str, ...] = ()

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


def record_bytes(record: Record) -> bytes:
    """Return canonical bytes, without what is None: sorted keys, final newline, no time. Deterministic."""
    return canonical_json(_without_none(msgspec.to_builtins(record)))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list | tuple) else value


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
    """One difference between two resolutions, for `lock --check` and a pull request's text."""

    op: LockOp
    instance: str
    before: str = ""
    after: str = ""


def lock_changes(before: Resolution, after: Resolution) -> tuple[LockChange, ...]:
    """Compare two resolutions pin by pin; equal ones yield nothing. Sorted by instance."""
    old, new = _versions(before), _versions(after)
    changes = []
    for instance in sorted(old.keys() | new.keys()):
        was, now = old.get(instance, ""), new.get(instance, "")
        if was != now:
            op = LockOp.ADD if not was else LockOp.REMOVE if not now else LockOp.CHANGE
            changes.append(LockChange(op, instance, was, now))
    return tuple(changes)


def _versions(resolution: Resolution) -> Mapping[str, str]:
    return {
        str(package.instance): (f"{package.version}@{package.digest}" if package.digest else package.version)
        for package in resolution.packages
    }


def keeps_ownership(package: str) -> bool:
    """Tell whether an instance keeps its CRDs until its owner consents, as Crossplane's packages do.

    CRDs of other installers have no controller reference, and change owners when their package goes.
    """
    id_ = package_of(package)
    return id_ is not None and id_.ecosystem is Ecosystem.XPKG


def package_of(instance: str) -> PackageId | None:
    """Return the package of an instance from its text in a lock, None for any other text. Total."""
    ecosystem, _, rest = instance.partition(":")
    if ecosystem not in list(Ecosystem):
        return None
    return PackageId(Ecosystem(ecosystem), rest.rpartition("@")[0])


def package_name(instance: str) -> str:
    """Return the name of an instance's package, "" for any other text."""
    id_ = package_of(instance)
    return id_.name if id_ is not None else ""


def ownership_entries(resolution: Resolution) -> Iterator[tuple[str, OwnershipEntry]]:
    """Yield the owners of every kind and then of every composition of a resolution."""
    yield from resolution.custom_resource_definitions.items()
    yield from resolution.compositions.items()


def current_holder(entry: OwnershipEntry | None) -> str:
    """Return the instance that owns a CRD or composition in the cluster; empty if none does."""
    return entry.package if entry is not None and (entry.controller or entry.retained) else ""


class ClusterLock(Struct, frozen=True):
    """The lock of one cluster with the resolution that it names."""

    lock: PackageLock
    resolution: Resolution

    def revisions_of(self, package: LockedPackage) -> tuple[LockedRevision, ...]:
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
    instances = {str(revision.instance) for revision in resolution.packages}
    others = {revision for revision in instances if not keeps_ownership(revision)}
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
    unavailable: Mapping[str, str] = field(default_factory=dict)

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
