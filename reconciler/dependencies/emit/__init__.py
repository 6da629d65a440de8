"""Generate the manifests of a cluster from its lock, for the controllers of each ecosystem."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.dependencies.dialects.crossplane import parse_image
from reconciler.dependencies.emit.generated import GeneratedPackage, ObjectRef, PackageGraph, name_collisions
from reconciler.dependencies.emit.header import (
    NEEDED_BY,
    OWNER,
    add_checksum_header,
    has_header,
    is_generated_by,
    is_unmodified,
    needed_by,
)
from reconciler.dependencies.emit.manifests import active_version, emit_carvel, emit_crossplane, emit_porter
from reconciler.dependencies.lock.format import ClusterLock, LockedPackage
from reconciler.dependencies.lock.write import USER
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.errors import Problem
from reconciler.reasons import Reason

__all__ = [
    "FORMAT_VERSION",
    "GeneratedManifests",
    "ObjectRef",
    "PackageGraph",
    "generate_manifests",
    "has_generated",
    "has_header",
    "installed_version",
    "is_generated_by",
    "is_unmodified",
    "needed_by",
    "package_graph",
]

FORMAT_VERSION = 1
"""Raised when something else is generated from the same lock; then every cluster's is made once more."""

_SHOWN = 3
_DIALECTS = {
    Ecosystem.XPKG: emit_crossplane,
    Ecosystem.CARVEL: emit_carvel,
    Ecosystem.BUNDLE: emit_porter,
}


@dataclass(frozen=True, slots=True)
class GeneratedManifests:
    """What is generated for one cluster, by path, and the package that each file installs.

    Files in `kept` stay as they are: what nobody needs and must not go, what is needed by somebody
    who is not understood, and what has a problem now.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    packages: Mapping[str, LockedPackage] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def generate_manifests(
    world: ClusterInputs, locked: ClusterLock, *, owner: str, shared_namespace: str = "default"
) -> GeneratedManifests:
    """Return the manifests of every package that is needed and that no user declares. Pure, order-free.

    A user's own manifests are never among them: where one declares the package, nothing is generated.

    Args:
        world: The cluster's world; only the users' installs are looked at.
        locked: The cluster's lock.
        owner: The value of our owner annotation.
        shared_namespace: Where what may stand once in the cluster is installed.
    """
    generated, warnings = package_graph(world, locked, shared_namespace).generated()
    taken = {ObjectRef(i.kind, i.namespace, i.name): i for i in world.installs}
    clashes = {one.package.instance: problem for one, problem in name_collisions(generated, taken)}
    files: dict[str, bytes] = {}
    packages: dict[str, LockedPackage] = {}
    kept: set[str] = set()
    problems = list(clashes.values())
    for one in generated:
        running = active_version(one, locked.revisions_of(one.package))
        if one.package.instance in clashes or running is None:
            continue
        if one.package.instance in locked.resolution.unused or not one.is_complete:
            kept.add(_path(one.ref))
            continue
        found = _manifest(running, owner)
        if isinstance(found, Problem):
            kept.add(_path(one.ref))
            problems.append(found)
        else:
            files[_path(one.ref)] = found
            packages[_path(one.ref)] = running.package
    told = tuple(sorted(set(warnings)))
    return GeneratedManifests(
        dict(sorted(files.items())), packages, frozenset(kept), tuple(sorted(problems)), told
    )


def has_generated(locked: ClusterLock) -> bool:
    """Tell whether anything has to be generated for a cluster."""
    packages = locked.resolution.packages
    return any(one.owner != USER and one.instance.ecosystem in _DIALECTS for one in packages)


def package_graph(
    world: ClusterInputs, locked: ClusterLock, shared_namespace: str = "default"
) -> PackageGraph:
    """Return who needs whom in a cluster, with the users' installs by instance."""
    installs = {
        str(world.instance_of(install)): install for install in world.installs if not install.external
    }
    packages = {str(one.instance): one for one in locked.resolution.packages}
    return PackageGraph(packages, installs, shared_namespace)


def _manifest(one: GeneratedPackage, owner: str) -> bytes | Problem:
    needed = [str(parent) for parent in one.parents]
    more = f" and {len(needed) - _SHOWN} more" if len(needed) > _SHOWN else ""
    annotations = {NEEDED_BY: ", ".join(needed), OWNER: owner}
    document = _DIALECTS[Ecosystem(one.package.instance.ecosystem)](one, annotations)
    if isinstance(document, str):
        hint = "Write a manifest for it yourself; it is used instead."
        return Problem(one.location, Reason.INVALID_MANIFEST, document, hint, str(one.ref))
    return add_checksum_header(document, reason=f"{', '.join(needed[:_SHOWN])}{more}")


def installed_version(document: Mapping[str, Any]) -> str:
    """Return the version that a generated manifest installs, empty if it says none."""
    spec, bundle = document.get("spec"), document.get("bundle")
    if isinstance(bundle, Mapping):
        return str(bundle.get("version") or "")
    if not isinstance(spec, Mapping):
        return ""
    if isinstance(spec.get("package"), str):
        return parse_image(spec["package"])[1]
    reference = spec.get("packageRef")
    selection = reference.get("versionSelection") if isinstance(reference, Mapping) else None
    return str(selection.get("constraints") or "") if isinstance(selection, Mapping) else ""


def _path(ref: ObjectRef) -> str:
    parts = (f"{ref.kind.lower()}s", ref.namespace, f"{ref.name}.yaml")
    return "/".join(part for part in parts if part)
