"""The package index: what each Kptfile says, every distinct one fetched and parsed once."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import orjson

from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER, GitUpstream, KptfileHeader
from reconciler.digest import checked, with_digest
from reconciler.errors import UnavailableError
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.ids import Oid
from reconciler.krm.yaml import PACKAGE_LIMITS, Document, YamlError, load_documents

READER = 1
"""Raised when reading a Kptfile comes to another header; then every one is read again."""
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
    if not documents or not isinstance(documents[0].value, dict) or documents[0].value.get("kind") != KPTFILE:
        return KptfileHeader(error="its first document is not a Kptfile")
    text = _Texts(documents[0], data)
    return KptfileHeader(
        name=text.at("metadata", "name"),
        owner=text.at("metadata", "annotations", OWNER),
        location=text.at("metadata", "annotations", LOCATION),
        upstream=_upstream(text, "upstream"),
        upstream_lock=_upstream(text, "upstreamLock"),
    )


class HeaderIndex:
    """Headers by blob id: content decides, so one answer serves every repository, revision and run.

    `kept` is a file of what runs before this one read: it may be missing, old, or not ours, and
    then everything is read again.
    """

    def __init__(self, kept: Path | None = None) -> None:
        self._kept = kept
        self._known = _load(kept) if kept else {}
        self._headers: dict[Oid, KptfileHeader] = {}
        self.parsed = 0
        """How many distinct Kptfiles were read."""

    def load(self, mirror: Mirror, oids: Iterable[Oid | None]) -> None:
        """Read the headers of these Kptfiles, fetching in one batch what is not here.

        Raises: UnavailableError if they cannot be fetched.
        """
        wanted = [oid for oid in dict.fromkeys(oids) if oid is not None and oid not in self._headers]
        self._headers |= {oid: _header(self._known[oid]) for oid in wanted if oid in self._known}
        missing = [oid for oid in wanted if oid not in self._headers]
        absent = _fetch(mirror, missing)
        for oid in missing:
            self._headers[oid] = absent[oid] if oid in absent else _read(mirror, oid)
        self.parsed += len(missing)

    def save(self) -> None:
        """Keep what this run needed for the next one; a cache that cannot be written is no fault."""
        if self._kept is None or self._headers.keys() == self._known.keys():
            return
        data = orjson.dumps({"reader": READER, "headers": self._headers})
        with suppress(OSError):
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._kept.parent, delete=False) as file:
                file.write(with_digest(data))
            Path(file.name).replace(self._kept)

    def header(self, oid: Oid | None) -> KptfileHeader:
        """Return a header that was loaded; for None that of a package whose tree is malformed."""
        return self._headers[oid] if oid else KptfileHeader(error="its tree is malformed")


def _load(kept: Path) -> dict[Oid, Any]:
    """Return the headers that a file keeps, none unless this reader wrote it and it is whole."""
    try:
        found = orjson.loads(checked(kept.read_bytes()) or b"")
        return found["headers"] if found["reader"] == READER else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _header(kept: dict[str, Any]) -> KptfileHeader:
    upstreams = {field: kept[field] and GitUpstream(**kept[field]) for field in ("upstream", "upstream_lock")}
    return KptfileHeader(**{**kept, **upstreams})


def _fetch(mirror: Mirror, oids: list[Oid]) -> dict[Oid, KptfileHeader]:
    """Fetch Kptfiles in one batch; return headers with an error for those that the repository lacks.

    A server refuses a whole batch for one object that it does not have. Asked for one by one, the
    others arrive. If none does, the repository is what cannot be reached.

    Raises: UnavailableError if nothing can be fetched.
    """
    try:
        mirror.ensure(oids)
    except UnavailableError:
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
        return read_header(mirror.blob(oid, LARGEST_KPTFILE))
    except PackageRefusedError as error:
        return KptfileHeader(error=error.reason)
    except UnavailableError as error:
        return KptfileHeader(error=str(error))


def _upstream(text: "_Texts", field: str) -> GitUpstream | None:
    if not isinstance(text.find(field, "git"), dict):
        return None
    return GitUpstream(*(text.at(field, "git", name) for name in ("repo", "directory", "ref", "commit")))


@dataclass(frozen=True, slots=True)
class _Texts:
    """Fields of a document as text: a name or a commit of digits is what was written, not a number."""

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
        written = self.data.decode("utf-8", "replace").splitlines()[line - 1][column - 1 :]
        return re.split(r"[\s,}]", written, maxsplit=1)[0]
