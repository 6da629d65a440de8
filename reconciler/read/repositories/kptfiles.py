"""Read and cache the headers of Kptfiles: each distinct one is fetched and parsed once."""

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER, GitUpstream, KptfileHeader
from reconciler.base.errors import UnavailableError
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.krm.yaml import PACKAGE_LIMITS, Document, YamlError, load_documents
from reconciler.names.ids import Oid
from reconciler.read.kept_files import load_kept, save_kept
from reconciler.read.repositories.packed_headers import (
    PackedHeaders,
    Upstreams,
    pack_headers,
    unpack_headers,
)

READER = 3
"""Version of the cache: increment it when headers are read differently."""
MAX_KPTFILE_BYTES = 1 << 20


def read_header(data: bytes) -> KptfileHeader:
    """Return the owner and upstream of a Kptfile. Total: an invalid one is a header with an `error`."""
    try:
        documents = load_documents(data, PACKAGE_LIMITS)
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
    )


class HeaderIndex:
    """Headers by blob id, for all repositories, revisions and runs.

    `path` is the cache file of earlier runs. If it is missing, old or damaged, everything is read again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._headers: dict[Oid, KptfileHeader] = {}
        self._upstreams: Upstreams = {}
        self._absent: set[Oid] = set()
        self.parsed = 0
        """Number of distinct Kptfiles that were parsed."""
        self.spared = 0
        """Number of packages that needed no header, because the view that has them was kept."""

    @cached_property
    def _cached(self) -> dict[Oid, KptfileHeader]:
        return _load(self._path, self._upstreams) if self._path else {}

    def load(self, mirror: Mirror, oids: Iterable[Oid | None]) -> None:
        """Load the headers of these Kptfiles, fetching missing blobs in one batch.

        Raises:
            UnavailableError: They cannot be fetched.
        """
        new = {oid for oid in oids if oid is not None and oid not in self._headers}
        if not new:
            return
        self._headers |= {oid: self._cached[oid] for oid in new if oid in self._cached}
        missing = sorted(oid for oid in new if oid not in self._headers)
        absent = _fetch(mirror, missing)
        for oid in missing:
            try:
                self._headers[oid] = absent[oid] if oid in absent else self._shared(_read(mirror, oid))
            except UnavailableError as error:
                absent[oid] = self._headers[oid] = KptfileHeader(error=str(error))
        self._absent |= absent.keys()
        self.parsed += len(missing)

    def save(self) -> None:
        """Write the headers of this run to the cache file; a failure is ignored.

        Those of kept views stay in it: another run may read them.
        """
        headers = {oid: header for oid, header in self._headers.items() if oid not in self._absent}
        if self._path is None:
            return
        if self.spared and (not headers or headers.keys() <= self._cached.keys()):
            return
        if self.spared and len(self._cached) <= 2 * (self.spared + len(headers)):
            headers = self._cached | headers
        if headers.keys() != self._cached.keys():
            kept = _Kept(READER, [*headers], pack_headers([*headers.values()]))
            save_kept(self._path, msgspec.json.encode(kept))

    def is_lasting(self, oid: Oid | None) -> bool:
        """Tell whether a header is the same in the next run: its Kptfile could be fetched."""
        return oid not in self._absent

    def header(self, oid: Oid | None) -> KptfileHeader:
        """Return a loaded header; None means a package with a malformed tree."""
        return self._headers[oid] if oid else KptfileHeader(error="its tree is malformed")

    def _shared(self, header: KptfileHeader) -> KptfileHeader:
        """Return a header that holds upstreams of other headers as one object: a fleet has few."""
        upstream, lock = (
            each and self._upstreams.setdefault(each, each)
            for each in (header.upstream, header.upstream_lock)
        )
        return replace(header, upstream=upstream, upstream_lock=lock)


class _Kept(Struct, frozen=True):
    """The content of a cache file: the Kptfiles, and their headers in the same order."""

    reader: int
    kptfiles: list[Oid]
    headers: PackedHeaders


def _load(path: Path, upstreams: Upstreams) -> dict[Oid, KptfileHeader]:
    """Return the headers of a cache file, none if it is damaged or of another version."""
    try:
        kept = msgspec.json.decode(load_kept(path), type=_Kept)
    except (msgspec.DecodeError, RecursionError):
        return {}
    if kept.reader != READER or not kept.headers.is_whole or len(kept.kptfiles) != len(kept.headers.headers):
        return {}
    return dict(zip(kept.kptfiles, unpack_headers(kept.headers, upstreams), strict=True))


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
