"""Mirrors on disk: bare repositories in a cache directory that several processes may share."""

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import pygit2
from msgspec import Struct

from reconciler.base import effects
from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import is_token
from reconciler.git.command import DEFAULT_TIMEOUT_S
from reconciler.git.database import objects_directory
from reconciler.git.urls import Credential, Remote
from reconciler.names.objects import sha1

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


CACHE_HINT = "Check the disk, the permissions and the limits of the process (`ulimit -n`, `ulimit -f`)."
MANY_PACKS = 50
"""Number of packs from which look-ups become slow."""
_PACK_LIFE_S = 24 * 3600
_LOCK_S = 0.05
"""How often a lock that another process holds is tried."""
_UNSAFE = regex(r"[^A-Za-z0-9.-]+")
# Git breaks no lock of a killed process: each later command fails with "Unable to create …: File exists".
_LOCKED_FILES = ("*.lock", "refs/**/*.lock", "objects/info/*.lock")
_CHECKED = (
    *(f"objects/pack/*.{kind}" for kind in ("pack", "idx", "rev", "bitmap")),
    "objects/pack/multi-pack-index",
    "objects/info/commit-graph",
    "objects/info/commit-graphs/*.graph",
)
"""Files that end with the SHA-1 of their content."""
_DIRECTORIES = ("objects/info", "objects/pack", "refs/heads", "refs/tags")
_RECORD = "reconciler-packs"
_CHECKSUM_BYTES = 20
_CHUNK_BYTES = 1 << 20
_REF = regex(rb"[0-9a-f]{40}\n")
# A header, a line for each ref, and for an annotated tag a line `^` with the commit that it leads to.
_PACKED_REFS = regex(rb"(#[^\n]*\n|[0-9a-f]{40} refs/[^\x00-\x20\x7f]+\n|\^[0-9a-f]{40}\n)*")


class MirrorLocation(Struct, frozen=True):
    """The address of a repository and the directory of its mirror; the identity is `remote.url`."""

    remote: Remote
    directory: Path
    credential: Credential | None = None

    @classmethod
    def of(cls, cache: Path, remote: Remote, credential: Credential | None) -> "MirrorLocation":
        """Return the location of a remote in a cache: a readable name, unique by the identity.

        Raises: UnavailableError if a secret would be sent in the clear.
        """
        effective = credential or remote.credential
        # Forges take a token in place of the user, too.
        if effective and (effective.password or is_token(effective.username)) and remote.is_clear:
            message = f"A credential for {remote.address} would be sent in the clear"
            raise UnavailableError(message, hint="Use https.")
        digest = hashlib.sha256(remote.url.encode()).hexdigest()[:16]
        name = _UNSAFE.sub("-", remote.url.rpartition("/")[2])[:40].strip(".-")
        return cls(remote, cache / f"{name}-{digest}.git", effective)


def create_mirror(location: MirrorLocation) -> None:
    """Create the mirror's bare repository unless it exists; safe beside other processes.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    if location.directory.is_dir():
        return
    fresh = create_empty(location)
    try:
        # Renaming is atomic: another process sees a whole mirror or none, and the second one to rename fails.
        fresh.rename(location.directory)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if not location.directory.is_dir():
            raise cache_error(f"Cannot create {location.directory}", error) from error


def create_empty(location: MirrorLocation) -> Path:
    """Create an empty mirror of a repository beside its final directory, and return its path.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    try:
        location.directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=location.directory.parent))
        for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
            (fresh / name).mkdir(parents=True)
        for name, text in _settings(location.remote).items():
            (fresh / name).write_text(text)
    except OSError as error:
        raise cache_error(f"Cannot create {location.directory}", error) from error
    return fresh


def replace_mirror(location: MirrorLocation, fresh: Path) -> None:
    """Replace a damaged mirror by a new one; the caller holds `locked`.

    Raises: UnavailableError if the damaged one cannot be removed.
    """
    # rename(2) does not replace a directory that has entries.
    discard_mirror(location.directory)
    try:
        fresh.rename(location.directory)
    except OSError as error:
        raise cache_error(f"Cannot create {location.directory}", error) from error


