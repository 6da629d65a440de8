"""The package index: what each Kptfile says, every distinct one fetched and parsed once."""

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.api.kptfile import LOCATION, OWNER, GitUpstream, KptfileHeader
from reconciler.git.files import PackageRefusedError
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents

LARGEST_KPTFILE = 1 << 20
"""In bytes; a larger one is not understood."""


def read_header(data: bytes) -> KptfileHeader:
    """Return what a Kptfile says about its owner and its upstream.

    Total: what cannot be understood is a header with `error` set, which is nobody's.
    """
    try:
        documents = load_documents(data, PACKAGE_LIMITS)
    except YamlError as error:
        return KptfileHeader(error=str(error))
    value = documents[0].value if documents else None
    if not isinstance(value, dict) or value.get("kind") != "Kptfile":
        return KptfileHeader(error="its first document is not a Kptfile")
    metadata = _mapping(value, "metadata")
    annotations = _mapping(metadata, "annotations")
    return KptfileHeader(
        name=_text(metadata, "name"),
        owner=_text(annotations, OWNER),
        location=_text(annotations, LOCATION),
        upstream=_upstream(value, "upstream"),
        upstream_lock=_upstream(value, "upstreamLock"),
    )


class HeaderIndex:
    """Headers by blob id: content decides, so one answer serves every repository and revision."""

    def __init__(self) -> None:
        self._headers: dict[Oid, KptfileHeader] = {}

    def load(self, mirror: Mirror, oids: Iterable[Oid]) -> None:
        """Read the headers of these Kptfiles, fetching in one batch what is not here.

        Raises: UnavailableError if they cannot be fetched.
        """
        missing = [oid for oid in dict.fromkeys(oids) if oid not in self._headers]
        mirror.ensure(missing)
        for oid in missing:
            self._headers[oid] = _read(mirror, oid)

    def header(self, oid: Oid) -> KptfileHeader:
        """Return a header that was loaded."""
        return self._headers[oid]


def _read(mirror: Mirror, oid: Oid) -> KptfileHeader:
    try:
        return read_header(mirror.blob(oid, LARGEST_KPTFILE))
    except PackageRefusedError as error:
        return KptfileHeader(error=error.why)


def _upstream(kptfile: Mapping[str, Any], field: str) -> GitUpstream | None:
    git = _mapping(_mapping(kptfile, field), "git")
    if not git:
        return None
    return GitUpstream(*(_text(git, name) for name in ("repo", "directory", "ref", "commit")))


def _mapping(value: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = value.get(field)
    return found if isinstance(found, dict) else {}


def _text(value: Mapping[str, Any], field: str) -> str:
    found = value.get(field)
    return found if isinstance(found, str) else ""
