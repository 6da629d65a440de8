"""Git objects computed purely: ids and bytes of blobs, trees and commits."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

from reconciler.ids import Oid


class Mode(IntEnum):
    """The entry modes that we read or write; a gitlink (0o160000) is refused on reading."""

    TREE = 0o040000
    REGULAR = 0o100644
    EXECUTABLE = 0o100755
    SYMLINK = 0o120000


def object_id(kind: str, data: bytes) -> Oid:
    """Return the id that Git gives to `data` as an object of `kind`."""
    return Oid(
        hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()
    )


@dataclass(frozen=True, slots=True)
class File:
    """One file of a package: bytes, mode and the id of its blob."""

    data: bytes
    mode: Mode
    oid: Oid

    @classmethod
    def of(cls, data: bytes, mode: Mode = Mode.REGULAR) -> Self:
        """Return the file with these bytes; its id is computed here, once."""
        return cls(data, mode, object_id("blob", data))


Files = Mapping[str, File]
"""A package's content: paths relative to the package, `/`-separated, in any order."""


class TreeEntry(NamedTuple):
    """One entry of a Git tree."""

    name: str
    mode: int
    oid: Oid


def tree_bytes(entries: Iterable[TreeEntry]) -> bytes:
    """Return a tree object's bytes, its entries in Git's order (directories sort with a trailing slash)."""
    ordered = sorted(entries, key=lambda e: e.name.encode() + (b"/" if e.mode == Mode.TREE else b""))
    return b"".join(b"%o %s\0" % (e.mode, e.name.encode()) + bytes.fromhex(e.oid) for e in ordered)


def directory_objects(files: Files) -> tuple[Oid, dict[Oid, bytes]]:
    """Return the root tree's id and every tree object that holds `files`.

    Deterministic: the order of `files` does not matter.
    """
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
        oid, objects = directory_objects(below)
        trees.update(objects)
        entries.append(TreeEntry(name, Mode.TREE, oid))
    data = tree_bytes(entries)
    root = object_id("tree", data)
    trees[root] = data
    return root, trees


def tree_id(files: Files) -> Oid:
    """Return the id of the tree that holds `files`."""
    return directory_objects(files)[0]


class Signature(NamedTuple):
    """Who made a commit, and when: seconds since the epoch, always written as UTC."""

    name: str
    email: str
    time: int

    def __str__(self) -> str:
        return f"{self.name} <{self.email}> {self.time} +0000"


def commit_bytes(
    tree: Oid, parents: Iterable[Oid], author: Signature, committer: Signature, message: str
) -> bytes:
    """Return a commit object's bytes."""
    lines = [f"tree {tree}", *(f"parent {p}" for p in parents), f"author {author}", f"committer {committer}"]
    return ("\n".join(lines) + "\n\n" + message).encode()
