"""Generate the manifests of a cluster from its lock, for the controllers of each ecosystem."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.dependencies.dialects.reading import (
    OWNER,
    annotation_or_custom,
    is_generated_by,
    parse_source,
)
from reconciler.dependencies.emit.generated import (
    INHERITED_SETTINGS,
    GeneratedPackage,
    ObjectRef,
    PackageGraph,
    name_collisions,
    owner_of,
)
from reconciler.dependencies.lock.convert import (
    CARVEL_API_VERSION,
    CARVEL_KIND,
    PORTER_KIND,
    PORTER_SCHEMA,
    USER,
)
from reconciler.dependencies.lock.format import ClusterLock, LockedPackage, LockedRevision
from reconciler.dependencies.model.cluster import SHARING_GROUP, ClusterInputs, sharing_labels
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.dependencies.solve.build_problem import without_duplicates
from reconciler.dependencies.versions.version import parse_relaxed
from reconciler.krm.yaml import emit
from reconciler.names.problems import Problem

CARVEL_OWNER = "kapp-controller.carvel.dev/owner"


def emit_carvel(generated: GeneratedPackage, annotations: dict[str, str]) -> dict[str, Any] | str:
    """Return a PackageInstall; a sentence where kapp-controller could never reconcile it.

    Source: the proposal of package dependencies, automatically created PackageInstalls.
    Differs: the name has no version, which would recreate the workload with every upgrade.
    """
    settings = generated.settings
    if not ("serviceAccountName" in settings or "cluster" in settings):
        return "No package that requires it names a service account that could install it"
    owner = owner_of(generated, CARVEL_KIND)
    owned = {CARVEL_OWNER: f"{CARVEL_KIND}/{owner.name}"} if owner else {}
    version = generated.package.version
    selection: dict[str, Any] = {"constraints": version}
    if parse_relaxed(version).prerelease:
        selection["prereleases"] = {}
    spec: dict[str, Any] = dict(sorted(settings.items(), reverse=True))
    spec["packageRef"] = {"refName": generated.package.instance.name, "versionSelection": selection}
    if generated.values:
        spec["values"] = [{"secretRef": _secret(value.secret, value.key)} for value in generated.values]
    metadata = {
        "name": generated.ref.name,
        "namespace": generated.ref.namespace,
        "annotations": owned | annotations,
    }
    return {"apiVersion": CARVEL_API_VERSION, "kind": CARVEL_KIND, "metadata": metadata, "spec": spec}


def _secret(name: str, key: str) -> dict[str, str]:
    return {"name": name, "key": key} if key else {"name": name}


CROSSPLANE_API_VERSION = "pkg.crossplane.io/v1"


_IMAGE = re.compile(r"[^/\s]+\.[^/\s]+/[^\s:@]+(:[\w][\w.-]*)?(@sha256:[0-9a-f]{64})?")
"""Image references that the API server accepts: a registry with a dot, a path, and a tag or a digest."""


def emit_crossplane(generated: GeneratedPackage, annotations: dict[str, str]) -> dict[str, Any] | str:
    """Return a Provider, Configuration or Function, or a sentence if the API server would refuse it.

    `skipDependencyResolution` stays off: a package that skips it is not in Crossplane's own lock,
    and its parents would install it a second time.
    """
    if generated.ref.kind not in INHERITED_SETTINGS:
        name = generated.package.instance.name
        return f"It is not known whether {name} is a Provider, Configuration or Function"
    image = image_of(
        generated.package.source or generated.package.instance.name,
        generated.package.version,
        generated.package.digest,
    )
    if not _IMAGE.fullmatch(image):
        return f"{image} names no registry with a domain, which Crossplane asks for"
    metadata = {"name": generated.ref.name, "annotations": annotations}
    spec = {"package": image, **generated.settings}
    return {
        "apiVersion": CROSSPLANE_API_VERSION,
        "kind": generated.ref.kind,
        "metadata": metadata,
        "spec": spec,
    }


def image_of(source: str, version: str, digest: str) -> str:
    """Return an image reference with tag and, where it is known, digest."""
    if digest and not digest.startswith("sha256:"):
        digest = ""
    return f"{source}:{version}{f'@{digest}' if digest else ''}"


def active_version(
    generated: GeneratedPackage, revisions: Sequence[LockedRevision]
) -> GeneratedPackage | None:
    """Return the package in the version that may run now, None if none may.

    A revision that waits, for a person to activate its parent or for another package to release a CRD, is
    not installed: the active revision stays.
    """
    current = next((r for r in revisions if r.current), None)
    if current is None or current.is_active:
        return generated
    active = next((r for r in revisions if r.is_active), None)
    if active is None:
        return None
    _, tag, digest = parse_source(active.image)
    held = {"version": tag or generated.package.version, "digest": digest or active.digest}
    return replace(generated, package=replace(generated.package, **held))


PORTER_PARENT = "sh.porter.parentInstallation"


def emit_porter(generated: GeneratedPackage, annotations: dict[str, str]) -> dict[str, Any]:
    """Return an Installation with the labels by which later requirements select it.

    Its schema has no annotations: ours are below `custom`, which is free for any use. It has exactly one
    of version and digest, so the version of a digest is there, too; and the values of parameters as text.

    Source: Porter, pkg/schema/installation.schema.json of v1.
    """
    package = generated.package
    group, labels = sharing_labels(package.instance.slot)
    labels |= {**generated.labels, **({SHARING_GROUP: group} if group else {})}
    if parent := owner_of(generated, PORTER_KIND):
        labels[PORTER_PARENT] = "/".join(part for part in (parent.namespace, parent.name) if part)
    version = package.version.removeprefix("v")
    by_digest = package.digest.startswith("sha256:")
    pin = {"digest": package.digest} if by_digest else {"version": version}
    parameters = {name: _as_text(value) for name, value in generated.settings.get("parameters", {}).items()}
    settings = {**generated.settings, **({"parameters": parameters} if parameters else {})}
    return {
        "schemaType": PORTER_KIND,
        "schemaVersion": PORTER_SCHEMA,
        "name": generated.ref.name,
        **({"namespace": generated.ref.namespace} if generated.ref.namespace else {}),
        **({"labels": dict(sorted(labels.items()))} if labels else {}),
        "bundle": {"repository": package.source or package.instance.name, **pin},
        **dict(sorted(settings.items())),
        "custom": {**annotations, **({VERSION: version} if by_digest else {})},
    }


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


VERSION = "reconciler.dev/version"
"""Annotation of a generated installation: the version that its digest has."""


NEEDED_BY = "reconciler.dev/needed-by"


_DIGITS = 16


_HEADER = re.compile(rb"# Generated for [^\n]*\(([0-9a-f]{16})\)\n")


_ADVICE = "Edits stay and are asked about; remove this line to make it yours"


def add_checksum_header(document: Mapping[str, Any], *, reason: str) -> bytes:
    """Return a document as a file with a header: its reason and the checksum of the rest. Deterministic.

    `reason` is one line. The checksum guards against accidents, not against forgery.
    """
    body = f"{emit(document)}\n".encode()
    return f"# Generated for {reason}. {_ADVICE} ({_digest(body)})\n".encode() + body


def is_unmodified(data: bytes) -> bool:
    """Tell whether a file is as it was generated."""
    header = _HEADER.match(data)
    return header is not None and header[1].decode() == _digest(data[header.end() :])


def has_header(data: bytes) -> bool:
    """Tell whether a file still has the header of generated files."""
    return _HEADER.match(data) is not None


def needed_by(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the packages that need a generated manifest, as its annotation lists them."""
    return frozenset(name for name in annotation_or_custom(document, NEEDED_BY).split(", ") if name)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_DIGITS]


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

FORMAT_VERSION = 4
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
