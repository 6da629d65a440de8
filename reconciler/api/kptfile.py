"""What the planner reads of a Kptfile: a lenient header, never used to write one back."""

from dataclasses import dataclass

OWNER = "reconciler.dev/owner"
LOCATION = "reconciler.dev/location"
KPTFILE = "Kptfile"
INJECTION_PREFIX = "config.injection."
"""Of the conditions and readiness gates that config injection writes."""
PACKAGE_CONTEXT_FILE = "package-context.yaml"
PACKAGE_CONTEXT_NAME = "kptfile.kpt.dev"


@dataclass(frozen=True, slots=True)
class GitUpstream:
    """`upstream.git` or `upstreamLock.git` of a Kptfile; `commit` is empty in the former."""

    repo: str
    directory: str
    ref: str
    commit: str = ""


@dataclass(frozen=True, slots=True)
class KptfileHeader:
    """The fields of a Kptfile that decide whose package it is and where it came from.

    Total: a Kptfile that cannot be understood gives a header with `error` set, and is nobody's.
    """

    name: str = ""
    owner: str = ""
    location: str = ""
    upstream: GitUpstream | None = None
    upstream_lock: GitUpstream | None = None
    error: str = ""
