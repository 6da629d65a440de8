"""A package's files out of the object database, each name, mode, size and link judged on the way."""

from collections.abc import Iterator
from typing import Protocol

from reconciler.file_names import folded
from reconciler.git.trees import Refusal, refuse_link
from reconciler.ids import Oid
from reconciler.objects import Entry, File, Files, Mode
from reconciler.policy import Limits


class PackageRefusedError(Exception):
    """A package that must not be read: `path` names the file in it, `why` the reason, in words."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}" if path else why)
        self.path = path
        self.why = why


class Objects(Protocol):
    """What reading a package needs of a repository."""

    def judged(self, tree: Oid) -> tuple[Entry | Refusal, ...]:
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


def list_files(objects: Objects, tree: Oid, limits: Limits) -> Iterator[tuple[str, Entry]]:
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


def _safe_entries(objects: Objects, prefix: str, tree: Oid) -> Iterator[Entry]:
    seen: dict[str, str] = {}
    for entry in objects.judged(tree):
        if isinstance(entry, Refusal):
            raise PackageRefusedError(prefix + entry.name, entry.why)
        if other := seen.get(key := folded(entry.name)):
            raise PackageRefusedError(prefix + entry.name, f"on some file systems it is the same as {other}")
        seen[key] = entry.name
        yield entry


def _read_file(objects: Objects, path: str, entry: Entry, limits: Limits) -> File:
    try:
        data = objects.blob(entry.oid, limits.package_file_bytes)
    except PackageRefusedError as error:
        raise PackageRefusedError(path, error.why) from error
    if entry.mode == Mode.SYMLINK and (why := refuse_link(path, data)):
        raise PackageRefusedError(path, why)
    return File(data, Mode(entry.mode), entry.oid)
