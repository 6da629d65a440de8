"""The format of a pack and of its index, version 2, and how both appear at once."""

import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

from reconciler.ids import Oid

_TYPES = {"commit": 1, "tree": 2, "blob": 3}
_LEVEL = 1  # what is written is sent once and repacked by whoever keeps it
_INDEX_MAGIC = b"\xfftOc\0\0\0\2"
_LARGE = 1 << 31


def pack_record(kind: str, data: bytes) -> bytes:
    """Return one object as a pack holds it: type and size in seven-bit groups, then deflated content."""
    size = len(data)
    byte = (_TYPES[kind] << 4) | (size & 0x0F)
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    return bytes(header) + zlib.compress(data, _LEVEL)


def pack_bytes(records: Mapping[Oid, bytes]) -> tuple[bytes, bytes]:
    """Return the pack of these records and its index. Deterministic in the order of `records`."""
    body = b"".join((b"PACK", struct.pack(">II", 2, len(records)), *records.values()))
    checksum = hashlib.sha1(body, usedforsecurity=False).digest()
    return body + checksum, _index_bytes(records, checksum)


def write_pack(directory: Path, records: Mapping[Oid, bytes]) -> None:
    """Write pack and index into a repository's object directory; readers see both or neither.

    Git looks for indexes, so the pack is in its place before its index appears.

    Raises: OSError, and then nothing that a reader would look at is there.
    """
    packs = directory / "pack"
    pack, index = pack_bytes(records)
    name = hashlib.sha1(b"".join(map(str.encode, sorted(records))), usedforsecurity=False).hexdigest()
    _place(packs / f"pack-{name}.pack", pack)
    _place(packs / f"pack-{name}.idx", index)


def _place(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix="tmp_pack_", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o444)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _index_bytes(records: Mapping[Oid, bytes], checksum: bytes) -> bytes:
    """Return the index: fan-out, sorted ids, checksums of the records, their places in the pack."""
    starts = accumulate(map(len, records.values()), initial=12)
    rows = sorted(
        (bytes.fromhex(oid), zlib.crc32(record), start)
        for (oid, record), start in zip(records.items(), starts, strict=False)
    )
    counts = [0] * 256
    for oid, _, _ in rows:
        counts[oid[0]] += 1
    large = [start for *_, start in rows if start >= _LARGE]
    places = iter(range(len(large)))
    parts = (
        _INDEX_MAGIC,
        struct.pack(">256I", *accumulate(counts)),
        b"".join(oid for oid, _, _ in rows),
        b"".join(struct.pack(">I", crc) for _, crc, _ in rows),
        b"".join(struct.pack(">I", s if s < _LARGE else _LARGE | next(places)) for *_, s in rows),
        b"".join(struct.pack(">Q", start) for start in large),
        checksum,
    )
    body = b"".join(parts)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()
