"""Look at a repository on this machine before libgit2 opens it.

libgit2 waits for a file without an end, and lets no other thread of this process run meanwhile. So whatever
may make it wait is found first, by a thread that can be left alone: files that are none, such as named pipes,
and file systems that do not answer. Formats that libgit2 does not read are named on the way.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from reconciler.base import effects
from reconciler.base.errors import ReconcilerError, UnavailableError
from reconciler.base.lazy import regex

DEFAULT_READ_S: Final = 300.0
"""`limits.readSeconds`, before the configuration is read."""
_CHECK_S: Final = 0.1
_FILES: Final = (
    "HEAD", "config", "config.worktree", "packed-refs", "shallow", "commondir", "gitdir", "index",
    "FETCH_HEAD", "ORIG_HEAD",
)  # fmt: skip
_DIRECTORIES: Final = ("refs", "objects", "info", "reftable")
_READ: Final = ("HEAD", "config", "packed-refs")
"""Files of which a byte is read: a dead file system may still answer what it has cached of the others."""
_RULES: Final = frozenset({".gitignore", ".gitattributes"})
"""Files of a working copy that are read wherever they are."""
_LONGEST: Final = 1 << 20
_MOST_STORES: Final = 16
_KINDS: Final = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_COMMENT: Final = regex(r"(?m)^\s*[#;].*$")
# An extension of the format changes what the files mean: a reader that does not know it must stop.
_EXTENSION: Final = r'(?is)\[\s*extensions\s*\][^\[]*?\b{}\s*=\s*"?{}\b'
_SHA256: Final = regex(_EXTENSION.format("objectformat", "sha256"))
_REFTABLE: Final = regex(_EXTENSION.format("refstorage", "reftable"))
SHA256_HINT: Final = (
    "Make one with SHA-1 names: `git init --bare --object-format=sha1 NEW`, then in the old one "
    "`git fast-export --all --signed-tags=strip | git --git-dir=NEW fast-import`."
)
_SIGNS: Final = regex(r"mismatched algorithms|repository's hash algorithm|\b[0-9a-f]{64}\b")
"""Signs of a SHA-256 repository in the messages of git about a server: its words, or a name of 64 digits."""


def sha256_error(name: str) -> UnavailableError:
    """Return the error of a repository that libgit2 and the formats of this program cannot read."""
    return UnavailableError(f"{name} uses SHA-256 object names, which are not supported", hint=SHA256_HINT)


def is_sha256(message: str) -> bool:
    """Tell whether git failed because the repository of a server uses SHA-256."""
    lines = (line for line in message.splitlines() if line.startswith(("fatal:", "error:")))
    return any(_SIGNS.search(line) for line in lines)


def check_repository(path: Path, seconds: float) -> None:
    """Check that a repository can be read: at `path`, its `.git`, or `path` with `.git` added.

    A path without a repository passes: opening it fails.

    Raises: UnavailableError if something in it is no file, it has a format that is not supported, or its file
    system does not answer within so many seconds; StoppedError after a request to shut down.
    """
    _within(seconds, path, lambda: _check_repository(path))


def check_around(path: Path, seconds: float) -> None:
    """Check the repository that contains `path`, if there is one.

    Raises: as `check_repository`.
    """
    _within(seconds, path, lambda: _check_around(path))


def find_odd_rules(root: Path, seconds: float) -> tuple[str, ...]:
    """Return the paths of `.gitignore` and `.gitattributes` in a working copy that are no files, sorted.

    Raises: UnavailableError if its file system does not answer; StoppedError after a request to shut down.
    """
    odd: list[str] = []
    _within(seconds, root, lambda: odd.extend(_odd_rules(root, root)))
    return tuple(sorted(odd))


def read_secret(path: str) -> bytes:
    """Return the bytes of a file with a secret, which a run reads more than once.

    Raises:
        OSError: It cannot be read, or is no file: opening a named pipe waits for a writer.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise OSError(errno.EINVAL, "It is no file", path)
    return Path(path).read_bytes()


