"""Write the manifests of generated packages for each controller, with a header that shows edits."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from reconciler.base.lazy import lazy_pattern
from reconciler.dependencies.dialects.reading import annotation_or_custom
from reconciler.dependencies.dialects.references import parse_source
from reconciler.dependencies.emit.generated import (
    INHERITED_SETTINGS,
    GeneratedPackage,
    owner_of,
)
from reconciler.dependencies.lock.format import LockedRevision
from reconciler.dependencies.lock.objects import (
    CARVEL_API_VERSION,
    CARVEL_KIND,
    PORTER_KIND,
    PORTER_SCHEMA,
)
from reconciler.dependencies.model.bundles import SHARING_GROUP, sharing_labels
from reconciler.dependencies.versions import parse_relaxed
from reconciler.krm.yaml import emit

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


_IMAGE = lazy_pattern(r"[^/\s]+\.[^/\s]+/[^\s:@]+(:[\w][\w.-]*)?(@sha256:[0-9a-f]{64})?")
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

    A revision that waits, for example for another package to release a CRD, is not installed: the active
    revision stays. With manual activation the package manager in the cluster waits itself.
    """
    current = next((r for r in revisions if r.current), None)
    if current is None or current.is_active or generated.settings.get("revisionActivationPolicy") == "Manual":
        return generated
    active = next((r for r in revisions if r.is_active), None)
    if active is None:
        return None
    _, tag, digest = parse_source(active.image)
    held = {"version": tag or generated.package.version, "digest": digest or active.digest}
    return replace(generated, package=msgspec.structs.replace(generated.package, **held))


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


_HEADER = lazy_pattern(rb"# Generated for [^\n]*\(([0-9a-f]{16})\)\n")


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
