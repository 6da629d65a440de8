"""File format of locks: one lock per cluster, resolutions named by their content."""

import functools
import hashlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import orjson
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reconciler.dependencies.lock.paths import RESOLUTIONS_DIRECTORY
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.records.upstream_lock import LOCKS_DIRECTORY

SCHEMA = "reconciler.dev/v1alpha1"


LOCK_VERSION = 1


SOLVER = "sat-canonical-2"


class StateRecord(BaseModel):
    """A value of a JSON file on a machine-owned branch: immutable, camelCase there, no unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel, defer_build=True, extra="forbid", frozen=True, populate_by_name=True
    )


class LockedSlot(StateRecord):
    """The slot of an instance: a tuple, never a joined string."""

    kind: str
    namespace: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, *self.path) if part)


class LockedInstance(StateRecord):
    """One package in one slot. Its text is the reference in `requested_by`, `owner` and ownership."""

    ecosystem: str
    name: str
    slot: LockedSlot

    def __str__(self) -> str:
        return f"{self.ecosystem}:{self.name}@{self.slot}"

    @property
    def order(self) -> tuple[str, str, str, str, tuple[str, ...]]:
        """By ecosystem, name and slot: the order of every list of instances in a lock."""
        return (self.ecosystem, self.name, self.slot.kind, self.slot.namespace, self.slot.path)


class LockedDependency(StateRecord):
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
    resolved: LockedInstance | None = None
    detail: str = ""
    via: str
    active: bool = True
    alternative: int = 0
    alternatives: int = 1
    optional: bool = False
    upgrade: bool = False
    uninstall: bool = True


class LockedPackage(StateRecord):
    """One instance and the version that was chosen for it, in its original spelling.

    `api_version`, `kind` and `name` are those of its object in the cluster: the user's own, or the
    one that a generated Crossplane package gets. `owner` is `user`, or the direct parent that it
    belongs to. `retain` keeps it when nothing needs it any more; `prune_kinds` lets its kinds go with it.
    `resolved_version` is the version that has these dependencies, if a run without dependencies changed it.
    """

    instance: LockedInstance
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


class OwnershipEntry(StateRecord):
    """Owner of a CRD or composition: the active revision that controls it, and every revision that has it.

    Revisions are listed by name, instances of ecosystems without revisions by `ecosystem:name@slot`.
    Without a controller it is `retained` if it is still in the cluster, else not created yet.
    """

    package: str = ""
    controller: str = ""
    owners: tuple[str, ...] = ()
    retained: bool = False


class SkippedDependency(StateRecord):
    """An optional requirement that was not met, and why."""

    parent: LockedInstance
    requirement: str
    reason: str = ""


class Resolution(StateRecord):
    """Locked versions and ownership, the same for every cluster with the same inputs; named by content."""

    api_version: str = SCHEMA
    kind: str = "PackageResolution"
    packages: tuple[LockedPackage, ...] = ()
    custom_resource_definitions: dict[str, OwnershipEntry] = Field(default_factory=dict)
    compositions: dict[str, OwnershipEntry] = Field(default_factory=dict)
    skipped: tuple[SkippedDependency, ...] = ()
    unused: tuple[LockedInstance, ...] = ()

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


class LockedRevision(StateRecord):
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


class SolverPolicy(StateRecord):
    """The choices that the answer depends on."""

    select: str = "dialect"
    allow_downgrade: bool = False
    discovery: str = "none"


class SolverRecord(StateRecord):
    """Name and settings of the solver that computed the resolution."""

    name: str = SOLVER
    policy: SolverPolicy = SolverPolicy()


class LockScope(StateRecord):
    """The cluster of a lock."""

    cluster: str


class PackageLock(StateRecord):
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


def record_bytes(record: BaseModel) -> bytes:
    """Return canonical bytes: sorted keys, two-space indent, final newline, no time. Deterministic."""
    data = record.model_dump(mode="json", by_alias=True, exclude_none=True)
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


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
    same = fresh.model_copy(update={"generation": previous.generation})
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
    return package.startswith(f"{Ecosystem.XPKG}:")


def package_name(package: str) -> str:
    """Return the package of an instance, without ecosystem and slot."""
    return package.partition(":")[2].rpartition("@")[0]


def ownership_entries(resolution: Resolution) -> Iterator[tuple[str, OwnershipEntry]]:
    """Yield the owners of every kind and then of every composition of a resolution."""
    yield from resolution.custom_resource_definitions.items()
    yield from resolution.compositions.items()


def current_holder(entry: OwnershipEntry | None) -> str:
    """Return the instance that owns a CRD or composition in the cluster; empty if none does."""
    stands = entry is not None and (entry.controller or entry.retained)
    return entry.package if entry is not None and stands else ""


class ClusterLock(Struct, frozen=True):
    """The lock of one cluster with the resolution that it names."""

    lock: PackageLock
    resolution: Resolution

    def revisions_of(self, package: LockedPackage) -> tuple[LockedRevision, ...]:
        """Return the revisions of a package, lowest number first."""
        return tuple(revision for revision in self.lock.revisions if revision.package == package.object)
