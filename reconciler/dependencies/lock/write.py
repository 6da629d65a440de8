"""Convert a solution to the resolution that is locked."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reconciler.dependencies.lock.format import (
    LockedDependency,
    LockedInstance,
    LockedPackage,
    LockedSlot,
    Resolution,
    SkippedDependency,
)
from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import ApiNeed, Ecosystem, InterfaceNeed, PackageNeed, dns_label
from reconciler.dependencies.solve.solution import RequirementEdge, ResolvedInstance, Solution

USER = "user"
"""Who asked for a package that a manifest of a person names."""


_API_VERSION = "pkg.crossplane.io/v1"


_DIALECTS = {
    Ecosystem.XPKG: "crossplane",
    Ecosystem.CARVEL: "carvel",
    Ecosystem.BUNDLE: "porter",
    Ecosystem.KPT: "kpt",
}


class ClusterObject(NamedTuple):
    """The object of a package in its cluster; empty where its installer names it later."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


def lock_solution(world: ClusterInputs, solution: Solution, previous: Resolution | None = None) -> Resolution:
    """Return what to lock, without what it owns. Parts that have no answer stay as they were locked.

    Deterministic and order-free; knows nothing of the cluster's name.
    """
    held = {one.instance: one for one in (previous.packages if previous else ())}
    recorder = _ResolutionWriter(world, held, _objects(world, solution, held))
    fresh = [recorder.package(one) for one in solution.resolved.values()]
    failed = {locked_instance(instance) for instance in solution.failed}
    kept = [one for instance, one in held.items() if instance in failed]
    skipped = (
        SkippedDependency(parent=locked_instance(one.parent), requirement=str(one.requirement))
        for one in solution.skipped
    )
    return Resolution(
        packages=tuple(sorted((*fresh, *kept), key=lambda one: one.instance.order)),
        skipped=tuple(sorted(skipped, key=lambda one: (one.parent.order, one.requirement))),
    )


def locked_instance(instance: Instance) -> LockedInstance:
    """Return an instance as locks write it."""
    slot = LockedSlot(kind=instance.slot.kind, namespace=instance.slot.namespace, path=instance.slot.path)
    return LockedInstance(ecosystem=instance.package.ecosystem, name=instance.package.name, slot=slot)


def _objects(
    world: ClusterInputs, solution: Solution, held: Mapping[LockedInstance, LockedPackage]
) -> dict[Instance, ClusterObject]:
    """Return every package's object: the user's own, the one it has, else a new name that is free.

    Source: crossplane, internal/xpkg, ToDNSLabel of the repository: what a generated package is called.
    Differs: two repositories with one path in two registries get two names.
    """
    found: dict[Instance, ClusterObject] = {}
    generated = []
    for one in sorted(solution.resolved.values(), key=lambda one: str(one.instance)):
        install = world.install_of(one.instance)
        if install is not None:
            found[one.instance] = ClusterObject(install.api_version, install.kind, install.name)
        elif one.instance.package.ecosystem is Ecosystem.XPKG:
            generated.append(one)
    for one in generated:
        found[one.instance] = _generated(one, held.get(locked_instance(one.instance)), found.values())
    return found


def _generated(
    one: ResolvedInstance, held: LockedPackage | None, taken: Iterable[ClusterObject]
) -> ClusterObject:
    taken = frozenset(taken)
    if held is not None and held.owner != USER:
        known = ClusterObject(held.api_version, held.kind, held.name)
        if known not in taken:
            return known
    source = one.instance.package.name
    wanted = ClusterObject(_API_VERSION, one.candidate.kind, dns_label(source))
    if wanted not in taken:
        return wanted
    mark = hashlib.sha256(source.encode()).hexdigest()[:8]
    return wanted._replace(name=f"{wanted.name[:54]}-{mark}")


class _ResolutionWriter(NamedTuple):
    world: ClusterInputs
    held: Mapping[LockedInstance, LockedPackage]
    objects: Mapping[Instance, ClusterObject]

    def package(self, one: ResolvedInstance) -> LockedPackage:
        install = self.world.install_of(one.instance)
        own = self.objects.get(one.instance, ClusterObject())
        instance = locked_instance(one.instance)
        asked = tuple(str(parent) for parent in one.requested_by)
        return LockedPackage(
            instance=instance,
            dialect=install.dialect if install else _DIALECTS[one.instance.package.ecosystem],
            api_version=own.api_version,
            kind=own.kind,
            name=own.name,
            source=one.candidate.source,
            version=one.candidate.version.text,
            digest=one.candidate.digest,
            requested_by=(*([USER] if one.user else []), *asked),
            owner=USER if one.user else self._owner(instance, one.requested_by),
            last_attempted_version=one.candidate.version.text,
            unavailable=one.candidate.unavailable,
            retain=one.candidate.retain,
            prune_kinds=install is not None and install.revisions.prune_kinds,
            dependencies=tuple(_dependency(edge, install) for edge in one.edges),
        )

    def _owner(self, instance: LockedInstance, parents: tuple[Instance, ...]) -> str:
        """Return the direct parent that a generated package belongs to: the one it has, while it asks.

        Without it, ownership goes to the parent with the lowest namespace and name.
        """
        held = self.held.get(instance)
        if held is not None and held.owner in map(str, parents):
            return held.owner
        return str(min(parents, key=self._place)) if parents else ""

    def _place(self, parent: Instance) -> tuple[str, str, str]:
        install = self.world.install_of(parent)
        name = install.name if install else self.objects.get(parent, ClusterObject()).name
        return (parent.slot.namespace, name or parent.package.name, str(parent))


def _dependency(edge: RequirementEdge, install: Install | None) -> LockedDependency:
    need = edge.requirement.alternatives[edge.alternative]
    common = {
        "signature": edge.signature,
        "alias": edge.requirement.alias,
        "resolved": locked_instance(edge.target) if edge.target else None,
        "detail": edge.detail,
        "via": edge.via,
        "active": edge.active,
        "alternative": edge.alternative,
        "alternatives": len(edge.requirement.alternatives),
        "optional": edge.requirement.optional,
        "upgrade": edge.requirement.actions.upgrade,
        "uninstall": edge.requirement.actions.uninstall and (install is None or install.prune_dependencies),
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
