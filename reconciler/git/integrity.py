"""Damage in the cache: what a killed process, a full disk or a bad sector leaves in a mirror."""

import hashlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

_CHECKED = (
    *(f"objects/pack/*.{kind}" for kind in ("pack", "idx", "rev", "bitmap")),
    "objects/pack/multi-pack-index",
    "objects/info/commit-graph",
    "objects/info/commit-graphs/*.graph",
)
"""Files that end with the SHA-1 of what stands before."""
_DIRECTORIES = ("objects/info", "objects/pack", "refs/heads", "refs/tags")
_RECORD = "reconciler-packs"
_CHECKSUM_BYTES = 20
_PIECE = 1 << 20
_REF = re.compile(rb"[0-9a-f]{40}\n")
_PACKED_REFS = re.compile(rb"(#[^\n]*\n|[0-9a-f]{40} refs/[^\x00-\x20\x7f]+\n|\^[0-9a-f]{40}\n)*")


def find_damage(mirror: Path) -> str:
    """Return the first file of a mirror that is damaged or lost, and how; "" if there is none.

    Every byte is read: what Git and libgit2 would find later they report as objects that the remote
    lacks, or not at all. Files that another process replaces meanwhile are skipped.
    """
    try:
        return next(_damages(mirror), "")
    except OSError as error:
        return f"{error.filename or mirror}: {error.strerror}"


def write_packs_record(mirror: Path) -> None:
    """Write which packs a mirror has, so that a lost one is missed.

    Raises: OSError if it cannot be written.
    """
    names = sorted(path.stem for path in (mirror / "objects" / "pack").glob("*.idx"))
    fresh = mirror / f"{_RECORD}.new"
    fresh.write_text("".join(f"{name}\n" for name in names))
    fresh.replace(mirror / _RECORD)


def _damages(mirror: Path) -> Iterator[str]:
    for name in _DIRECTORIES:
        if not (mirror / name).is_dir():
            yield f"{mirror / name} is no directory"
    yield from _lost_packs(mirror)
    for pattern in _CHECKED:
        for path in mirror.glob(pattern):
            if not _has_checksum(path):
                yield f"{path} does not have the checksum that it ends with"
    for path in mirror.glob("objects/[0-9a-f][0-9a-f]/*"):
        if len(path.name) == len("0" * 38) and not _is_object(path):
            yield f"{path} is not the object that its name says"
    yield from _damaged_refs(mirror)


def _lost_packs(mirror: Path) -> Iterator[str]:
    packs = mirror / "objects" / "pack"
    for name in _recorded(mirror):
        if not (packs / f"{name}.idx").is_file():
            yield f"{packs / name}.idx is lost"
    for index in packs.glob("*.idx"):
        if not index.with_suffix(".pack").is_file() and index.is_file():
            yield f"{index.with_suffix('.pack')} is lost"


def _recorded(mirror: Path) -> list[str]:
    record = mirror / _RECORD
    return record.read_text("ascii", "replace").split() if record.is_file() else []


def _damaged_refs(mirror: Path) -> Iterator[str]:
    packed = mirror / "packed-refs"
    if packed.exists() and not _PACKED_REFS.fullmatch(packed.read_bytes()):
        yield f"{packed} is not a list of refs"
    for path in (mirror / "refs").rglob("*"):
        if path.is_file() and path.suffix != ".lock" and not _REF.fullmatch(_read(path)):
            yield f"{path} is not a ref"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b"0" * 40 + b"\n"


def _has_checksum(path: Path) -> bool:
    """Tell whether a file ends with its own SHA-1; a file that is gone by now does."""
    digest = hashlib.sha1(usedforsecurity=False)
    try:
        with path.open("rb") as file:
            left = path.stat().st_size - _CHECKSUM_BYTES
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                digest.update(piece)
                left -= len(piece)
            return left == 0 and file.read() == digest.digest()
    except FileNotFoundError:
        return True


def _is_object(path: Path) -> bool:
    try:
        data = zlib.decompress(path.read_bytes())
    except FileNotFoundError:
        return True
    except zlib.error:
        return False
    return hashlib.sha1(data, usedforsecurity=False).hexdigest() == path.parent.name + path.name
