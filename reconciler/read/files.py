"""List files below a path of the control repository; read a directory on disk whole."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from msgspec import Struct

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import ConfigurationError, Location, UsageError
from reconciler.base.text import plural
from reconciler.functions.field_checks import check_kptfiles
from reconciler.git.repository import Mirror
from reconciler.git.trees import UnsafeEntry
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Mode, TreeEntry
from reconciler.policy import Limits

REGULAR = frozenset({Mode.REGULAR, Mode.EXECUTABLE})

LEFT_OUT: Final = "a bug of the reconciler broke the reading of it"


class FileEntry(NamedTuple):
    """A file: its path from the repository's root, its blob, and the directory of its package, if any."""

    path: str
    oid: Oid
    package: str | None = None


class UnreadPath(NamedTuple):
    """A path that was not read, and why: its content is unknown, not absent."""

    path: str
    why: str


class Walk(Struct, frozen=True):
    """Lists the files with some suffixes, outside hidden and skipped directories."""

    suffixes: tuple[str, ...]
    skipped: frozenset[str] = frozenset()
    depth: int = 50

    def below(self, objects: Mirror, tree: Oid, path: str) -> Iterator[FileEntry | UnreadPath]:
        """Yield the files below the directory `path` with this tree. Links are never followed."""
        yield from self._below(objects, tree, path, None)

    def _below(
        self, objects: Mirror, tree: Oid, path: str, package: str | None
    ) -> Iterator[FileEntry | UnreadPath]:
        # Hidden files and directories, as .github, are never inputs.
        entries = [e for e in objects.checked_entries(tree) if not e.name.startswith(".")]
        kptfiles = (e for e in entries if isinstance(e, TreeEntry) and e.name == KPTFILE)
        if package is None and any(kptfile.mode in REGULAR for kptfile in kptfiles):
            package = path
        for entry in entries:
            full = f"{path}/{entry.name}" if path else entry.name
            if isinstance(entry, UnsafeEntry):
                yield UnreadPath(full, entry.reason)
            elif entry.mode == Mode.SYMLINK:
                yield UnreadPath(full, "it is a symbolic link")
            elif entry.mode in REGULAR and entry.name.endswith(self.suffixes):
                yield FileEntry(full, entry.oid, package)
            elif entry.mode == Mode.TREE and full not in self.skipped:
                if full.count("/") >= self.depth:
                    yield UnreadPath(full, f"it is deeper than {plural(self.depth, 'directory')}")
                else:
                    yield from self._below(objects, entry.oid, full, package)


def fetch_files(
    objects: Mirror, commit: Oid | None, directory: str, suffixes: tuple[str, ...] = (".json",)
) -> list[FileEntry]:
    """Return the files below a directory of a commit, fetched; unread paths are skipped."""
    return fetch_paths(objects, commit, directory, Walk(suffixes))[0]


def fetch_paths(
    objects: Mirror, commit: Oid | None, directory: str, walk: Walk
) -> tuple[list[FileEntry], list[UnreadPath]]:
    """Return the files below a directory of a commit, fetched, and the paths that were not read."""
    tree = objects.subtree(commit, directory) if commit else None
    walked = list(walk.below(objects, tree, directory)) if tree else []
    files = [file for file in walked if isinstance(file, FileEntry)]
    objects.ensure(file.oid for file in files)
    return files, [path for path in walked if isinstance(path, UnreadPath)]


def is_below(path: str, directory: str) -> bool:
    """Tell whether `path` is `directory` or inside it; "" is the root."""
    return not directory or path == directory or path.startswith(f"{directory}/")


def read_directory(root: Path, limits: Limits = Limits()) -> dict[str, File]:  # noqa: B008 - a frozen value
    """Return the files below `root` with their modes; `.git` is left out.

    Symbolic links that stay within the package are kept as links and never followed.

    Raises:
        UsageError: `root` is not a directory.
        ConfigurationError: A link leads out of the package, a file is not regular, or a limit is exceeded.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory", hint="Name the directory of a package.")
    files: dict[str, File] = {}
    size = 0
    for path, entry in _entries(root, "", limits):
        if len(files) >= limits.package_files:
            raise _refused(path, f"the package has more than {plural(limits.package_files, 'file')}")
        files[path] = _read(path, entry, limits)
        size += len(files[path].data)
        if size > limits.package_bytes:
            raise _refused(path, f"the package has more than {plural(limits.package_bytes, 'byte')}")
    return files


def read_package(root: Path, *, needs_kptfile: bool = True) -> dict[str, File]:
    """Return the files of a package, as `read_directory`, once its Kptfiles can be read.

    An upstream needs no Kptfile: kpt gets and updates any directory.

    Raises:
        UsageError: `root` is not a directory.
        ConfigurationError: It has no Kptfile, one of its Kptfiles is none, or see `read_directory`.

    Source: kpt pkg/lib/kptops, pkg.ReadKptfile: the same errors, with file and line.
    """
    files = read_directory(root)
    kptfiles = sorted(path for path in files if path.rpartition("/")[2] == KPTFILE)
    if needs_kptfile and KPTFILE not in kptfiles:
        below = ", ".join(str(root / path.removesuffix(f"/{KPTFILE}")) for path in kptfiles[:3])
        hint = f"Name the directory of a package{f', as {below}' if below else ': one with a Kptfile'}."
        raise ConfigurationError(f"No Kptfile found at {root.absolute()}", hint=hint)
    if faults := check_kptfiles(files):
        first, *others = (
            fault._replace(location=fault.location._replace(path=str(root / fault.location.path)))
            for fault in faults
        )
        more = "".join(f"; {fault.location}: {fault.message}" for fault in others)
        raise ConfigurationError(f"{first.message}{more}", location=first.location, hint=first.hint)
    return files


def _entries(directory: Path, prefix: str, limits: Limits) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > limits.path_depth:
        raise _refused(prefix, f"the package is deeper than {plural(limits.path_depth, 'directory')}")
    with os.scandir(directory) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        if entry.name == ".git":
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path), f"{path}/", limits)
        else:
            yield path, entry


def _read(path: str, entry: os.DirEntry[str], limits: Limits) -> File:
    if entry.is_symlink():
        target = os.readlink(entry.path)  # noqa: PTH115 - as it is written, not normalised
        if not stays_inside(path, target):
            raise _refused(path, f"the link leads out of the package, to {target}")
        return File.of(os.fsencode(target), Mode.SYMLINK)
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "it is neither a file nor a directory nor a link")
    if status.st_size > limits.package_file_bytes:
        raise _refused(
            path, f"it has {plural(status.st_size, 'byte')}; the limit is {limits.package_file_bytes}"
        )
    executable = bool(status.st_mode & stat.S_IXUSR)
    return File.of(Path(entry.path).read_bytes(), Mode.EXECUTABLE if executable else Mode.REGULAR)


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link at `path` with this target stays within its package."""
    if target.startswith("/") or not target:
        return False
    depth = len(PurePosixPath(path).parts) - 1
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True


def _refused(path: str, message: str) -> ConfigurationError:
    return ConfigurationError(message, location=Location(path))