def _within(seconds: float, path: Path, look: Callable[[], None]) -> None:
    """Call a function in a thread that is left alone if it does not return in time."""
    errors: list[ReconcilerError] = []

    def run() -> None:
        with suppress(OSError):  # opening it fails, and its error is reported
            try:
                look()
            except ReconcilerError as error:
                errors.append(error)

    thread = threading.Thread(target=run, name="local repository", daemon=True)
    thread.start()
    until = time.monotonic() + seconds
    while thread.is_alive():
        thread.join(_CHECK_S)
        if not thread.is_alive():
            break
        effects.check_shutdown()
        if time.monotonic() > until:
            hint = "Check the file system that it is on, or raise limits.readSeconds."
            raise UnavailableError(f"Cannot read {path}: no answer within {seconds:g} s", hint=hint)
    if errors:
        raise errors[0]


def _check_around(path: Path) -> None:
    path = path.resolve()
    for directory in (path, *path.parents):
        is_bare = all((directory / name).exists() for name in ("HEAD", "objects", "refs"))
        if is_bare or (directory / ".git").exists():
            _check_repository(directory)
            return


def _check_repository(path: Path) -> None:
    candidates = (path, path.with_name(f"{path.name}.git"))
    root = next((path for path in candidates if path.is_dir()), None)
    if root is None:
        return
    directory = root / ".git" if os.path.lexists(root / ".git") else root
    if not directory.is_dir():
        # In a linked working tree and in a submodule `.git` is a file that names the directory.
        directory = root / _text(directory).removeprefix("gitdir:").strip()
    _check_git_directory(path, directory)
    # A linked working tree has a HEAD and an index, and shares objects and refs with the main one.
    if (directory / "commondir").exists():
        _check_git_directory(path, directory / _text(directory / "commondir").strip())


def _check_git_directory(path: Path, directory: Path) -> None:
    for name in _FILES:
        if os.path.lexists(directory / name):
            _check_file(directory / name)
    for name in _READ:
        if (directory / name).is_file():
            with (directory / name).open("rb") as file:
                file.read(1)
    if (directory / "config").is_file():
        _check_format(path, _text(directory / "config"))
    seen: set[tuple[int, int]] = set()
    for name in _DIRECTORIES:
        _walk(str(directory / name), seen)
    stores = [directory / "objects"]
    for store in stores:
        alternates = store / "info" / "alternates"
        if alternates.is_file() and len(stores) < _MOST_STORES:
            # Each line is a directory of objects, relative to this one; its alternates count as well.
            lines = (line for line in _text(alternates).splitlines() if line and not line.startswith("#"))
            stores += [store / line for line in lines]
            for more in stores[1:]:
                _walk(str(more), seen)


def _check_format(path: Path, config: str) -> None:
    settings = _COMMENT.sub("", config)
    if _SHA256.search(settings):
        raise sha256_error(str(path))
    if _REFTABLE.search(settings):
        message = f"{path} keeps its refs in reftables, which are not supported"
        raise UnavailableError(message, hint="Run `git refs migrate --ref-format=files` in it.")


def _walk(directory: str, seen: set[tuple[int, int]], *, is_link: bool = True) -> None:
    """Check all files below a directory; links are followed, what each leads to is looked at once."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if is_link:
            status = Path(directory).stat()
            if (status.st_dev, status.st_ino) in seen:
                return
            seen.add((status.st_dev, status.st_ino))
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    continue
                if entry.is_dir():
                    _walk(entry.path, seen, is_link=entry.is_symlink())
                else:
                    _check_file(Path(entry.path))


def _check_file(path: Path) -> None:
    """Raise UnavailableError if a path leads to what is neither a file nor a directory."""
    if kind := _odd_kind(path):
        hint = "Remove it. A repository has files and directories only."
        raise UnavailableError(f"{path} is {kind}, not a file, and is not read", hint=hint)


def _odd_kind(path: Path) -> str:
    """Return what a path leads to if that is neither a file nor a directory, "" otherwise."""
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = path.stat().st_mode
        return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")
    return ""


def _text(path: Path) -> str:
    _check_file(path)
    with path.open("rb") as file:
        return file.read(_LONGEST).decode(errors="replace")


def _odd_rules(directory: Path, root: Path) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in _RULES and _odd_kind(Path(entry.path)):
                yield Path(entry.path).relative_to(root).as_posix()
            elif entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                yield from _odd_rules(Path(entry.path), root)
