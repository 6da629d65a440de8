"""Tar archives that nobody packs by accident: bombs, and members that no chart and no layer may have."""

import gzip
import sys
import tarfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

_MANY: Final = 20_000
_LARGE: Final = 400 << 20
_ZEROS: Final = bytes(1 << 20)


class Member(NamedTuple):
    """A member; `declared` is the size in its header, where that is another one."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    declared: int | None = None
    extended: Mapping[str, str] = {}


class Hostile(NamedTuple):
    """An archive, and what the message says about it."""

    data: bytes
    why: str


def tar(*members: Member, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a plain archive."""
    return b"".join(map(_member, members, [form] * len(members))) + bytes(1024)


def _member(member: Member, form: int = tarfile.PAX_FORMAT) -> bytes:
    info = tarfile.TarInfo(member.name)
    info.size = len(member.content) if member.declared is None else member.declared
    info.type, info.pax_headers = member.kind, dict(member.extended)
    info.linkname = "/etc/passwd" if member.kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return info.tobuf(form, "utf-8", "surrogateescape") + member.content + bytes(-len(member.content) % 512)


def packed(chunks: Iterable[bytes]) -> bytes:
    """Return chunks packed with gzip, each as a member of its own, so that the same chunk is packed once."""
    return b"".join(map(_packed, chunks))


@lru_cache
def _packed(chunk: bytes) -> bytes:
    return gzip.compress(chunk, mtime=0)


def _bomb(before: bytes, kind: bytes, name: str) -> bytes:
    """Return an archive with a large member of zeros behind others."""
    head = _member(Member(name, kind=kind, declared=_LARGE), tarfile.GNU_FORMAT)
    return packed([before + head, *[_ZEROS] * (_LARGE >> 20), bytes(1024)])


@lru_cache
def _many(folder: str) -> bytes:
    files = (_member(Member(f"{folder}{number}.yaml")) for number in range(_MANY))
    return gzip.compress(b"".join(files), mtime=0)


