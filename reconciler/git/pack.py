"""New objects of a run: collected for one pack per repository, and written in pack format version 2."""

import os
import struct
import tempfile
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

from msgspec.structs import replace

from reconciler.base.effects import effect
from reconciler.base.errors import UnavailableError
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.git.signing import CommitSigning
from reconciler.git.trees import RawEntry, parse_tree
from reconciler.names.filled import identities
from reconciler.names.ids import Oid
from reconciler.names.objects import (
    File,
    Files,
    NamesError,
    Signature,
    case_fold_key,
    check_names,
    commit_bytes,
    directory_objects,
    object_id,
    sha1,
)


class Pack:
    """Collects new objects for one repository, without those that it has already.

    Deterministic: ids depend on content only. Objects stay in memory, compressed, until `save`. Commits are
    signed as the mirror's are, or by another `signing`.
    """

    def __init__(self, mirror: Mirror, signing: CommitSigning | None = None) -> None:
        self._mirror = mirror
        self._signing = signing or mirror.signing
        self._records: dict[Oid, bytes] = {}
        self._present: set[Oid] = set()
        self._commits: dict[Oid, Oid] = {}
        self._signed: dict[Oid, Oid] = {}
        self._unsigned: dict[Oid, CommitData] = {}
        self._trees: dict[Oid, _Entries] = {}

    def __len__(self) -> int:
        return len(self._records)

    def files(self, files: Files, before: Iterable[str] = (), *, is_new: bool = False) -> Oid:
        """Add the blobs and trees of files; return the root tree's id.

        Args:
            files: They are checked as one tree.
            before: Paths of which two that clash stay, see `check_names`.
            is_new: The repository is not asked whether it has them; a second copy does no harm.

        Raises: NamesError if no tree may hold them.
        """
        named = identities(files)
        root, trees = directory_objects(named, before)
        for path, file in named.items():
            if self._lacks(file.oid, is_new=is_new):
                self._records[file.oid] = pack_record("blob", files[path].data)
        # A tree with a blob that the repository lacks is new, too: looking for what is missing is slow.
        is_new = any(file.oid in self._records for file in named.values())
        for oid, data in trees.items():
            self._add("tree", oid, data, is_new=is_new and oid == root)
        return root

    def commit(
        self, tree: Oid, parents: Iterable[Oid], author: Signature, committer: Signature, message: str
    ) -> Oid:
        """Add a commit, signed off and signed as configured; return its id.

        A parent that this pack made may be given by its unsigned id: plans are pure and hold no key.

        Raises: UnavailableError if it must be signed and there is no usable key.
        """
        signing = self._signing
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
        return self._add("commit", oid, data, is_new=True)

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

    def _add(self, kind: str, oid: Oid, data: bytes, *, is_new: bool = False) -> Oid:
        """Add an object by its id, unless the pack or the repository has it already."""
        if self._lacks(oid, is_new=is_new):
            self._records[oid] = pack_record(kind, data)
        return oid

    def _lacks(self, oid: Oid, *, is_new: bool) -> bool:
        if oid not in self._records and not is_new and self._mirror.is_published(oid):
            self._present.add(oid)
        return oid not in self._records and oid not in self._present

    def patch_tree(self, root_tree: Oid | None, path: str, files: Files | None) -> Oid:
        """Replace one directory of a tree (None: remove it) and return the new root's id.

        Other entries stay as they are stored, with any name and mode; empty directories are removed.
        `root_tree` may be a tree of this pack; None is an empty repository.

        Raises: NamesError if a file is in the place of a directory, or a new directory clashes with another.
        """
        return self.graft(root_tree, {path: self.files(files) if files else None})

    def graft(self, root_tree: Oid | None, below: Mapping[str, Oid | None]) -> Oid:
        """Replace directories of a tree, or all of it (""), by existing trees; otherwise as `patch_tree`."""
        return below.get("") or self._graft(root_tree, below) or self.files({})

    def replace_file(self, tree: Oid, path: str, file: File) -> Oid:
        """Return a tree in which a file that it has is another one; all else stays as it is stored."""
        name, _, rest = path.partition("/")
        entries = []
        for entry in self._raw_entries(tree):
            if entry.name == name.encode():
                below = Oid(entry.oid.hex())
                new = self.replace_file(below, rest, file) if rest else self._add("blob", file.oid, file.data)
                entry = entry._replace(oid=bytes.fromhex(new))  # noqa: PLW2901 - of the same name
            entries.append(entry)
        data = b"".join(_ROW % entry for entry in entries)
        return self._add("tree", object_id("tree", data), data, is_new=True)

    def save(self) -> None:
        """Write the pack and its index into the mirror, both or neither.

        Raises: UnavailableError if it cannot be written.
        """
        directory = self._mirror.attach_store()
        if not self._records:
            return
        try:
            with effect("write pack"):
                self._mirror.unpushed = write_pack(directory / "objects", self._records)
        except OSError as error:
            hint = "Check the disk and the permissions of the cache directory."
            raise UnavailableError(f"Cannot write to {directory}: {error.strerror}", hint=hint) from error
        self._present.update(self._records)
        self._records.clear()

    def _graft(self, tree: Oid | None, below: Mapping[str, Oid | None], inside: str = "") -> Oid | None:
        deeper: dict[str, dict[str, Oid | None]] = {}
        for path, oid in below.items():
            name, _, rest = path.partition("/")
            deeper.setdefault(name, {})[rest] = oid
        entries = self._entries(tree).copy() if tree else _Entries(())
        present = {name: entries.take(name.encode()) for name in deeper}
        for name, rests in deeper.items():
            old = min(present[name], key=_sort_key, default=None)
            if old is None and any(rests.values()):
                # Some file system may take the new name for that of an entry beside it.
                check_names([inside + name_in_tree for name_in_tree in (name, *entries.twins(name))])
            if old is not None and not old.is_tree:
                if any(rests.values()):
                    raise NamesError(f"{inside}{name}: a file stands where the package would be")
                for entry in present[name]:
                    entries.put(entry)
                continue
            child = rests.pop("") if "" in rests else Oid(old.oid.hex()) if old else None
            if rests:
                child = self._graft(child, rests, f"{inside}{name}/")
            if child:
                # A tree has modes in octal without a leading zero, so a directory's has five digits.
                entries.put(RawEntry(old.mode if old else b"40000", name.encode(), bytes.fromhex(child)))
        # Git has no empty directories: one without entries is no entry of its parent either.
        if not entries.rows:
            return None
        data = b"".join(entries.rows)
        oid = object_id("tree", data)
        self._keep(oid, entries)
        return oid if oid == tree else self._add("tree", oid, data, is_new=True)

    def _entries(self, tree: Oid) -> "_Entries":
        return self._trees.get(tree) or self._keep(tree, _Entries(self._raw_entries(tree)))

    def _keep(self, tree: Oid, entries: "_Entries") -> "_Entries":
        """Keep the entries of a tree for the next graft on it; of many trees the oldest goes."""
        self._trees[tree] = entries
        if len(self._trees) > _OPEN_TREES:
            self._trees.pop(next(iter(self._trees)))
        return entries

    def _raw_entries(self, tree: Oid) -> list[RawEntry]:
        if tree not in self._records:
            return self._mirror.raw_entries(tree)
        record = self._records[tree]
        start = next(index for index, byte in enumerate(record) if not byte & 0x80) + 1
        return parse_tree(zlib.decompress(record[start:]))


