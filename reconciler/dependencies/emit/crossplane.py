"""A Crossplane package as its package manager takes it: `pkg.crossplane.io/v1`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reconciler.dependencies.dialects.crossplane import parse_image
from reconciler.dependencies.emit.generated import PASSED_DOWN, Generated
from reconciler.dependencies.lockfile import Revision

API_VERSION = "pkg.crossplane.io/v1"
_IMAGE = re.compile(r"[^/\s]+\.[^/\s]+/[^\s:@]+(:[\w][\w.-]*)?(@sha256:[0-9a-f]{64})?")
"""What the API server lets pass: a registry with a dot, a path, and a tag or a digest."""


def emit_crossplane(one: Generated, annotations: dict[str, str]) -> dict[str, Any] | str:
    """Return a Provider, Configuration or Function; a sentence where the API server would refuse it.

    `skipDependencyResolution` stays off: a package that skips it is not in Crossplane's own lock,
    and whoever needs it would install it a second time.
    """
    if one.ref.kind not in PASSED_DOWN:
        return f"It is not known whether {one.package.instance.name} is a Provider, Configuration or Function"
    image = image_of(one.package.source or one.package.instance.name, one.package.version, one.package.digest)
    if not _IMAGE.fullmatch(image):
        return f"{image} names no registry with a domain, which Crossplane asks for"
    metadata = {"name": one.ref.name, "annotations": annotations}
    spec = {"package": image, **one.settings}
    return {"apiVersion": API_VERSION, "kind": one.ref.kind, "metadata": metadata, "spec": spec}


def image_of(source: str, version: str, digest: str) -> str:
    """Return an image reference with tag and, where it is known, digest."""
    if digest and not digest.startswith("sha256:"):
        digest = ""
    return f"{source}:{version}{f'@{digest}' if digest else ''}"


def to_run(one: Generated, revisions: Sequence[Revision]) -> Generated | None:
    """Return the package in the version that may run now, None if none may.

    A revision that must wait, for another package to let go of a kind say, is not asked for: the
    one that is active stays. Where a person activates, the cluster waits by itself.
    """
    current = next((r for r in revisions if r.current), None)
    if current is None or current.is_active or one.settings.get("revisionActivationPolicy") == "Manual":
        return one
    active = next((r for r in revisions if r.is_active), None)
    if active is None:
        return None
    _, tag, digest = parse_image(active.image)
    held = {"version": tag or one.package.version, "digest": digest or active.digest}
    return replace(one, package=one.package.model_copy(update=held))