def _with_checksum(header: bytearray) -> bytes:
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _sparse(name: str, size: int) -> bytes:
    """Return the member of a sparse file without content, as GNU tar wrote it until 1.15."""
    header = bytearray(_member(Member(name, kind=b"S"), tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % size
    return _with_checksum(header)


def hostile(path: str, good: Member) -> dict[str, Hostile]:
    """Return archives that are refused by every reader that wants `path`; `good` is read before it."""
    first, folder = _member(good), path.rpartition("/")[0]
    inside = f"{folder}/" if folder else ""
    link = "it is a link"
    twice = Member(path, b"1")
    pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(_LARGE)}
    holes = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(_LARGE), "GNU.sparse.numblocks": "1"}
    damaged = bytearray(tar(good, twice))
    damaged[len(first) + 3] ^= 1
    headers = "has more than 8 KiB of headers for one file"
    whole = gzip.compress(tar(good, twice), mtime=0)
    small = _member(Member("h", b"12 path=abc\n", b"x"))
    return {
        "up": Hostile(tar(good, Member(f"{inside}../{path}")), "it leads out of the archive"),
        "up in the middle": Hostile(tar(good, Member(f"{inside}a/../b")), "it leads out of the archive"),
        "absolute": Hostile(tar(good, Member(f"/{path}")), "it leads out of the archive"),
        "symbolic link": Hostile(tar(good, Member(path, kind=tarfile.SYMTYPE)), link),
        "hard link": Hostile(tar(good, Member(path, kind=tarfile.LNKTYPE)), link),
        "device": Hostile(tar(good, Member(path, kind=tarfile.CHRTYPE)), "it is no file"),
        "fifo": Hostile(tar(good, Member(path, kind=tarfile.FIFOTYPE)), "it is no file"),
        "unknown type": Hostile(tar(good, Member(path, kind=b"z")), "it is no file"),
        "twice": Hostile(tar(good, twice, twice), "it is there twice"),
        "twice in two spellings": Hostile(tar(good, twice, Member(f"./{path}")), "it is there twice"),
        "sparse": Hostile(first + _sparse(path, _LARGE) + bytes(1024), "it is a sparse file"),
        "small sparse": Hostile(first + _sparse(path, 600) + bytes(2048), "it is a sparse file"),
        "sparse of POSIX": Hostile(
            tar(good, Member(path, b"1\n0\n0\n".ljust(512, b"\0"), extended=pax)), "it is a sparse file"
        ),
        "holes of POSIX": Hostile(tar(good, Member(path, b"1", extended=holes)), "it is a sparse file"),
        "map of holes without an end": Hostile(
            packed(
                [
                    first,
                    _member(Member(path, declared=10 << 20, extended=pax)),
                    b"9999999\n",
                    *[b"1\n" * 512] * 10_000,
                ]
            ),
            headers,
        ),
        **{
            f"header {kind.decode()}": Hostile(_bomb(first, kind, "h"), headers)
            for kind in (b"x", b"g", b"X", b"L", b"K")
        },
        "many headers": Hostile(packed([first, small * 2000, _member(twice), bytes(1024)]), headers),
        "many files": Hostile(
            packed([first]) + _many(inside) + packed([bytes(1024)]), "has more than 10000 files"
        ),
        "large file": Hostile(_bomb(first, tarfile.REGTYPE, path), f"it has {_LARGE} bytes"),
        "size without content": Hostile(
            tar(good, Member(path, declared=1 << 62), form=tarfile.GNU_FORMAT), "it has 46116860184"
        ),
        "negative size": Hostile(
            tar(good, Member(path, declared=-5), form=tarfile.GNU_FORMAT),
            # Earlier patch releases of Python take the header for damaged.
            "it has -5 bytes" if sys.version_info >= (3, 11, 4) else "is no whole archive",
        ),
        "cut": Hostile(whole[:-20], "is no whole archive"),
        "cut inside": Hostile(gzip.compress(tar(good, twice)[: len(first) + 700]), "is no whole archive"),
        "damaged header": Hostile(bytes(damaged), "is no whole archive: a header is damaged"),
        "damaged content": Hostile(whole[:40] + b"\xff" * 20 + whole[60:], "is no whole archive"),
        "no archive": Hostile(b"no archive", "is no whole archive"),
        "packed with zstd": Hostile(b"\x28\xb5\x2f\xfd" + bytes(100), "is packed with zstd"),
    }


def clashing(folder: str, good: Member) -> dict[str, Hostile]:
    """Return archives with two names of which no package may have both."""
    names = {
        "file and directory": ("t", "t/u", "it would be both a file and a directory"),
        "case": ("T", "t", "on some file systems it is the same as"),
        "case of directories": ("A/b", "a/c", "on some file systems it is the same as"),
        "normal form": ("caf\u00e9", "cafe\u0301", "on some file systems it is the same as"),
    }
    return {
        case: Hostile(tar(good, Member(f"{folder}/{one}"), Member(f"{folder}/{other}")), why)
        for case, (one, other, why) in names.items()
    }


def badly_named(folder: str, good: Member) -> dict[str, Hostile]:
    """Return archives with a name that no file of a package may have."""
    long = "n" * 300
    other = "or stands for another directory"
    git = "some file systems take its name for Git's own"
    return {
        "no UTF-8": Hostile(
            tar(good, Member(f"{folder}/\udcff")), f"{folder}/\\udcff: its name is not UTF-8"
        ),
        "long": Hostile(tar(good, Member(f"{folder}/{long}")), f"{long}: its name is longer than 255 bytes"),
        "dot": Hostile(tar(good, Member(".")), f"may not hold .: its name is empty {other}"),
        "empty": Hostile(tar(good, Member(f"{folder}//a")), other),
        "control": Hostile(tar(good, Member(f"{folder}/a\nb")), "its name contains a control character"),
        "deep": Hostile(tar(good, Member(f"{folder}/{'a/' * 60}b")), "it is deeper than 50 directories"),
        "outside": Hostile(tar(good, Member("a")), "may not hold a: it is in no directory"),
        **{
            name: Hostile(tar(good, Member(f"{folder}/{name}/config")), git)
            for name in (".git", ".GIT", "git~1")
        },
        "directory": Hostile(tar(good, Member(f"{folder}/.git", kind=tarfile.DIRTYPE)), git),
    }
