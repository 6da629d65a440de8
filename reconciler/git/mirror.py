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

from reconciler.errors import UnavailableError
from reconciler.git.urls import Credential, Remote

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
    """Create the mirror's bare repository if it is not there; safe beside other processes."""
    if place.directory.is_dir():
        return
    try:
        place.directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.directory.parent))
        _fill(fresh, place.remote)
    except OSError as error:
        hint = "Check the disk and the permissions of the cache directory."
        raise UnavailableError(f"Cannot create {place.directory}: {error.strerror}", hint=hint) from error
    try:
        fresh.rename(place.directory)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not place.directory.is_dir():
            raise


def _fill(directory: Path, remote: Remote) -> None:
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (directory / name).mkdir(parents=True)
    (directory / "HEAD").write_text("ref: refs/heads/main\n")
    lines = ["[core]", "\trepositoryformatversion = 0", "\tbare = true"]
    if remote.path is None:
        quoted = remote.address.replace("\\", "\\\\").replace('"', '\\"')
        lines += ['[remote "origin"]', f'\turl = "{quoted}"', "\tpromisor = true"]
        lines += ["\tpartialclonefilter = blob:none"]
    (directory / "config").write_text("\n".join(lines) + "\n")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the mirror for this process: whoever holds it is the only writer of its refs."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".flock").open("w") as file:
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


def recover_locks(directory: Path) -> int:
    """Remove lock files that a killed process left; the caller holds `locked`, so they have no owner.

    Returns: how many there were.
    """
    stale = [path for pattern in _LOCKED_FILES for path in directory.glob(pattern)]
    for path in stale:
        path.unlink(missing_ok=True)
    return len(stale)
