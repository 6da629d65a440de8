"""Tree objects: lossless parsing, checks of names, modes and links, and the files of a package."""

import re
from collections.abc import Iterator
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files, Mode, TreeEntry, file_name_error

if TYPE_CHECKING:
    from reconciler.policy import Limits

_ENTRY = regex(rb"([^ ]*) ([^\0]*)\0(.{20})|.+", re.DOTALL)
"""An entry of a tree: mode, name and id; all are empty for a malformed rest."""
_GITLINK = 0o160000
_MODES = {
    0o040000: Mode.TREE,
    0o100644: Mode.REGULAR,
    0o100664: Mode.REGULAR,  # written by old versions of Git
    0o100755: Mode.EXECUTABLE,
    0o120000: Mode.SYMLINK,
}


class RawEntry(NamedTuple):
    """An entry of a tree exactly as it is stored, so that a rewritten tree keeps its other entries."""

    mode: bytes
    name: bytes
    oid: bytes

    @property
    def is_tree(self) -> bool:
        """Whether the entry is a directory; some tools write its mode with a leading zero."""
        return self.mode.lstrip(b"0") == b"40000"


class UnsafeEntry(NamedTuple):
    """An entry of a tree that must not be used, and the reason."""

    name: str
    reason: str


class PackageRefusedError(Exception):
    """A package that must not be read: the `path` of the file in it, and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class ObjectReader(Protocol):
    """The methods of a repository that reading a package needs."""

    def checked_entries(self, tree: Oid) -> tuple[TreeEntry | UnsafeEntry, ...]:
        """Return the entries of a tree, unsafe ones with their reason."""
        ...

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        """Return a blob's bytes; check its size before reading it."""
        ...

    def ensure(self, oids: set[Oid]) -> None:
        """Fetch the missing blobs in one batch."""
        ...


def parse_tree(data: bytes) -> list[RawEntry]:
    """Parse a tree object.

    Raises: ValueError if it is malformed.
    """
    entries = _ENTRY.findall(data)
    if entries and not entries[-1][-1]:
        raise ValueError("truncated tree")
    return [*map(RawEntry._make, entries)]


def check_entry(raw: RawEntry) -> TreeEntry | UnsafeEntry:
    """Return an entry if its name and mode are safe, else the reason why it is not. Total."""
    mode, name, oid = raw
    checked = _check(mode, name)
    return checked if isinstance(checked, UnsafeEntry) else TreeEntry(*checked, Oid(oid.hex()))


@lru_cache(maxsize=1 << 12)
def _check(raw_mode: bytes, raw_name: bytes) -> tuple[str, Mode] | UnsafeEntry:
    """Return name and mode of an entry. Kept, because packages have the same few files."""
    try:
        name = raw_name.decode()
        mode = int(raw_mode, 8)
    except ValueError:
        return UnsafeEntry(repr(raw_name)[2:-1], "its name is not UTF-8 or its mode is not a number")
    # A gitlink names a commit of another repository, and no objects of this one.
    if mode == _GITLINK:
        return UnsafeEntry(name, "it is a submodule")
    if mode not in _MODES:
        return UnsafeEntry(name, f"its mode {mode:o} is unknown")
    if reason := file_name_error(name, is_directory=_MODES[mode] == Mode.TREE):
        return UnsafeEntry(name, reason)
    return name, _MODES[mode]


def link_error(path: str, target: bytes) -> str:
    """Return why the target of a link at `path` of a package is unsafe, "" if it is inside the package.

    `..` is accepted only at the start of a target: after a name, which may be another link, it may lead
    out of the package.
    """
    try:
        segments = target.decode().split("/")
    except UnicodeDecodeError:
        return "the target of the link is not UTF-8"
    ups = next((i for i, segment in enumerate(segments) if segment != ".."), len(segments))
    if ups > path.count("/"):
        return "the target of the link is outside the package"
    errors = (file_name_error(segment) for segment in segments[ups:] if segment != ".")
    error = next(filter(None, errors), "")
    return f"in the target of the link, {error}" if error else ""


