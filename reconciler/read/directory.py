"""A package as a directory: read whole, and nothing outside of it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from reconciler.errors import ConfigurationError, Location, UsageError
from reconciler.objects import File, Mode
from reconciler.policy import Limits

_GIT = ".git"


def read_directory(root: Path, limits: Limits = Limits()) -> dict[str, File]:  # noqa: B008 - a frozen value
    """Return the files below `root` with their modes; `.git` is left out.

    Symbolic links that stay within the package are kept as links and never followed.

    Raises:
        UsageError: `root` is no directory.
        ConfigurationError: A link leads out of the package, a file is no regular file, or a
            limit is passed.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is no directory")
    files: dict[str, File] = {}
    size = 0
    for path, entry in _entries(root, "", limits):
        if len(files) >= limits.package_files:
            raise _refused(path, f"the package has more than {limits.package_files} files")
        files[path] = _read(path, entry, limits)
        size += len(files[path].data)
        if size > limits.package_bytes:
            raise _refused(path, f"the package has more than {limits.package_bytes} bytes")
    return files


def _entries(directory: Path, prefix: str, limits: Limits) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > limits.path_depth:
        raise _refused(prefix, f"the package is deeper than {limits.path_depth} directories")
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        if entry.name == _GIT:
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
        raise _refused(path, f"it has {status.st_size} bytes; the limit is {limits.package_file_bytes}")
    executable = bool(status.st_mode & stat.S_IXUSR)
    return File.of(Path(entry.path).read_bytes(), Mode.EXECUTABLE if executable else Mode.REGULAR)


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link at `path` with this target leads to a place within its package."""
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
