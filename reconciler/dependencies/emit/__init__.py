"""Generate the manifests of a cluster from its lock, for the controllers of each ecosystem."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from reconciler.base.errors import Problem
from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.reading import OWNER, is_generated_by
from reconciler.dependencies.dialects.references import parse_source
from reconciler.dependencies.emit.generated import GeneratedPackage, ObjectRef, PackageGraph, name_collisions
from reconciler.dependencies.emit.manifests import (
    NEEDED_BY,
    VERSION,
    active_version,
    add_checksum_header,
    emit_carvel,
    emit_crossplane,
    emit_porter,
    has_header,
    is_unmodified,
    needed_by,
)
from reconciler.dependencies.lock.format import ClusterLock, LockedPackage
from reconciler.dependencies.lock.objects import USER
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.dependencies.solve.duplicates import without_duplicates

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

FORMAT_VERSION = 3
"""Raised when something else is generated from the same lock; then every cluster's is made once more."""

_MAX_PARENTS = 3
_DIALECTS = {
    Ecosystem.XPKG: emit_crossplane,
    Ecosystem.CARVEL: emit_carvel,
    Ecosystem.BUNDLE: emit_porter,
}


class GeneratedManifests(Struct, frozen=True):
    """Generated manifests of one cluster by path, and the package that each file installs.

    Files in `kept` stay as they are: packages that are retained although nothing needs them, packages with
    a parent that could not be read, and packages with a problem.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    packages: Mapping[str, LockedPackage] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def generate_manifests(
    inputs: ClusterInputs, locked: ClusterLock, *, owner: str, shared_namespace: str = "default"
) -> GeneratedManifests:
    """Return the manifests of every package that is needed and that no user declares. Pure, order-free.

    A user's own manifests are never among them: where one declares the package, nothing is generated.

    Args:
        inputs: The inputs of the cluster; only the users' installs are looked at.
        locked: The cluster's lock.
        owner: The value of our owner annotation.
        shared_namespace: Namespace of packages that are installed once per cluster.
    """
    generated, warnings = package_graph(inputs, locked, shared_namespace).generated()
    taken = {ObjectRef(i.kind, i.namespace, i.name): i for i in inputs.installs}
    clashes = {
        generated_package.package.instance: problem
        for generated_package, problem in name_collisions(generated, taken)
    }
    files: dict[str, bytes] = {}
    packages: dict[str, LockedPackage] = {}
    kept: set[str] = set()
    problems = list(clashes.values())
    for generated_package in generated:
        running = active_version(generated_package, locked.revisions_of(generated_package.package))
        if generated_package.package.instance in clashes or running is None:
            continue
        if (
            generated_package.package.instance in locked.resolution.unused
            or not generated_package.is_complete
        ):
            kept.add(_path(generated_package.ref))
            continue
        manifest = _manifest(running, owner)
        if isinstance(manifest, Problem):
            kept.add(_path(generated_package.ref))
            problems.append(manifest)
        else:
            files[_path(generated_package.ref)] = manifest
            packages[_path(generated_package.ref)] = running.package
    ordered_warnings = tuple(sorted(set(warnings)))
    return GeneratedManifests(
        dict(sorted(files.items())), packages, frozenset(kept), tuple(sorted(problems)), ordered_warnings
    )


def has_generated(locked: ClusterLock) -> bool:
    """Tell whether a cluster has packages to generate."""
    packages = locked.resolution.packages
    return any(package.owner != USER and package.instance.ecosystem in _DIALECTS for package in packages)


def package_graph(
    inputs: ClusterInputs, locked: ClusterLock, shared_namespace: str = "default"
) -> PackageGraph:
    """Return the locked packages of a cluster with their parents, and the users' installs by instance."""
    packages = {str(package.instance): package for package in locked.resolution.packages}
    running = frozenset(package.object for package in packages.values())
    own = (i for i in without_duplicates(inputs, running)[0].installs if not i.external)
    installs = {str(inputs.instance_of(install)): install for install in own}
    return PackageGraph(packages, installs, inputs.catalogue, shared_namespace)


_OWN_MANIFEST = "Write a manifest for it yourself; it is used instead."
_NO_KIND = (
    "Add its crossplane.yaml to the folder of its version in the index, or write a manifest for it "
    "yourself; it is used instead."
)


def _manifest(package: GeneratedPackage, owner: str) -> bytes | Problem:
    needed = [str(parent) for parent in package.parents]
    more = f" and {len(needed) - _MAX_PARENTS} more" if len(needed) > _MAX_PARENTS else ""
    annotations = {NEEDED_BY: ", ".join(needed), OWNER: owner}
    document = _DIALECTS[Ecosystem(package.package.instance.ecosystem)](package, annotations)
    if isinstance(document, str):
        hint = _OWN_MANIFEST if package.ref.kind else _NO_KIND
        return Problem(package.location, Reason.INVALID_MANIFEST, document, hint, str(package.ref))
    return add_checksum_header(document, reason=f"{', '.join(needed[:_MAX_PARENTS])}{more}")


def installed_version(document: Mapping[str, Any]) -> str:
    """Return the version that a generated manifest installs, or an empty text."""
    spec, bundle = document.get("spec"), document.get("bundle")
    if isinstance(bundle, Mapping):
        custom = document.get("custom")
        own = custom.get(VERSION) if isinstance(custom, Mapping) else None
        return str(bundle.get("version") or own or "")
    if not isinstance(spec, Mapping):
        return ""
    if isinstance(spec.get("package"), str):
        return parse_source(spec["package"])[1]
    reference = spec.get("packageRef")
    selection = reference.get("versionSelection") if isinstance(reference, Mapping) else None
    return str(selection.get("constraints") or "") if isinstance(selection, Mapping) else ""


def _path(ref: ObjectRef) -> str:
    parts = (f"{ref.kind.lower()}s", ref.namespace, f"{ref.name}.yaml")
    return "/".join(part for part in parts if part)
