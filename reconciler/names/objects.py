"""Git objects without a repository: bytes and ids of blobs, trees and commits."""

import hashlib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, Self

from msgspec import Struct

from reconciler.names.file_names import check_names
from reconciler.names.ids import Oid


class Mode(IntEnum):
    """Modes of tree entries; a gitlink (0o160000) is refused on reading."""

    TREE = 0o040000
    REGULAR = 0o100644
    EXECUTABLE = 0o100755
    SYMLINK = 0o120000


class File(Struct, frozen=True):
    """One file of a package: bytes, mode and the id of its blob."""

    data: bytes
    mode: Mode
    oid: Oid

    @classmethod
    def of(cls, data: bytes, mode: Mode = Mode.REGULAR) -> Self:
        """Return the file with these bytes, and compute its id."""
        return cls(data, mode, object_id("blob", data))


Files = Mapping[str, File]
"""A package's content: paths relative to the package, `/`-separated, in any order."""


class TreeEntry(NamedTuple):
    """One entry of a Git tree."""

    name: str
    mode: int
    oid: Oid


class Commit(Struct, frozen=True):
    """A commit: its id and committer time in seconds."""

    oid: Oid
    time: int


class Signature(NamedTuple):
    """Author or committer of a commit with its time, in seconds since the epoch, written as UTC."""

    name: str
    email: str
    time: int

    def __str__(self) -> str:
        return f"{self.name} <{self.email}> {self.time} +0000"


def object_id(kind: str, data: bytes) -> Oid:
    """Return the Git id of `data` as an object of `kind`."""
    return Oid(sha1(b"%s %d\0" % (kind.encode(), len(data)) + data).hexdigest())


def sha1(data: bytes = b"") -> "hashlib._Hash":
    """Return the digest by which Git names objects and checks files; FIPS forbids it for secrets only."""
    return hashlib.sha1(data, usedforsecurity=False)


def tree_bytes(entries: Iterable[TreeEntry]) -> bytes:
    """Return the bytes of a tree object."""
    # Git sorts directories as if their names ended with a slash.
    ordered = sorted(entries, key=lambda e: e.name.encode() + (b"/" if e.mode == Mode.TREE else b""))
    return b"".join(b"%o %s\0" % (e.mode, e.name.encode()) + bytes.fromhex(e.oid) for e in ordered)


def directory_objects(files: Files, before: Iterable[str] = ()) -> tuple[Oid, dict[Oid, bytes]]:
    """Return the root tree's id and every tree object that holds `files`.

    Deterministic: the order of `files` does not matter. No other function makes trees of files.

    Raises:
        NamesError: No tree may hold them, see `check_names`.
    """
    check_names(files, before)
    return _objects(files)


def tree_id(files: Files) -> Oid:
    """Return the id of the tree that would hold `files`, whatever their names are."""
    return _objects(files)[0]


def _objects(files: Files) -> tuple[Oid, dict[Oid, bytes]]:
    trees: dict[Oid, bytes] = {}
    children: dict[str, dict[str, File]] = {}
    entries: list[TreeEntry] = []
    for path, file in files.items():
        head, slash, rest = path.partition("/")
        if slash:
            children.setdefault(head, {})[rest] = file
        else:
            entries.append(TreeEntry(head, file.mode, file.oid))
    for name, below in children.items():
        oid, objects = _objects(below)
        trees.update(objects)
        entries.append(TreeEntry(name, Mode.TREE, oid))
    data = tree_bytes(entries)
    root = object_id("tree", data)
    trees[root] = data
    return root, trees


def commit_bytes(
    tree: Oid, parents: Iterable[Oid], author: Signature, committer: Signature, message: str
) -> bytes:
    """Return a commit object's bytes."""
    lines = [f"tree {tree}", *(f"parent {p}" for p in parents), f"author {author}", f"committer {committer}"]
    return ("\n".join(lines) + "\n\n" + message).encode()
