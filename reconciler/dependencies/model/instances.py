"""Instances of packages in a cluster, and what was resolved for them: what a lock stores."""

import functools
import hashlib
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from reconciler.base.values import Record, canonical_json
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Requirement,
    VersionRange,
    version_range,
)
from reconciler.dependencies.versions import VersionError, parse_loose, parse_relaxed

SCHEMA = "reconciler.dev/v1alpha1"


class SlotKind(StrEnum):
    """Kinds of slots: what must be unique within a cluster, and is therefore shared or not."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"
    INSTALL = "install"
    SHARED = "shared"
    FOR = "for"


_TARGETED = frozenset({SlotKind.INSTALL, SlotKind.NAMESPACE})


_TARGET = "cluster="


def target_path(target: str) -> tuple[str, ...]:
    """Return the end of the path of a slot in another cluster; nothing for the cluster of the lock."""
    return (f"{_TARGET}{target}",) if target else ()


class Slot(Record, frozen=True, order=True, cache_hash=True):
    """A place for one instance of a package: the unit in which versions are unified.

    `path` is the user's name of an install, the group and labels of a shared instance, or the
    way of aliases from the install that an exclusive instance belongs to; then the target.
    """

    kind: SlotKind
    namespace: str = ""
    path: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The kubeconfig of the cluster that it is in, empty for the cluster of the lock."""
        last = self.path[-1] if self.path and self.kind in _TARGETED else ""
        return last.removeprefix(_TARGET) if last.startswith(_TARGET) else ""

    @property
    def alias(self) -> str:
        """The alias of an exclusive instance in its parent; for one that parents share a placeholder."""
        return self.path[-1] if self.kind is SlotKind.FOR else "ALIAS"

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, *self.path) if part)


class Instance(Record, frozen=True, order=True, cache_hash=True):
    """One package in one slot of a cluster. Its text is for people: nothing reads it."""

    ecosystem: Ecosystem
    name: str
    slot: Slot

    @property
    def package(self) -> PackageId:
        """The package, whatever its slot."""
        return PackageId(self.ecosystem, self.name)

    def __str__(self) -> str:
        return f"{self.ecosystem}:{self.name}@{self.slot}"


class MetNeed(Record, frozen=True, kw_only=True):
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

    @property
    def name(self) -> str:
        """The name of the package, else the API or interface."""
        return self.id.partition(":")[2] if self.need == "package" else self.id

    @property
    def range(self) -> VersionRange:
        """The versions that it asks for.

        Raises:
            VersionError: The lock was edited into something else.
        """
        return version_range(Dialect(self.dialect), self.constraints, prereleases=self.prereleases)

    @property
    def requirement(self) -> Requirement:
        """The requirement as far as the lock has it.

        Raises:
            VersionError: The lock was edited into an invalid range.
        """
        need: Need
        if self.need == "api":
            api, _, kind = self.id.rpartition("/")
            need = ApiNeed(Gvk.of(api, kind))
        elif self.need == "interface":
            need = InterfaceNeed(self.id, self.range)
        else:
            need = PackageNeed(PackageId(Ecosystem(self.id.partition(":")[0]), self.name), self.range)
        return Requirement((need,), alias=self.alias, optional=self.optional)


def met_need(need: Need, **fields: Any) -> MetNeed:
    """Return how a need was met."""
    if isinstance(need, ApiNeed):
        return MetNeed(need="api", id=str(need.gvk), **fields)
    fields |= {"dialect": need.range.dialect, "constraints": need.range.text}
    if isinstance(need, InterfaceNeed):
        return MetNeed(need="interface", id=need.id, **fields)
    return MetNeed(need="package", id=str(need.id), prereleases=need.range.prereleases, **fields)


class Resolved(Record, frozen=True, kw_only=True):
    """One instance and the version that was chosen for it, in its original spelling.

    `api_version`, `kind` and `name` are those of its object in the cluster: the user's own, or the
    one that a generated Crossplane package gets. `by_user` tells that a user's manifest installs it; any
    other has an `owner`, the direct parent that it belongs to, while one is left. `retain` keeps it when
    nothing needs it any more; `prune_kinds` lets its kinds go with it.
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
    by_user: bool = False
    requested_by: tuple[Instance, ...] = ()
    owner: Instance | None = None
    unavailable: bool = False
    retain: bool = False
    prune_kinds: bool = False
    resolved_version: str | None = None
    dependencies: tuple[MetNeed, ...] = ()

    @property
    def object(self) -> str:
        """Its object in the cluster as revisions name it: `Provider/aws`."""
        return f"{self.kind}/{self.name}" if self.kind else self.name

    @property
    def candidate(self) -> Candidate:
        """The candidate as far as the lock has it; its requirements count if it is not published any more.

        Raises:
            VersionError: The lock was edited into an invalid version or range.
        """
        try:
            version = parse_relaxed(self.version)
        except VersionError:
            version = parse_loose(self.version)
        return Candidate(
            self.instance.package,
            version,
            digest=self.digest,
            requires=tuple(dependency.requirement for dependency in self.dependencies),
            source=self.source,
            kind=self.kind if self.instance.ecosystem is Ecosystem.XPKG else "",
        )


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


class OwnershipEntry(Record, frozen=True, kw_only=True):
    """Owner of a CRD or composition: the active revision that controls it, and every revision that has it.

    Revisions are listed by name, instances of ecosystems without revisions by their texts.
    Without a controller it is `retained` if its package has it in the cluster, else not created yet. The
    `object` that has it there is named if it installed another package since: `Provider/aws`.
    """

    package: Instance | None = None
    controller: str = ""
    owners: tuple[str, ...] = ()
    retained: bool = False
    object: str = ""

    @property
    def holder(self) -> Instance | None:
        """The instance that has it in the cluster, None if none does."""
        return self.package if self.controller or self.retained else None


COMPOSITION = "the composition "


class OwnedResource(NamedTuple):
    """A resource with one owner in a cluster: a kind in all of its versions, or a composition."""

    is_composition: bool
    name: str

    def __str__(self) -> str:
        return f"{COMPOSITION}{self.name}" if self.is_composition else self.name


class SkippedNeed(Record, frozen=True, kw_only=True):
    """An optional requirement that was not met, and why."""

    parent: Instance
    requirement: str
    reason: str = ""


class Resolution(Record, frozen=True, kw_only=True, dict=True):
    """Locked versions and ownership, the same for every cluster with the same inputs; named by content."""

    api_version: str = SCHEMA
    kind: str = "PackageResolution"
    packages: tuple[Resolved, ...] = ()
    custom_resource_definitions: dict[str, OwnershipEntry] = msgspec.field(default_factory=dict)
    compositions: dict[str, OwnershipEntry] = msgspec.field(default_factory=dict)
    skipped: tuple[SkippedNeed, ...] = ()
    unused: tuple[Instance, ...] = ()

    def ownership(self) -> Iterator[tuple[OwnedResource, OwnershipEntry]]:
        """Yield the owners of every kind and then of every composition."""
        for name, entry in self.custom_resource_definitions.items():
            yield OwnedResource(False, name), entry
        for name, entry in self.compositions.items():
            yield OwnedResource(True, name), entry

    @functools.cached_property
    def digest(self) -> str:
        """Its name: the SHA-256 of its canonical bytes."""
        return f"sha256:{hashlib.sha256(record_bytes(self)).hexdigest()}"


def record_bytes(record: Record) -> bytes:
    """Return canonical bytes, without what is None: sorted keys, final newline, no time. Deterministic."""
    return canonical_json(_without_none(msgspec.to_builtins(record)))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list | tuple) else value
