"""Open the cache directory: make it, or refuse one that others may write.

What is in it is trusted like the program (D15): results of functions are taken as they are.
So only this user may write it, which its owner and its permissions show. Whoever the machine belongs to,
root, may write everywhere anyway.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from reconciler.base.errors import RefusedError, UnavailableError

_OTHERS_WRITE: Final = 0o022
_ALL_WRITE: Final = 0o002
_OTHERS_ENTER: Final = 0o011
_ELSEWHERE: Final = "name another directory with --cache-dir or RECONCILER_CACHE_DIR"


def default_cache() -> Path:
    """Return the directory of mirrors in the user's cache directory (XDG)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "reconciler"


def open_cache(directory: Path) -> Path:
    """Return the absolute path of the cache directory, which this user alone may enter if it was not there.

    Raises: RefusedError if others may write it, or something in it; UnavailableError if this user may not.
    """
    path = directory.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        link, status = path.lstat(), path.stat()
    except OSError as error:
        hint = f"Correct the permissions of {path.parent}, or {_ELSEWHERE}."
        raise UnavailableError(f"Cannot create the cache {path}: {error.strerror}", hint=hint) from error
    if os.name == "posix":
        for file in (link, status):
            _check_owner(path, path, file)
        _check_mode(path, path, status)
    if not os.access(path, os.W_OK | os.X_OK):
        raise _unwritable(path)
    if os.name == "posix":
        _check_below(path, path, is_open=bool(status.st_mode & _OTHERS_ENTER))
    return path


def _check_below(root: Path, directory: Path, *, is_open: bool) -> None:
    """Check what is in a directory; directories that only this user may enter are not entered."""
    for entry, entry_status in _entries(directory):
        _check_owner(root, entry, entry_status)
        status = entry_status
        if stat.S_ISLNK(entry_status.st_mode):
            if not entry.exists():
                continue
            status = entry.stat()
            _check_owner(root, entry, status)
        is_directory = stat.S_ISDIR(status.st_mode)
        if is_directory or is_open:
            _check_mode(root, entry, status)
        if not is_directory or status is not entry_status:  # what a link leads to is not ours to tidy up
            continue
        if not os.access(entry, os.R_OK | os.W_OK | os.X_OK):
            raise _unwritable(entry)
        if status.st_mode & _OTHERS_ENTER:
            _check_below(root, entry, is_open=is_open)
            with suppress(OSError):
                entry.chmod(0o700)  # so that the next run need not enter it


def _entries(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another run removes what is old
                    yield Path(entry.path), entry.stat(follow_symlinks=False)
    except PermissionError as error:
        raise _unwritable(directory) from error


def _check_owner(root: Path, path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        message = f"{_name(root, path)} belongs to another user ({status.st_uid}), who may write it"
        hint = f"Delete it if it is yours: everything in it is fetched again. Or {_ELSEWHERE}."
        raise RefusedError(message, hint=hint)


def _check_mode(root: Path, path: Path, status: os.stat_result) -> None:
    if status.st_mode & _OTHERS_WRITE:
        who = "everybody" if status.st_mode & _ALL_WRITE else "its group"
        hint = (
            f"If nobody else has written there, run `chmod -R go-w {root}`. Otherwise delete it: everything "
            f"in it is fetched again. Or {_ELSEWHERE}."
        )
        raise RefusedError(f"{_name(root, path)} may be written by {who}", hint=hint)


def _name(root: Path, path: Path) -> str:
    return f"The cache {path}" if path == root else f"{path} in the cache"


def _unwritable(path: Path) -> UnavailableError:
    message = f"The cache {path} cannot be written"
    return UnavailableError(message, hint=f"Correct its owner and permissions, or {_ELSEWHERE}.")
