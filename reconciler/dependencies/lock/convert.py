"""Convert solutions to locks, read locks, and convert them back to pins."""

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.values import read_record
from reconciler.dependencies.lock.format import (
    ClusterLock,
    LockedRevision,
    PackageLock,
    keeps_ownership,
    lock_violations,
    ownership_entries,
    resolution_path,
)
from reconciler.dependencies.lock.former import is_former, read_former
from reconciler.dependencies.model.cluster import ClusterInputs, bundle_name
from reconciler.dependencies.model.instances import (
    Instance,
    MetNeed,
    Resolution,
    Resolved,
    Slot,
    SlotKind,
    met_need,
)
from reconciler.dependencies.model.packages import (
    VARIANT_KIND,
    Ecosystem,
    Install,
    PackageId,
    dns_label,
)
from reconciler.dependencies.solve.problem import RequirementEdge, ResolvedInstance, Solution
from reconciler.dependencies.versions.version import VersionError
from reconciler.names.problems import Problem
from reconciler.records.upstream_lock import LOCKS_DIRECTORY


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
    holders = ((name, entry.holder) for name, entry in ownership_entries(resolution))
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
            successors = [replace(pin.instance, slot=Slot(SlotKind.NAMESPACE, slot.namespace))]
        elif slot.kind in SHARED_SLOT_KINDS:
            siblings = (i for i in standing if i.package == pin.instance.package)
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


def read_locks(files: Mapping[str, bytes]) -> FleetLocks:
    """Return the locks that the files of a state branch hold. Total.

    A lock that cannot be read costs a new resolution of its cluster, and is a problem. One that
    breaks a law is kept as it is: which of two revisions is active is nothing to guess.
    """
    locks: dict[str, ClusterLock] = {}
    broken: set[str] = set()
    bodies: dict[str, Resolution] = {}
    sound: set[tuple[str, tuple[LockedRevision, ...]]] = set()
    problems = []
    for path, data in sorted(files.items()):
        if path.rpartition("/")[0] != LOCKS_DIRECTORY or not path.endswith(".json"):
            continue
        try:
            lock, body = _read_lock(data, files, bodies)
        except (ValueError, VersionError) as error:
            hint = "Correct or remove it on the state branch; the cluster is resolved anew."
            problems.append(
                Problem(Location(path), Reason.INVALID_STATE, f"The lock cannot be read: {error}", hint)
            )
        else:
            locks[lock.scope.cluster] = ClusterLock(lock, body)
            content = (lock.resolution, lock.revisions)
            if content not in sound and (wrong := lock_violations(lock, body)):
                broken.add(lock.scope.cluster)
                hint = "Correct it on the state branch; until then nothing of this cluster changes."
                message = f"The lock is broken: {'; '.join(wrong)}"
                problems.append(Problem(Location(path), Reason.INVALID_STATE, message, hint))
            else:
                sound.add(content)
    return FleetLocks(locks, frozenset(broken), tuple(problems))


def _read_lock(
    data: bytes, files: Mapping[str, bytes], bodies: dict[str, Resolution]
) -> tuple[PackageLock, Resolution]:
    """Return a lock and its resolution; those that were read already are in `bodies`.

    Raises:
        ValueError: One of them is unreadable.
        VersionError: The resolution has an invalid version or range.
    """
    if is_former(data):
        lock, body = read_former(data, files)
    else:
        lock = read_record(data, PackageLock)
        held = bodies.get(lock.resolution)
        body = held or read_record(files.get(resolution_path(lock.resolution), b""), Resolution)
    if lock.resolution not in bodies:
        for package in body.packages:
            _ = package.candidate  # versions and ranges in it, too
        bodies[lock.resolution] = body
    return lock, body


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


