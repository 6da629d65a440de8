"""The lock on disk: thin per cluster, resolutions named by content, each need with dialect and range."""

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reconciler.dependencies.model import ApiNeed, Ecosystem, InterfaceNeed, PackageNeed
from reconciler.dependencies.solution import Edge, Resolved, Solution
from reconciler.dependencies.world import Instance, World

SCHEMA = "reconciler.dev/v1alpha1"
LOCK_VERSION = 1
LOCKS_DIRECTORY = "locks"
RESOLUTIONS_DIRECTORY = f"{LOCKS_DIRECTORY}/resolutions"
SOLVER = "sat-canonical-1"


class _Record(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True)


class LockedSlot(_Record):
    """The slot of an instance: a tuple, never a joined string."""

    kind: str
    namespace: str = ""
    path: tuple[str, ...] = ()


class LockedInstance(_Record):
    """One package in one slot."""

    ecosystem: str
    name: str
    slot: LockedSlot


class LockedDependency(_Record):
    """How one requirement was met: what was asked, in which dialect, and by what.

    `need` is `package`, `api` or `interface`; `signature` names the requirement among its package's.
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


class LockedPackage(_Record):
    """One instance and the version that was chosen for it, in its original spelling."""

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
    dependencies: tuple[LockedDependency, ...] = ()


class OwnedKind(_Record):
    """Which package controls a kind or composition, and which retained revisions also own it."""

    controller: str
    owners: tuple[str, ...] = ()


class SkippedDependency(_Record):
    """An optional requirement that was not met."""

    parent: LockedInstance
    requirement: str


class Resolution(_Record):
    """What was decided, the same for every cluster with the same question; named by its content."""

    api_version: str = SCHEMA
    kind: str = "PackageResolution"
    packages: tuple[LockedPackage, ...] = ()
    custom_resource_definitions: dict[str, OwnedKind] = Field(default_factory=dict)
    compositions: dict[str, OwnedKind] = Field(default_factory=dict)
    skipped: tuple[SkippedDependency, ...] = ()
    unused: tuple[LockedInstance, ...] = ()

    @property
    def digest(self) -> str:
        """Its name: the SHA-256 of its canonical bytes."""
        return f"sha256:{hashlib.sha256(record_bytes(self)).hexdigest()}"


class Revision(_Record):
    """One revision of a package in a cluster."""

    package: str
    name: str
    revision: int
    desired_state: str
    image: str = ""
    digest: str = ""


class SolverPolicy(_Record):
    """The choices that the answer depends on."""

    select: str = "dialect"
    allow_downgrade: bool = False
    discovery: str = "none"


class SolverRecord(_Record):
    """What computed the resolution."""

    name: str = SOLVER
    policy: SolverPolicy = SolverPolicy()


class LockScope(_Record):
    """What a lock is for."""

    cluster: str


class PackageLock(_Record):
    """The lock of one cluster: which resolution it has, from which inputs, and what stands there."""

    api_version: str = SCHEMA
    kind: str = "PackageLock"
    scope: LockScope
    lock_version: int = LOCK_VERSION
    generation: int = 1
    input_digest: str
    solver: SolverRecord = SolverRecord()
    resolution: str
    revisions: tuple[Revision, ...] = ()


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


def resolution_of(world: World, solution: Solution, previous: Resolution | None = None) -> Resolution:
    """Return what to lock. Parts that have no answer stay as they were locked before.

    Deterministic and order-free; knows nothing of the cluster's name.
    """
    fresh = [_package(world, one) for one in solution.resolved.values()]
    failed = {_instance(instance) for instance in solution.failed}
    kept = [one for one in (previous.packages if previous else ()) if one.instance in failed]
    packages = sorted((*fresh, *kept), key=lambda one: _order(one.instance))
    skipped = (
        SkippedDependency(parent=_instance(one.parent), requirement=str(one.requirement))
        for one in solution.skipped
    )
    resolved = solution.resolved.values()
    return Resolution(
        packages=tuple(packages),
        custom_resource_definitions=_owned(resolved, composition=False),
        compositions=_owned(resolved, composition=True),
        skipped=tuple(sorted(skipped, key=lambda one: (_order(one.parent), one.requirement))),
    )


def _order(instance: LockedInstance) -> tuple[str, str, str, str, tuple[str, ...]]:
    slot = instance.slot
    return (instance.ecosystem, instance.name, slot.kind, slot.namespace, slot.path)


def _instance(instance: Instance) -> LockedInstance:
    slot = LockedSlot(kind=instance.slot.kind, namespace=instance.slot.namespace, path=instance.slot.path)
    return LockedInstance(ecosystem=instance.package.ecosystem, name=instance.package.name, slot=slot)


def _package(world: World, one: Resolved) -> LockedPackage:
    install = world.install_of(one.instance)
    asked = tuple(str(parent) for parent in one.requested_by)
    return LockedPackage(
        instance=_instance(one.instance),
        dialect=install.dialect if install else _DIALECTS[one.instance.package.ecosystem],
        api_version=install.api_version if install else "",
        kind=install.kind if install else "",
        name=install.name if install else "",
        source=one.candidate.source,
        version=one.candidate.version.text,
        digest=one.candidate.digest,
        requested_by=(*(["user"] if one.user else []), *asked),
        owner="user" if one.user else min(asked, default=""),
        last_attempted_version=one.candidate.version.text,
        unavailable=one.candidate.unavailable,
        dependencies=tuple(_dependency(edge) for edge in one.edges),
    )


_DIALECTS = {
    Ecosystem.XPKG: "crossplane",
    Ecosystem.CARVEL: "carvel",
    Ecosystem.BUNDLE: "porter",
    Ecosystem.KPT: "kpt",
}


def _dependency(edge: Edge) -> LockedDependency:
    need = edge.requirement.alternatives[edge.alternative]
    common = {
        "signature": edge.signature,
        "alias": edge.requirement.alias,
        "resolved": _instance(edge.target) if edge.target else None,
        "detail": edge.detail,
        "via": edge.via,
        "active": edge.active,
        "alternative": edge.alternative,
        "alternatives": len(edge.requirement.alternatives),
        "optional": edge.requirement.optional,
    }
    match need:
        case PackageNeed():
            range_ = need.range
            return LockedDependency(
                need="package",
                id=str(need.id),
                dialect=range_.dialect,
                constraints=range_.text,
                prereleases=range_.prereleases,
                **common,
            )
        case ApiNeed():
            return LockedDependency(need="api", id=str(need.gvk), **common)
        case InterfaceNeed():
            range_ = need.range
            return LockedDependency(
                need="interface", id=need.id, dialect=range_.dialect, constraints=range_.text, **common
            )


def _owned(resolved: Iterable[Resolved], *, composition: bool) -> dict[str, OwnedKind]:
    found: dict[str, OwnedKind] = {}
    for one in resolved:
        kinds = {str(gvk.group_kind) for gvk in one.candidate.provides}
        for name in one.candidate.compositions if composition else kinds:
            found[name] = OwnedKind(controller=str(one.instance), owners=(str(one.instance),))
    return dict(sorted(found.items()))


def lock_of(
    cluster: str,
    *,
    input_digest: str,
    resolution: Resolution,
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
        revisions=previous.revisions if previous else (),
    )
    if previous is None:
        return fresh
    same = fresh.model_copy(update={"generation": previous.generation})
    return previous if same == previous else fresh


class LockOp(StrEnum):
    """What happens to one locked instance."""

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
    found = []
    for instance in sorted(old.keys() | new.keys()):
        was, now = old.get(instance, ""), new.get(instance, "")
        if was != now:
            op = LockOp.ADD if not was else LockOp.REMOVE if not now else LockOp.CHANGE
            found.append(LockChange(op, instance, was, now))
    return tuple(found)


def _versions(resolution: Resolution) -> Mapping[str, str]:
    return {
        "/".join(part for part in (*_order(one.instance)[:4], *one.instance.slot.path) if part): (
            f"{one.version}@{one.digest}" if one.digest else one.version
        )
        for one in resolution.packages
    }
