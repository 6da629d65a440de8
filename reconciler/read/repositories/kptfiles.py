"""Read the headers of Kptfiles: each distinct one is fetched and parsed once."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER, GitUpstream, KptfileHeader
from reconciler.base.errors import UnavailableError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import RepositoryView
from reconciler.krm.yaml import KPTFILE_LIMITS, Document, YamlError, load_documents
from reconciler.names.ids import ObjectName, Oid
from reconciler.render.kptfile import unmet_gates_of

MAX_KPTFILE_BYTES = KPTFILE_LIMITS.max_bytes


def read_header(data: bytes) -> KptfileHeader:
    """Return the owner and upstream of a Kptfile. Total: an invalid one is a header with an `error`."""
    try:
        documents = load_documents(data, KPTFILE_LIMITS)
    except YamlError as error:
        return KptfileHeader(error=str(error))
    if not documents or not isinstance(documents[0].value, dict) or documents[0].value.get("kind") != KPTFILE:
        return KptfileHeader(error="its first document is not a Kptfile")
    text = _Texts(documents[0], data)
    return KptfileHeader(
        owner=text.at("metadata", "annotations", OWNER),
        location=text.at("metadata", "annotations", LOCATION),
        upstream=_upstream(text, "upstream"),
        upstream_lock=_upstream(text, "upstreamLock"),
        has_charts=b"render-helm-chart" in data,
        unmet=unmet_gates_of(documents[0].value),
    )


def with_commits(header: KptfileHeader, tags: Mapping[str, Oid]) -> KptfileHeader:
    """Return a header with a commit in its upstreamLock: kpt writes the object of an annotated tag there.

    `tags` are the commits of the tags of all repositories by the ids of their objects.
    """
    lock = header.upstream_lock
    if lock is None or lock.commit not in tags:
        return header
    return replace(header, upstream_lock=replace(lock, commit=tags[lock.commit]))


def tag_commits(views: Mapping[ObjectName, RepositoryView], mirrors: Mirrors) -> dict[str, Oid]:
    """Return the commits of the annotated tags of all repositories by the ids of their objects."""
    remotes = {view.remote for view in views.values() if view.is_available}
    return {tag: at for remote in sorted(remotes) for tag, at in mirrors.open(remote).tag_commits().items()}


class HeaderIndex:
    """Headers by blob id, for all repositories and revisions."""

    def __init__(self) -> None:
        self._headers: dict[Oid, KptfileHeader] = {}
        self._upstreams: dict[GitUpstream, GitUpstream] = {}

    def load(self, mirror: Mirror, oids: Iterable[Oid | None]) -> None:
        """Load the headers of these Kptfiles, fetching missing blobs in one batch.

        Raises:
            UnavailableError: They cannot be fetched.
        """
        new = {oid for oid in oids if oid is not None and oid not in self._headers}
        if not new:
            return
        missing = sorted(new)
        absent = _fetch(mirror, missing)
        for oid in missing:
            try:
                self._headers[oid] = absent[oid] if oid in absent else self._shared(_read(mirror, oid))
            except UnavailableError as error:
                self._headers[oid] = KptfileHeader(error=str(error))

    def header(self, oid: Oid | None) -> KptfileHeader:
        """Return a loaded header; None means a package with a malformed tree."""
        return self._headers[oid] if oid else KptfileHeader(error="its tree is malformed")

    def _shared(self, header: KptfileHeader) -> KptfileHeader:
        """Return a header that holds upstreams of other headers as one object: a fleet has few."""
        upstream, lock = (
            upstream and self._upstreams.setdefault(upstream, upstream)
            for upstream in (header.upstream, header.upstream_lock)
        )
        return replace(header, upstream=upstream, upstream_lock=lock)


def _fetch(mirror: Mirror, oids: list[Oid]) -> dict[Oid, KptfileHeader]:
    """Fetch Kptfiles in one batch; return headers with an error for those that the repository lacks.

    Raises:
        UnavailableError: Nothing can be fetched: the repository is unreachable.
    """
    try:
        mirror.ensure(oids)
    except UnavailableError:
        # A server refuses the whole batch for one missing object: fetch the others one by one.
        absent: dict[Oid, KptfileHeader] = {}
        for oid in oids:
            try:
                mirror.ensure([oid])
            except UnavailableError as error:
                absent[oid] = KptfileHeader(error=str(error))
        if len(absent) == len(oids):
            raise
        return absent
    return {}


def _read(mirror: Mirror, oid: Oid) -> KptfileHeader:
    try:
        return read_header(mirror.blob(oid, MAX_KPTFILE_BYTES))
    except PackageRefusedError as error:
        return KptfileHeader(error=error.reason)


def _upstream(text: "_Texts", field: str) -> GitUpstream | None:
    if not isinstance(text.find(field, "git"), dict):
        return None
    return GitUpstream(*(text.at(field, "git", name) for name in ("repo", "directory", "ref", "commit")))


class _Texts(Struct, frozen=True):
    """Fields of a document as they are written: a name or commit of digits is text, not a number."""

    document: Document
    data: bytes

    def find(self, *path: str) -> Any:
        value = self.document.value
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def at(self, *path: str) -> str:
        value = self.find(*path)
        if isinstance(value, str):
            return value
        if not isinstance(value, int | float):
            return ""
        line, column = self.document.mark(path)
        written = self.data.decode(errors="replace").splitlines()[line - 1][column - 1 :]
        return re.split(r"[\s,}]", written, maxsplit=1)[0]
