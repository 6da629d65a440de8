"""Mirrors on disk: bare repositories in a cache directory that several processes may share."""

import fcntl
import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pygit2

from reconciler.errors import UnavailableError
from reconciler.git.database import objects_directory
from reconciler.git.integrity import find_damage, write_packs_record
from reconciler.git.urls import Credential, Remote

CACHE_HINT = "Check the disk, the permissions and the limits of the process (`ulimit -n`, `ulimit -f`)."
MANY_PACKS = 50
"""More packs than this slow every look-up down."""
_KEPT_S = 24 * 3600
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")
_LOCKED_FILES = ("*.lock", "refs/**/*.lock", "objects/info/*.lock")


@dataclass(frozen=True, slots=True)
class Place:
    """Where one repository is, and where its mirror stands; the identity is `remote.url`."""

    remote: Remote
    directory: Path
    credential: Credential | None = None

    @classmethod
    def of(cls, cache: Path, remote: Remote, credential: Credential | None) -> "Place":
        """Return the place of `remote` in a cache: a readable name, made unique by its identity.

        Raises: UnavailableError if a secret would be sent in the clear.
        """
        known = credential or remote.credential
        if known and known.password and remote.is_clear:
            message = f"A credential for {remote.address} would be sent in the clear"
            raise UnavailableError(message, hint="Use https.")
        digest = hashlib.sha256(remote.url.encode()).hexdigest()[:16]
        name = _UNSAFE.sub("-", remote.url.rpartition("/")[2])[:40].strip(".-")
        return cls(remote, cache / f"{name}-{digest}.git", known)


def create_mirror(place: Place) -> None:
    """Create the mirror's bare repository if it is not there; safe beside other processes.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    if place.directory.is_dir():
        return
    fresh = create_empty(place)
    try:
        fresh.rename(place.directory)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if not place.directory.is_dir():
            raise cache_error(f"Cannot create {place.directory}", error) from error


def create_empty(place: Place) -> Path:
    """Return a new empty mirror of a repository, beside the place where it belongs.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    try:
        place.directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.directory.parent))
        _fill(fresh, place.remote)
    except OSError as error:
        raise cache_error(f"Cannot create {place.directory}", error) from error
    return fresh


def replace_mirror(place: Place, fresh: Path) -> None:
    """Put a new mirror in the place of the damaged one; the caller holds `locked`.

    Raises: UnavailableError if the damaged one cannot be removed.
    """
    discard_mirror(place.directory)
    try:
        fresh.rename(place.directory)
    except OSError as error:
        raise cache_error(f"Cannot create {place.directory}", error) from error


def discard_mirror(directory: Path) -> None:
    """Remove a damaged mirror, whatever stands in its place; the caller holds `locked`.

    Raises: UnavailableError if it cannot be removed.
    """
    try:
        if directory.is_dir() and not directory.is_symlink():
            away = Path(tempfile.mkdtemp(prefix=".old-", dir=directory.parent)) / directory.name
            directory.rename(away)
            shutil.rmtree(away.parent, ignore_errors=True)
        else:
            directory.unlink(missing_ok=True)
    except OSError as error:
        message = f"{directory} in the cache is damaged, and cannot be removed: {error.strerror}"
        raise UnavailableError(message, hint="Delete it: everything in it is fetched again.") from error


def restore_settings(place: Place) -> None:
    """Write HEAD and the configuration of a mirror anew if they are not what we write.

    Raises: UnavailableError if they cannot be written.
    """
    for name, text in _settings(place.remote).items():
        path = place.directory / name
        try:
            if not path.is_file() or path.read_bytes() != text.encode():
                discard_mirror(path)
                path.write_text(text)
        except OSError as error:
            raise cache_error(f"Cannot write {path}", error) from error


def attach(place: Place, repository: pygit2.Repository) -> None:
    """Let a repository on this machine see the objects of ours in the cache; damaged ones are removed.

    Nothing is lost with them: what was pushed is in the repository itself, what was not is made again.

    Raises: UnavailableError if they are damaged and cannot be removed.
    """
    directory = place.directory
    if not find_damage(directory):
        write_alternates(place, repository)
        repository.odb.add_disk_alternate(str(directory / "objects"))
        return
    with locked(directory):
        if find_damage(directory):
            discard_mirror(directory)


def write_alternates(place: Place, repository: pygit2.Repository) -> None:
    """Let the store of our objects see those of the repository on this machine that they are for.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    alternates = place.directory / "objects" / "info" / "alternates"
    wanted = f"{objects_directory(repository)}\n".encode()
    restore_settings(place)
    try:
        if not alternates.is_file() or alternates.read_bytes() != wanted:
            alternates.write_bytes(wanted)
    except OSError as error:
        raise cache_error(f"Cannot write {alternates}", error) from error


def cache_error(what: str, error: OSError) -> UnavailableError:
    """Return the error of a cache directory that cannot be read or written."""
    return UnavailableError(f"{what}: {error.strerror}", hint=CACHE_HINT)


def _fill(directory: Path, remote: Remote) -> None:
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (directory / name).mkdir(parents=True)
    for name, text in _settings(remote).items():
        (directory / name).write_text(text)


def _settings(remote: Remote) -> dict[str, str]:
    lines = ["[core]", "\trepositoryformatversion = 0", "\tbare = true"]
    if remote.path is None:
        quoted = remote.address.replace("\\", "\\\\").replace('"', '\\"')
        lines += ['[remote "origin"]', f'\turl = "{quoted}"', "\tpromisor = true"]
        lines += ["\tpartialclonefilter = blob:none"]
    return {"HEAD": "ref: refs/heads/main\n", "config": "\n".join(lines) + "\n"}


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the mirror for this process: whoever holds it is the only writer of its refs.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    lock = directory.with_suffix(".flock")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise cache_error(f"Cannot write {lock}", error) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def count_packs(directory: Path) -> int:
    """Return how many packs a mirror has."""
    return sum(1 for _ in (directory / "objects" / "pack").glob("*.pack"))


def drop_old_packs(directory: Path) -> int:
    """Remove the packs of earlier days from the mirror of a repository on this machine.

    Nothing is lost: what was pushed is in the repository itself, what was not is made again.

    Returns: how many were removed.
    """
    if count_packs(directory) <= MANY_PACKS:
        return 0
    old = time.time() - _KEPT_S
    packs = [path for path in (directory / "objects" / "pack").glob("*.pack") if path.stat().st_mtime < old]
    for pack in packs:
        pack.with_suffix(".idx").unlink(missing_ok=True)
        pack.unlink(missing_ok=True)
    return len(packs)


def record_packs(directory: Path) -> None:
    """Note which packs a mirror has, so that a lost one is missed; the caller holds `locked`.

    Raises: UnavailableError if the cache directory cannot be written.
    """
    try:
        write_packs_record(directory)
    except OSError as error:
        raise cache_error(f"Cannot write to {directory}", error) from error


def recover_locks(directory: Path) -> int:
    """Remove lock files that a killed process left; the caller holds `locked`, so they have no owner.

    Returns: how many there were.
    """
    stale = [path for pattern in _LOCKED_FILES for path in directory.glob(pattern)]
    for path in stale:
        path.unlink(missing_ok=True)
    return len(stale)