def discard_mirror(directory: Path) -> None:
    """Remove a damaged mirror, or a file of its name; the caller holds `locked`.

    Raises: UnavailableError if it cannot be removed.
    """
    try:
        if directory.is_dir() and not directory.is_symlink():
            # Renamed before it is removed: other processes see a whole mirror or none.
            away = Path(tempfile.mkdtemp(prefix=".old-", dir=directory.parent)) / directory.name
            directory.rename(away)
            shutil.rmtree(away.parent, ignore_errors=True)
        else:
            directory.unlink(missing_ok=True)
    except OSError as error:
        message = f"{directory} in the cache is damaged, and cannot be removed: {error.strerror}"
        raise UnavailableError(message, hint="Delete it: everything in it is fetched again.") from error


def restore_settings(location: MirrorLocation) -> None:
    """Rewrite HEAD and the configuration of a mirror if they differ from ours.

    Raises: UnavailableError if they cannot be written.
    """
    for name, text in _settings(location.remote).items():
        path = location.directory / name
        try:
            if not path.is_file() or path.read_bytes() != text.encode():
                # Settings such as core.fsmonitor and core.sshCommand run commands: a changed configuration is
                # not used.
                discard_mirror(path)
                path.write_text(text)
        except OSError as error:
            raise cache_error(f"Cannot write {path}", error) from error


def attach(location: MirrorLocation, repository: pygit2.Repository) -> None:
    """Add the cached objects of a run to a repository on this machine; remove damaged ones.

    Nothing is lost with them: pushed objects are in the repository itself, others are made again.

    Raises: UnavailableError if they are damaged and cannot be removed.
    """
    directory = location.directory
    if not find_damage(directory):
        write_alternates(location, repository)
        repository.odb.add_disk_alternate(str(directory / "objects"))
        return
    with locked(directory):
        if find_damage(directory):
            discard_mirror(directory)


def write_alternates(location: MirrorLocation, repository: pygit2.Repository) -> None:
    """Add the objects of a repository on this machine to the cached objects of a run.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    alternates = location.directory / "objects" / "info" / "alternates"
    content = f"{objects_directory(repository)}\n".encode()
    restore_settings(location)
    try:
        # Git and libgit2 look for objects in every directory that this file lists, too.
        if not alternates.is_file() or alternates.read_bytes() != content:
            alternates.write_bytes(content)
    except OSError as error:
        raise cache_error(f"Cannot write {alternates}", error) from error


def cache_error(what: str, error: OSError) -> UnavailableError:
    """Return the error of a cache directory that cannot be read or written."""
    return UnavailableError(f"{what}: {error.strerror}", hint=CACHE_HINT)


def _settings(remote: Remote) -> dict[str, str]:
    lines = ["[core]", "\trepositoryformatversion = 0", "\tbare = true"]
    if remote.path is None:
        # Within quotes git reads a backslash as the start of an escape.
        quoted = remote.address.replace("\\", "\\\\").replace('"', '\\"')
        # A partial clone: git fetches blobs that it misses from a promisor remote.
        lines += ['[remote "origin"]', f'\turl = "{quoted}"', "\tpromisor = true"]
        lines += ["\tpartialclonefilter = blob:none"]
    # Without a HEAD that may name a branch, git takes the directory for no repository.
    return {"HEAD": "ref: refs/heads/main\n", "config": "\n".join(lines) + "\n"}


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the mirror: only the process that holds the lock writes its refs.

    Raises: UnavailableError if the cache directory cannot be written, or another process holds the lock for
    longer than any git command may take; StoppedError after a request to shut down.
    """
    lock = directory.with_suffix(".flock")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise cache_error(f"Cannot write {lock}", error) from error
    with file:
        # flock(2) ends with its process, so a killed one leaves no lock behind.
        until = time.monotonic() + DEFAULT_TIMEOUT_S
        while not _try_lock(file):
            if time.monotonic() > until:
                message = f"Another process has held {lock} for {DEFAULT_TIMEOUT_S:.0f} s"
                raise UnavailableError(message, hint="End it, or name another directory with --cache-dir.")
            effects.sleep(_LOCK_S)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def count_packs(directory: Path) -> int:
    """Return the number of packs of a mirror."""
    return sum(1 for _ in (directory / "objects" / "pack").glob("*.pack"))