class _Entries:
    """The entries of a tree in Git's order, as they are stored.

    A repository gets many drafts, each on a tree with all of its packages: what is done for each of them to
    all entries is a copy, and no work of Python.
    """

    def __init__(self, entries: Iterable[RawEntry]) -> None:
        ordered = sorted(entries, key=_sort_key)
        self.keys = [*map(_sort_key, ordered)]
        self.rows = [_ROW % entry for entry in ordered]
        self.folded = [_fold(entry.name) for entry in ordered]

    def copy(self) -> "_Entries":
        """Return entries that may be changed."""
        new = _Entries(())
        new.keys, new.rows, new.folded = [*self.keys], [*self.rows], [*self.folded]
        return new

    def take(self, name: bytes) -> list[RawEntry]:
        """Remove the entries with a name, and return them."""
        taken = []
        for key in (name, name + b"/"):
            start, end = bisect_left(self.keys, key), bisect_right(self.keys, key)
            taken += parse_tree(b"".join(self.rows[start:end]))
            del self.keys[start:end], self.rows[start:end], self.folded[start:end]
        return taken

    def put(self, entry: RawEntry) -> None:
        """Add an entry."""
        key = _sort_key(entry)
        at = bisect_right(self.keys, key)
        self.keys.insert(at, key)
        self.rows.insert(at, _ROW % entry)
        self.folded.insert(at, _fold(entry.name))

    def twins(self, name: str) -> Iterator[str]:
        """Yield the names that some file system takes for this one."""
        folded = case_fold_key(name)
        if folded in self.folded:
            for row, other in zip(self.rows, self.folded, strict=True):
                if other == folded:
                    yield parse_tree(row)[0].name.decode(errors="replace")


