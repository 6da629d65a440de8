"""Fields of a Kptfile that the planner reads, and a new Kptfile; others are never written from this model."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from reconciler.krm.yaml import emit

OWNER = "reconciler.dev/owner"
LOCATION = "reconciler.dev/location"
KPTFILE = "Kptfile"
KPTFILE_VERSION = "kpt.dev/v1"
INJECTION_PREFIX = "config.injection."
"""Prefix of conditions and readiness gates that config injection writes."""
PACKAGE_CONTEXT_FILE = "package-context.yaml"
PACKAGE_CONTEXT_NAME = "kptfile.kpt.dev"


class GitUpstream(Struct, frozen=True):
    """`upstream.git` or `upstreamLock.git` of a Kptfile; `commit` is empty in the former."""

    repo: str
    directory: str
    ref: str
    commit: str = ""


class KptfileHeader(Struct, frozen=True):
    """Owner, location and origin of a package.

    An unreadable Kptfile gives a header with `error` set and without an owner. `has_charts` is set if its
    pipeline may render charts of Helm. `unmet` are its readiness gates without a true condition.
    """

    owner: str = ""
    location: str = ""
    upstream: GitUpstream | None = None
    upstream_lock: GitUpstream | None = None
    error: str = ""
    has_charts: bool = False
    unmet: tuple[str, ...] = ()


def new_kptfile(name: str, info: Mapping[str, Any]) -> bytes:
    """Return the Kptfile of a directory that has none, as `kpt pkg init` writes it."""
    annotations = {"config.kubernetes.io/local-config": "true"}
    head = {"apiVersion": KPTFILE_VERSION, "kind": "Kptfile"}
    body = {"metadata": {"name": name, "annotations": annotations}, **({"info": info} if info else {})}
    return f"{emit({**head, **body})}\n".encode()
