"""Tree objects as bytes: parsing them without loss, and judging the names and modes in them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from reconciler.ids import Oid
from reconciler.objects import File, Files, Mode, TreeEntry, case_fold_key, file_name_error
from reconciler.policy import Limits

_GITLINK = 0o160000
_KNOWN_MODES = {
    0o040000: Mode.TREE,
    0o100644: Mode.REGULAR,
    0o100664: Mode.REGULAR,
    0o100755: Mode.EXECUTABLE,
    0o120000: Mode.SYMLINK,
}


class RawEntry(NamedTuple):
    """One entry of a tree exactly as it is stored, so that rewriting its siblings never changes it."""

    mode: bytes
    name: bytes
    oid: bytes

    @property
    def is_tree(self) -> bool:
        """Whether the entry is a directory, zero-padded mode or not."""
        return self.mode.lstrip(b"0") == b"40000"


class Refusal(NamedTuple):
    """An entry, or a path, that nothing may be read from or written to, and why."""

    name: str
    why: str


def parse_tree(data: bytes) -> list[RawEntry]:
    """Return the entries of a tree object's bytes, in their order.

    Raises: ValueError if the bytes are not a tree.
    """
    entries = []
    start, end = 0, len(data)
    while start < end:
        space = data.index(b" ", start)
        nul = data.index(b"\0", space)
        if nul + 21 > end:
            raise ValueError("truncated tree")
        entries.append(RawEntry(data[start:space], data[space + 1 : nul], data[nul + 1 : nul + 21]))
        start = nul + 21
    return entries


def format_tree(entries: Iterable[RawEntry]) -> bytes:
    """Return a tree object's bytes, its entries in Git's order (a directory sorts with a final slash)."""
    ordered = sorted(entries, key=lambda e: e.name + b"/" if e.is_tree else e.name)
    return b"".join(b"%b %b\0%b" % entry for entry in ordered)


def judge_entry(raw: RawEntry) -> TreeEntry | Refusal:
    """Return the entry if its name and mode are safe to use, else why it is refused. Total."""
    try:
        name = raw.name.decode()
        mode = int(raw.mode, 8)
    except ValueError:
        return Refusal(repr(raw.name)[2:-1], "its name is not UTF-8 or its mode is not a number")
    if mode == _GITLINK:
        return Refusal(name, "it is a submodule")
    if mode not in _KNOWN_MODES:
        return Refusal(name, f"its mode {mode:o} is unknown")
    if why := file_name_error(name):
        return Refusal(name, why)
    return TreeEntry(name, _KNOWN_MODES[mode], Oid(raw.oid.hex()))


def refuse_link(path: str, target: bytes) -> str:
    """Return why a symbolic link at `path` of a package cannot be kept, "" if its target stays inside.

    `..` is taken only at the start of a target: after a name it would leave from where another link leads.
    """
    try:
        segments = target.decode().split("/")
    except UnicodeDecodeError:
        return "the target of the link is not UTF-8"
    ups = next((i for i, segment in enumerate(segments) if segment != ".."), len(segments))
    if ups > path.count("/"):
        return "the target of the link is outside the package"
    why = next(
        (why for segment in segments[ups:] if segment != "." and (why := file_name_error(segment))), ""
    )
    return f"in the target of the link, {why}" if why else ""


class PackageRefusedError(Exception):
    """A package that must not be read: `path` names the file in it, `why` the reason, in words."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}" if path else why)
        self.path = path
        self.why = why


class Objects(Protocol):
    """What reading a package needs of a repository."""

    def judged(self, tree: Oid) -> tuple[TreeEntry | Refusal, ...]:
        """Return every entry of a tree, the refused ones as refusals."""
        ...

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        """Return a blob's bytes, looking at its size first."""
        ...

    def ensure(self, oids: set[Oid]) -> None:
        """Fetch the blobs that are not here yet, in one batch."""
        ...


def read_files(objects: Objects, tree: Oid, limits: Limits) -> Files:
    """Return the files of a package.

    Raises: PackageRefusedError for a submodule, a hostile or colliding name, a link out of the
    package, and for anything beyond the limits; nothing of such a package is used.
    """
    listed = list(list_files(objects, tree, limits))
    objects.ensure({entry.oid for _, entry in listed})
    files: dict[str, File] = {}
    size = 0
    for path, entry in listed:
        files[path] = _read_file(objects, path, entry, limits)
        size += len(files[path].data)
        if size > limits.package_bytes:
            raise PackageRefusedError(
                "", f"it has more than {limits.package_bytes} bytes (limits.packageBytes)"
            )
    return dict(sorted(files.items()))


def list_files(objects: Objects, tree: Oid, limits: Limits) -> Iterator[tuple[str, TreeEntry]]:
    """Yield path and entry of every file below `tree`; the same refusals as `read_files`, less content."""
    count = 0
    pending = [("", tree)]
    while pending:
        prefix, oid = pending.pop()
        if prefix.count("/") >= limits.path_depth:
            raise PackageRefusedError(prefix, f"it is deeper than {limits.path_depth} directories")
        for entry in _safe_entries(objects, prefix, oid):
            if entry.mode == Mode.TREE:
                pending.append((f"{prefix}{entry.name}/", entry.oid))
                continue
            count += 1
            if count > limits.package_files:
                raise PackageRefusedError("", f"it has more than {limits.package_files} files")
            yield prefix + entry.name, entry


def _safe_entries(objects: Objects, prefix: str, tree: Oid) -> Iterator[TreeEntry]:
    seen: dict[str, str] = {}
    for entry in objects.judged(tree):
        if isinstance(entry, Refusal):
            raise PackageRefusedError(prefix + entry.name, entry.why)
        if other := seen.get(key := case_fold_key(entry.name)):
            raise PackageRefusedError(prefix + entry.name, f"on some file systems it is the same as {other}")
        seen[key] = entry.name
        yield entry


def _read_file(objects: Objects, path: str, entry: TreeEntry, limits: Limits) -> File:
    try:
        data = objects.blob(entry.oid, limits.package_file_bytes)
    except PackageRefusedError as error:
        raise PackageRefusedError(path, error.why) from error
    if entry.mode == Mode.SYMLINK and (why := refuse_link(path, data)):
        raise PackageRefusedError(path, why)
    return File(data, Mode(entry.mode), entry.oid)