def _sort_key(entry: RawEntry) -> bytes:
    # Git sorts directories as if their names ended with a slash.
    return entry.name + b"/" if entry.is_tree else entry.name


def _fold(name: bytes) -> str:
    return case_fold_key(name.decode(errors="replace"))


_ROW = b"%b %b\0%b"
"""An entry of a tree: mode, name and id."""
_OPEN_TREES = 64
_TYPES = {"commit": 1, "tree": 2, "blob": 3}
_LEVEL = 1  # fast: packs are sent once, and the server compresses them again
_INDEX_MAGIC = b"\xfftOc\0\0\0\2"
# An offset of 31 bits at most is in the table itself; others are in a second table of eight bytes each.
_LARGE = 1 << 31


def pack_record(kind: str, data: bytes) -> bytes:
    """Return the record of an object in a pack: type, size in groups of seven bits, deflated content."""
    size = len(data)
    # The first byte has the type and the lowest four bits of the size; the others have seven bits each, low
    # to high.
    byte = (_TYPES[kind] << 4) | (size & 0x0F)
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    return bytes(header) + zlib.compress(data, _LEVEL)


def pack_bytes(records: Mapping[Oid, bytes]) -> bytes:
    """Return a pack with these records."""
    pack = b"".join((b"PACK", struct.pack(">II", 2, len(records)), *records.values()))
    return pack + sha1(pack).digest()


def write_pack(directory: Path, records: Mapping[Oid, bytes]) -> tuple[Path, bytes]:
    """Write pack and index into a repository's object directory; readers see both or neither.

    Returns: the pack, and where it is.

    Raises: OSError; then readers see neither.
    """
    pack = pack_bytes(records)
    # Git takes any name. This one is the same for the same objects, so a repeated run adds no second pack.
    name = sha1(b"".join(map(str.encode, sorted(records)))).hexdigest()
    # Git looks for indexes: the pack must be complete before its index appears.
    path = directory / "pack" / f"pack-{name}.pack"
    _write_atomically(path, pack)
    _write_atomically(path.with_suffix(".idx"), index_bytes(records, pack[-20:]))
    return path, pack


def _write_atomically(path: Path, data: bytes) -> None:
    # `git gc` removes old files of this prefix, so a killed process leaves nothing behind for long.
    handle, temporary = tempfile.mkstemp(prefix="tmp_pack_", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # As git makes packs: nobody writes a pack that others may have mapped.
        Path(temporary).chmod(0o444)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def index_bytes(records: Mapping[Oid, bytes], checksum: bytes) -> bytes:
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