def drop_old_packs(directory: Path) -> None:
    """Remove packs of earlier days from the mirror of a local repository if it has many.

    Nothing is lost: pushed objects are in the repository itself, others are made again.
    """
    if count_packs(directory) <= MANY_PACKS:
        return
    old = time.time() - _PACK_LIFE_S
    packs = [path for path in (directory / "objects" / "pack").glob("*.pack") if path.stat().st_mtime < old]
    for pack in packs:
        drop_pack(pack)


def drop_pack(pack: Path) -> None:
    """Remove a pack from the mirror of a local repository, which has what is in it."""
    # The index first: readers look for indexes, and then need the pack.
    pack.with_suffix(".idx").unlink(missing_ok=True)
    pack.unlink(missing_ok=True)


def record_packs(directory: Path) -> None:
    """Write the list of a mirror's packs, so that a lost one is detected; the caller holds `locked`.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    # In a partial clone a lost pack looks like objects that were never fetched: git would not report it.
    names = sorted(path.stem for path in (directory / "objects" / "pack").glob("*.idx"))
    fresh = directory / f"{_RECORD}.new"
    try:
        fresh.write_text("".join(f"{name}\n" for name in names))
        fresh.replace(directory / _RECORD)
    except OSError as error:
        raise cache_error(f"Cannot write to {directory}", error) from error


def recover_locks(directory: Path) -> None:
    """Remove lock files of killed processes; the caller holds `locked`, so no living process owns them."""
    for pattern in _LOCKED_FILES:
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)


def find_damage(mirror: Path) -> str:
    """Return the first damage of a mirror, "" if there is none.

    Reads every byte: Git and libgit2 find damage late, and report it as objects that the remote lacks, or
    not at all. Files that another process replaces meanwhile are skipped.
    """
    try:
        return next(_damages(mirror), "")
    except OSError as error:
        return f"{error.filename or mirror}: {error.strerror}"


def _damages(mirror: Path) -> Iterator[str]:
    for name in _DIRECTORIES:
        if not (mirror / name).is_dir():
            yield f"{mirror / name} is no directory"
    yield from _lost_packs(mirror)
    for pattern in _CHECKED:
        for path in mirror.glob(pattern):
            if not _has_checksum(path):
                yield f"{path} does not have the checksum that it ends with"
    # Loose objects: two digits of the id are the directory, 38 the file. Unfinished ones are called
    # tmp_obj_*.
    for path in mirror.glob("objects/[0-9a-f][0-9a-f]/*"):
        if len(path.name) == len("0" * 38) and not _is_object(path):
            yield f"{path} is not the object that its name says"
    yield from _damaged_refs(mirror)


def _lost_packs(mirror: Path) -> Iterator[str]:
    packs = mirror / "objects" / "pack"
    record = mirror / _RECORD
    for name in record.read_text("ascii", "replace").split() if record.is_file() else []:
        if not (packs / f"{name}.idx").is_file():
            yield f"{packs / name}.idx is lost"
    for index in packs.glob("*.idx"):
        if not index.with_suffix(".pack").is_file() and index.is_file():
            yield f"{index.with_suffix('.pack')} is lost"


def _damaged_refs(mirror: Path) -> Iterator[str]:
    packed = mirror / "packed-refs"
    if packed.exists() and not _PACKED_REFS.fullmatch(packed.read_bytes()):
        yield f"{packed} is not a list of refs"
    for path in (mirror / "refs").rglob("*"):
        if path.is_file() and path.suffix != ".lock" and not _REF.fullmatch(_read(path)):
            yield f"{path} is not a ref"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        # `git pack-refs` removes loose refs that it has packed: one that is gone is no damage.
        return b"0" * 40 + b"\n"


def _has_checksum(path: Path) -> bool:
    """Tell whether a file ends with its SHA-1; True for a file that was removed meanwhile."""
    digest = sha1()
    try:
        with path.open("rb") as file:
            remaining = path.stat().st_size - _CHECKSUM_BYTES
            while remaining > 0 and (piece := file.read(min(remaining, _CHUNK_BYTES))):
                digest.update(piece)
                remaining -= len(piece)
            return remaining == 0 and file.read() == digest.digest()
    except FileNotFoundError:
        return True


def _is_object(path: Path) -> bool:
    try:
        data = zlib.decompress(path.read_bytes())
    except FileNotFoundError:
        return True
    except zlib.error:
        return False
    return sha1(data).hexdigest() == path.parent.name + path.name