class ClusterObject(NamedTuple):
    """The object of a package in its cluster; empty where its installer names it later."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


def cluster_objects(
    inputs: ClusterInputs, solution: Solution, held: Mapping[Instance, Resolved]
) -> dict[Instance, ClusterObject]:
    """Return the object of every package: the user's own, the locked one, else a new free name.

    Source: crossplane, internal/xpkg, ToDNSLabel of the repository: the name of a generated package.
    Differs: two repositories with one path in two registries get two names.
    """
    installs = inputs.installs_by_instance()
    objects = {
        instance: ClusterObject(install.api_version, install.kind, install.name)
        for instance in solution.resolved
        if (install := installs.get(instance)) is not None
    }
    for resolved in sorted(solution.resolved.values(), key=lambda resolved: str(resolved.instance)):
        if resolved.instance not in objects:
            previous = held.get(resolved.instance)
            objects[resolved.instance] = _generated_object(resolved, previous, objects.values())
    return objects


def _generated_object(
    resolved: ResolvedInstance, previous: Resolved | None, taken: Iterable[ClusterObject]
) -> ClusterObject:
    taken = frozenset(taken)
    if previous is not None and not previous.by_user:
        previous_object = ClusterObject(previous.api_version, previous.kind, previous.name)
        if previous_object not in taken:
            return previous_object
    match resolved.instance.package:
        case PackageId(Ecosystem.CARVEL, name):
            return ClusterObject(CARVEL_API_VERSION, CARVEL_KIND, name)
        case PackageId(Ecosystem.BUNDLE, name):
            return ClusterObject(PORTER_SCHEMA, PORTER_KIND, bundle_name(name, resolved.instance.slot))
        case PackageId(Ecosystem.KPT, _):
            return ClusterObject()
    source = resolved.instance.package.name
    preferred = ClusterObject(_XPKG_API_VERSION, resolved.candidate.kind, dns_label(source))
    if preferred not in taken:
        return preferred
    mark = hashlib.sha256(source.encode()).hexdigest()[:8]
    return preferred._replace(name=f"{preferred.name[:54]}-{mark}")


def lock_solution(
    inputs: ClusterInputs, solution: Solution, previous: Resolution | None = None
) -> Resolution:
    """Return the resolution to lock, without ownership. Parts without a solution stay as locked before.

    Deterministic, order-free and independent of the cluster's name.
    """
    previous_packages = {resolved.instance: resolved for resolved in (previous.packages if previous else ())}
    recorder = _ResolutionWriter(
        inputs.installs_by_instance(), previous_packages, cluster_objects(inputs, solution, previous_packages)
    )
    fresh = [recorder.package(resolved) for resolved in solution.resolved.values()]
    unchanged = [resolved for instance, resolved in previous_packages.items() if instance in solution.failed]
    return Resolution(
        packages=tuple(sorted((*fresh, *unchanged), key=lambda resolved: resolved.instance)),
        skipped=tuple(sorted(solution.skipped, key=lambda skipped: (skipped.parent, skipped.requirement))),
    )


class _ResolutionWriter(NamedTuple):
    installs: Mapping[Instance, Install]
    held: Mapping[Instance, Resolved]
    objects: Mapping[Instance, ClusterObject]

    def package(self, resolved: ResolvedInstance) -> Resolved:
        install = self.installs.get(resolved.instance)
        own_object = self.objects.get(resolved.instance, ClusterObject())
        instance = resolved.instance
        return Resolved(
            instance=instance,
            dialect=install.dialect if install else resolved.instance.package.ecosystem.dialect,
            api_version=own_object.api_version,
            kind=own_object.kind,
            name=own_object.name,
            source=resolved.candidate.source,
            version=resolved.candidate.version.text,
            digest=resolved.candidate.digest,
            by_user=resolved.user,
            requested_by=resolved.requested_by,
            owner=None if resolved.user else self._owner(instance, resolved.requested_by),
            unavailable=resolved.candidate.unavailable,
            retain=resolved.candidate.retain,
            prune_kinds=install is not None and install.revisions.prune_kinds,
            dependencies=tuple(_met_need(edge, install) for edge in resolved.edges),
        )

    def _owner(self, instance: Instance, parents: tuple[Instance, ...]) -> Instance | None:
        """Return the direct parent that a generated package belongs to: the one it has, while it asks.

        Without it, ownership goes to the parent with the lowest namespace and name.
        """
        held = self.held.get(instance)
        if held is not None and held.owner in parents:
            return held.owner
        return min(parents, key=self._place, default=None)

    def _place(self, parent: Instance) -> tuple[str, str, str]:
        install = self.installs.get(parent)
        name = install.name if install else self.objects.get(parent, ClusterObject()).name
        return (parent.slot.namespace, name or parent.package.name, str(parent))


def _met_need(edge: RequirementEdge, install: Install | None) -> MetNeed:
    requirement, actions = edge.requirement, edge.requirement.actions
    return met_need(
        requirement.alternatives[edge.alternative],
        signature=edge.signature,
        alias=requirement.alias_of(edge.alternative),
        resolved=edge.target,
        detail=edge.detail,
        via=edge.via,
        active=edge.active,
        alternative=edge.alternative,
        alternatives=len(requirement.alternatives),
        optional=requirement.optional,
        upgrade=actions.upgrade,
        uninstall=actions.uninstall and (install is None or install.prune_dependencies),
    )
