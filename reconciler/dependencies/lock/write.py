"""Convert a solution to the resolution that is locked, and name the objects of its packages."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from reconciler.dependencies.lock.format import (
    LockedDependency,
    LockedInstance,
    LockedPackage,
    LockedSlot,
    Resolution,
    SkippedDependency,
)
from reconciler.dependencies.model.bundles import bundle_name
from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Ecosystem,
    Install,
    InterfaceNeed,
    PackageId,
    PackageNeed,
    dns_label,
)
from reconciler.dependencies.solve.solution import RequirementEdge, ResolvedInstance, Solution

USER = "user"
"""The owner of packages that a user's manifest installs."""


CARVEL_KIND, CARVEL_API_VERSION = "PackageInstall", "packaging.carvel.dev/v1alpha1"
PORTER_KIND, PORTER_SCHEMA = "Installation", "1.0.2"
_API_VERSION = "pkg.crossplane.io/v1"


class ClusterObject(NamedTuple):
    """The object of a package in its cluster; empty where its installer names it later."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


def locked_instance(instance: Instance) -> LockedInstance:
    """Return an instance as locks write it."""
    slot = LockedSlot(kind=instance.slot.kind, namespace=instance.slot.namespace, path=instance.slot.path)
    return LockedInstance(ecosystem=instance.package.ecosystem, name=instance.package.name, slot=slot)


def cluster_objects(
    inputs: ClusterInputs, solution: Solution, held: Mapping[LockedInstance, LockedPackage]
) -> dict[Instance, ClusterObject]:
    """Return the object of every package: the user's own, the locked one, else a new free name.

    Source: crossplane, internal/xpkg, ToDNSLabel of the repository: the name of a generated package.
    Differs: two repositories with one path in two registries get two names.
    """
    objects: dict[Instance, ClusterObject] = {}
    generated = []
    installs = inputs.installs_by_instance()
    for resolved in sorted(solution.resolved.values(), key=lambda resolved: str(resolved.instance)):
        install = installs.get(resolved.instance)
        if install is not None:
            objects[resolved.instance] = ClusterObject(install.api_version, install.kind, install.name)
        else:
            generated.append(resolved)
    for resolved in generated:
        objects[resolved.instance] = _generated(
            resolved, held.get(locked_instance(resolved.instance)), objects.values()
        )
    return objects


def _generated(
    resolved: ResolvedInstance, previous: LockedPackage | None, taken: Iterable[ClusterObject]
) -> ClusterObject:
    taken = frozenset(taken)
    if previous is not None and previous.owner != USER:
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
    preferred = ClusterObject(_API_VERSION, resolved.candidate.kind, dns_label(source))
    if preferred not in taken:
        return preferred
    mark = hashlib.sha256(source.encode()).hexdigest()[:8]
    return preferred._replace(name=f"{preferred.name[:54]}-{mark}")


_DIALECTS = {
    Ecosystem.XPKG: "crossplane",
    Ecosystem.CARVEL: "carvel",
    Ecosystem.BUNDLE: "porter",
    Ecosystem.KPT: "kpt",
}


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
    failed = {locked_instance(instance) for instance in solution.failed}
    kept = [resolved for instance, resolved in previous_packages.items() if instance in failed]
    skipped = (
        SkippedDependency(
            parent=locked_instance(resolved.parent),
            requirement=str(resolved.requirement),
            reason=resolved.reason,
        )
        for resolved in solution.skipped
    )
    return Resolution(
        packages=tuple(sorted((*fresh, *kept), key=lambda resolved: resolved.instance.order)),
        skipped=tuple(sorted(skipped, key=lambda resolved: (resolved.parent.order, resolved.requirement))),
    )


class _ResolutionWriter(NamedTuple):
    installs: Mapping[Instance, Install]
    held: Mapping[LockedInstance, LockedPackage]
    objects: Mapping[Instance, ClusterObject]

    def package(self, resolved: ResolvedInstance) -> LockedPackage:
        install = self.installs.get(resolved.instance)
        own = self.objects.get(resolved.instance, ClusterObject())
        instance = locked_instance(resolved.instance)
        parents = tuple(str(parent) for parent in resolved.requested_by)
        return LockedPackage(
            instance=instance,
            dialect=install.dialect if install else _DIALECTS[resolved.instance.package.ecosystem],
            api_version=own.api_version,
            kind=own.kind,
            name=own.name,
            source=resolved.candidate.source,
            version=resolved.candidate.version.text,
            digest=resolved.candidate.digest,
            requested_by=(*([USER] if resolved.user else []), *parents),
            owner=USER if resolved.user else self._owner(instance, resolved.requested_by),
            last_attempted_version=resolved.candidate.version.text,
            unavailable=resolved.candidate.unavailable,
            retain=resolved.candidate.retain,
            prune_kinds=install is not None and install.revisions.prune_kinds,
            dependencies=tuple(_dependency(edge, install) for edge in resolved.edges),
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
        install = self.installs.get(parent)
        name = install.name if install else self.objects.get(parent, ClusterObject()).name
        return (parent.slot.namespace, name or parent.package.name, str(parent))


def _dependency(edge: RequirementEdge, install: Install | None) -> LockedDependency:
    need = edge.requirement.alternatives[edge.alternative]
    common: dict[str, Any] = {
        "signature": edge.signature,
        "alias": edge.requirement.alias_of(edge.alternative),
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
