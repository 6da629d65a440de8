"""Name the objects that packages have in their cluster: the user's own, the locked ones, generated ones."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reconciler.dependencies.lock.format import LockedInstance, LockedPackage, LockedSlot
from reconciler.dependencies.model.bundles import bundle_name
from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.packages import Ecosystem, PackageId, dns_label
from reconciler.dependencies.solve.solution import ResolvedInstance, Solution

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
