"""New objects of a run: collected for one pack per repository, and written in pack format version 2."""

import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

from msgspec.structs import replace

from reconciler.base.errors import UnavailableError
from reconciler.git.commits import CommitData
from reconciler.git.effects import effect
from reconciler.git.repository import Mirror
from reconciler.git.sorted_trees import SortedTree, Splice, apply_delta, delta
from reconciler.git.trees import PackageRefusedError, RawEntry, parse_tree
from reconciler.names.ids import Oid
from reconciler.names.objects import (
    Files,
    Signature,
    TreeEntry,
    commit_bytes,
    directory_objects,
    object_id,
    sha1,
    tree_bytes,
)


class Pack:
    """Collects new objects for one repository, without those that it has already.

    Deterministic: ids depend on content only. Objects stay in memory, compressed, until `save`.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._records: dict[Oid, bytes] = {}
        self._trees: dict[Oid, SortedTree] = {}
        self._bases: dict[Oid, int] = {}
        self._present: set[Oid] = set()
        self._commits: dict[Oid, Oid] = {}
        self._signed: dict[Oid, Oid] = {}
        self._unsigned: dict[Oid, CommitData] = {}

    def __len__(self) -> int:
        return len(self._records)

    def blob(self, data: bytes, *, is_new: bool = False) -> Oid:
        """Add a blob; return its id. Of `is_new` see `add`."""
        return self.add("blob", object_id("blob", data), data, is_new=is_new)

    def tree(self, entries: Iterable[TreeEntry], *, is_new: bool = False) -> Oid:
        """Add a tree; return its id. Of `is_new` see `add`."""
        data = tree_bytes(entries)
        return self.add("tree", object_id("tree", data), data, is_new=is_new)

    def files(self, files: Files) -> Oid:
        """Add a package's blobs and trees; return its root tree's id."""
        root, trees = directory_objects(files)
        for file in files.values():
            self.add("blob", file.oid, file.data)
        # A tree with a blob that the repository lacks is new, too: looking for what is missing is slow.
        is_new = any(file.oid in self._records for file in files.values())
        for oid, data in trees.items():
            self.add("tree", oid, data, is_new=is_new and oid == root)
        return root

    def commit(
        self, tree: Oid, parents: Iterable[Oid], author: Signature, committer: Signature, message: str
    ) -> Oid:
        """Add a commit, signed off and signed as configured; return its id.

        A parent that this pack made may be given by its unsigned id: plans are pure and hold no key.

        Raises: UnavailableError if it must be signed and there is no usable key.
        """
        signing = self._mirror.signing
        signed_parents = tuple(self._signed.get(parent, parent) for parent in parents)
        data = commit_bytes(tree, signed_parents, author, committer, message)
        oid = unsigned = object_id("commit", data)
        text = signing.message(message, committer)
        if signing.read_key is not None or text != message:
            data = signing.commit(tree, signed_parents, author, committer, message)
            oid = object_id("commit", data)
        self._signed[unsigned] = oid
        self._commits[oid] = self._commits[unsigned] = tree
        self._unsigned[oid] = CommitData(oid, tree, signed_parents, author, committer, text)
        return self.add("commit", oid, data, is_new=True)

    def tree_of(self, commit: Oid) -> Oid | None:
        """Return the tree of a commit that this pack made, None for any other."""
        return self._commits.get(commit)

    def differs_in_signature(self, commit: Oid, other: Oid) -> bool:
        """Tell whether a commit of the repository is one that this pack made, but for signatures."""
        made, there = self._unsigned.get(commit), self._mirror.find_commit(other)
        if made is None or there is None or len(made.parents) != len(there.parents):
            return False
        parents = zip(made.parents, there.parents, strict=True)
        return replace(there, oid=commit, parents=made.parents) == made and all(
            ours == theirs or self.differs_in_signature(ours, theirs) for ours, theirs in parents
        )

    def add(self, kind: str, oid: Oid, data: bytes, *, is_new: bool = False) -> Oid:
        """Add an object by its id, unless the pack or the repository has it already.

        One that `is_new` is not looked for in the repository; a second copy of it does no harm.
        """
        if oid in self._records or oid in self._present:
            return oid
        if not is_new and self._mirror.is_published(oid):
            self._present.add(oid)
            return oid
        self._records[oid] = pack_record(kind, data)
        return oid

    def patch_tree(self, root_tree: Oid | None, path: str, files: Files | None) -> Oid:
        """Replace one directory of a tree (None: remove it) and return the new root's id.

        Other entries stay as they are stored, with any name and mode; empty directories are removed.
        `root_tree` may be a tree of this pack; None is an empty repository.

        Raises: PackageRefusedError if a file is in the place of a directory.
        """
        return self.graft(root_tree, path, self.files(files) if files else None)

    def graft(self, root_tree: Oid | None, path: str, below: Oid | None) -> Oid:
        """Replace one directory of a tree by an existing tree; otherwise as `patch_tree`."""
        return self._patch(root_tree, path.split("/"), below) or self.tree(())

    def save(self, mirror: Mirror | None = None) -> Path | None:
        """Write the pack and its index into the mirror, both or neither.

        Returns: the pack, with all objects that the repository lacks; None if there is nothing to write.

        Raises: UnavailableError if it cannot be written.
        """
        directory = (mirror or self._mirror).attach_store()
        if not self._records:
            return None
        try:
            with effect("write pack"):
                pack = write_pack(directory / "objects", self._records)
        except OSError as error:
            hint = "Check the disk and the permissions of the cache directory."
            raise UnavailableError(f"Cannot write to {directory}: {error.strerror}", hint=hint) from error
        self._present.update(self._records)
        self._records.clear()
        self._bases.clear()
        return pack

    def _patch(self, tree: Oid | None, segments: list[str], below: Oid | None) -> Oid | None:
        name = segments[0].encode()
        before = self._sorted(tree)
        old = before.find(name)
        if old is not None and not old.is_tree:
            if below is None:
                return tree
            raise PackageRefusedError(segments[0], "a file stands where the package would be")
        child = below
        if segments[1:]:
            child = self._patch(Oid(old.oid.hex()) if old else None, segments[1:], below)
        entry = None if child is None else RawEntry(old.mode if old else b"40000", name, bytes.fromhex(child))
        after, splice = before.replaced(name, entry)
        return self._add_patched(tree, before, after, splice) if after.keys else None

    def _add_patched(
        self, base: Oid | None, before: SortedTree, after: SortedTree, splice: Splice | None
    ) -> Oid:
        """Add a tree that differs from another in one place: large ones as a delta of that."""
        data = after.data
        oid = object_id("tree", data)
        if oid == base:
            return oid
        self._keep(oid, after)
        if oid in self._records or oid in self._present:
            return oid
        if base is None or splice is None or len(data) < _SMALL_TREE or not self._is_base(base, before):
            return self.add("tree", oid, data, is_new=True)
        size = len(data) - len(splice.fresh) + splice.end - splice.start
        self._records[oid] = _record(_DELTA, delta(size, splice), bytes.fromhex(base))
        self._bases[oid] = self._bases.get(base, 0) + 1
        return oid

    def _is_base(self, base: Oid, before: SortedTree) -> bool:
        """Tell whether the pack has a tree for deltas; one that is changed a second time is put into it."""
        if base in self._records:
            return self._bases.get(base, 0) < _LONGEST_CHAIN
        if base not in self._bases:
            self._bases[base] = 0
            return False
        data = before.data
        if object_id("tree", data) != base:  # a tree that is stored in another order than Git's
            return False
        self._records[base] = pack_record("tree", data)
        return True

    def _sorted(self, tree: Oid | None) -> SortedTree:
        """Return the entries of a tree, from the few that are kept parsed."""
        if tree is None:
            return SortedTree.of(())
        entries = self._trees.get(tree)
        if entries is None:
            in_pack = tree in self._records
            raw = parse_tree(self._read(tree)) if in_pack else self._mirror.raw_entries(tree)
            entries = SortedTree.of(raw)
        self._keep(tree, entries)
        return entries

    def _keep(self, oid: Oid, tree: SortedTree) -> None:
        self._trees.pop(oid, None)
        self._trees[oid] = tree
        if len(self._trees) > _KEPT_TREES:  # dictionaries keep their order: the one used longest ago goes
            self._trees.pop(next(iter(self._trees)))

    def _read(self, oid: Oid) -> bytes:
        """Return the content of an object of the pack."""
        record = self._records[oid]
        kind = record[0] >> 4 & 7
        start = next(place for place, byte in enumerate(record) if not byte & 0x80) + 1
        if kind != _DELTA:
            return zlib.decompress(record[start:])
        base = Oid(record[start : start + 20].hex())
        return apply_delta(self._read(base), zlib.decompress(record[start + 20 :]))


_TYPES = {"commit": 1, "tree": 2, "blob": 3}
_DELTA = 7  # of a base that is named by its id
_OF_IDS = (_TYPES["tree"], _DELTA)
_SMALL_TREE = 1024
"""Bytes up to which a tree is stored whole."""
_LONGEST_CHAIN = 40
"""Deltas of deltas: git makes no longer chains than 50 either."""
_KEPT_TREES = 64
_LEVEL = 1  # fast: packs are sent once, and the server compresses them again
_SMALLEST_WINDOW = 10
_INDEX_MAGIC = b"\xfftOc\0\0\0\2"
_LARGE = 1 << 31


def pack_record(kind: str, data: bytes) -> bytes:
    """Return the record of an object in a pack: type, size in groups of seven bits, deflated content."""
    return _record(_TYPES[kind], data)


def _record(number: int, data: bytes, base: bytes = b"") -> bytes:
    size = len(data)
    byte = (number << 4) | (size & 0x0F)
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    # Small trees and deltas are ids for the most part, which do not deflate.
    is_stored = number in _OF_IDS and len(data) < _SMALL_TREE
    return bytes(header) + base + (_stored(data) if is_stored else _deflate(data))


def _stored(data: bytes) -> bytes:
    """Return data in the format of zlib, in one block that is not compressed.

    Source: RFC 1950, RFC 1951 section 3.2.4.
    """
    size = struct.pack("<HH", len(data), len(data) ^ 0xFFFF)
    return b"\x78\x01\x01" + size + data + struct.pack(">I", zlib.adler32(data))


def _deflate(data: bytes) -> bytes:
    # The usual window of 32 KiB, and tables to match, take ten times as long to set up as to fill.
    window = min(max(len(data).bit_length(), _SMALLEST_WINDOW), zlib.MAX_WBITS)
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, window, window - 7)
    return deflater.compress(data) + deflater.flush()


def pack_bytes(records: Mapping[Oid, bytes]) -> tuple[bytes, bytes]:
    """Return the pack of these records and its index. Deterministic in the order of `records`."""
    body = b"".join((b"PACK", struct.pack(">II", 2, len(records)), *records.values()))
    checksum = sha1(body).digest()
    return body + checksum, _index_bytes(records, checksum)


def write_pack(directory: Path, records: Mapping[Oid, bytes]) -> Path:
    """Write pack and index into a repository's object directory; readers see both or neither.

    Returns: the pack.

    Raises: OSError; then readers see neither.
    """
    packs = directory / "pack"
    pack, index = pack_bytes(records)
    name = sha1(b"".join(map(str.encode, sorted(records)))).hexdigest()
    # Git looks for indexes: the pack must be complete before its index appears.
    path = packs / f"pack-{name}.pack"
    _write_atomically(path, pack)
    _write_atomically(path.with_suffix(".idx"), index)
    return path


def _write_atomically(path: Path, data: bytes) -> None:
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
    """Return the index: fan-out table, sorted ids, checksums of the records and their offsets."""
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
    return body + sha1(body).digest()