class FileCache:
    """The files that were read last: packages of a fleet have most of theirs in common.

    It holds at most twice `most_bytes`, and at least the files of the last `most_bytes` that were asked for.
    """

    def __init__(self, most_bytes: int = 4 << 20) -> None:
        self._most_bytes = most_bytes
        self._size = 0
        self._young: dict[tuple[Oid, int], File] = {}
        self._old: dict[tuple[Oid, int], File] = {}

    def find(self, entry: TreeEntry) -> File | None:
        """Return the file of a tree entry, None if it is not in the cache."""
        key = (entry.oid, entry.mode)
        if key not in self._young and key in self._old:
            self.add(self._old[key])
        return self._young.get(key)

    def add(self, file: File) -> None:
        """Keep a file; those that were asked for longest ago leave."""
        if self._size + len(file.data) > self._most_bytes:
            self._young, self._old, self._size = {}, self._young, 0
        self._young[file.oid, file.mode] = file
        self._size += len(file.data)


def read_files(
    objects: ObjectReader,
    tree: Oid,
    limits: "Limits",
    other: Files = MappingProxyType({}),
    cache: FileCache | None = None,
) -> Files:
    """Return the files of a package; those in `cache`, or equal in `other`, are not read again.

    Names that clash are read: the main branch may have them, and no tree is made of them (`check_names`).

    Raises: PackageRefusedError for a submodule, an unsafe name, a link out of the package, or an exceeded
    limit; a package is read whole or not at all.
    """
    listed = list(list_files(objects, tree, limits))
    same = {path: other[path] for path, entry in listed if _is_same(other.get(path), entry)}
    objects.ensure({entry.oid for path, entry in listed if path not in same})
    files: dict[str, File] = {}
    size = 0
    for path, entry in listed:
        files[path] = same.get(path) or _read_file(objects, path, entry, limits, cache)
        size += len(files[path].data)
        if size > limits.package_bytes:
            raise PackageRefusedError(
                "", f"it has more than {plural(limits.package_bytes, 'byte')} (limits.packageBytes)"
            )
    return dict(sorted(files.items()))


def list_files(objects: ObjectReader, tree: Oid, limits: "Limits") -> Iterator[tuple[str, TreeEntry]]:
    """Yield path and entry of each file below `tree`; raises as `read_files`, without reading content."""
    count = 0
    pending = [("", tree)]
    while pending:
        prefix, oid = pending.pop()
        if prefix.count("/") >= limits.path_depth:
            raise PackageRefusedError(prefix, f"it is deeper than {plural(limits.path_depth, 'directory')}")
        for entry in _safe_entries(objects, prefix, oid):
            if entry.mode == Mode.TREE:
                pending.append((f"{prefix}{entry.name}/", entry.oid))
                continue
            count += 1
            if count > limits.package_files:
                raise PackageRefusedError("", f"it has more than {plural(limits.package_files, 'file')}")
            yield prefix + entry.name, entry


def _safe_entries(objects: ObjectReader, prefix: str, tree: Oid) -> Iterator[TreeEntry]:
    seen: set[tuple[str, bool]] = set()
    for entry in objects.checked_entries(tree):
        if isinstance(entry, UnsafeEntry):
            raise PackageRefusedError(prefix + entry.name, entry.reason)
        if (key := (entry.name, entry.mode == Mode.TREE)) in seen:
            raise PackageRefusedError(prefix + entry.name, "it is there twice")
        seen.add(key)
        yield entry


def _is_same(file: File | None, entry: TreeEntry) -> bool:
    return file is not None and file.oid == entry.oid and file.mode == entry.mode


def _read_file(
    objects: ObjectReader, path: str, entry: TreeEntry, limits: "Limits", cache: FileCache | None
) -> File:
    file = cache.find(entry) if cache is not None else None
    if file is None or len(file.data) > limits.package_file_bytes:
        try:
            data = objects.blob(entry.oid, limits.package_file_bytes)
        except PackageRefusedError as error:
            raise PackageRefusedError(path, error.reason) from error
        file = File(data, Mode(entry.mode), entry.oid)
        if cache is not None:
            cache.add(file)
    if entry.mode == Mode.SYMLINK and (reason := link_error(path, file.data)):
        raise PackageRefusedError(path, reason)
    return file
