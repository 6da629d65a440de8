"""A control repository for a test: files in, the mirror that a run would read out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.names.ids import Oid
from tests.support.git import Change, Repo

FIRST = 1_700_000_000
STEP_S = 100

Files = Mapping[str, str | bytes]


class World(NamedTuple):
    """A mirror of the control repository, and the commit of its main branch."""

    mirror: Mirror
    commit: Oid


def create_world(directory: Path, commits: Sequence[Files]) -> World:
    """Make a bare repository with one commit per mapping, at FIRST, FIRST + STEP_S and so on."""
    snapshots = [
        NewCommit(
            f"commit {number}",
            {path: text.encode() if isinstance(text, str) else text for path, text in files.items()},
            FIRST + number * STEP_S,
        )
        for number, files in enumerate(commits)
    ]
    path = directory / "control.git"
    create_bare(path, snapshots)
    mirror = Mirrors(directory / "cache").open(str(path))
    return World(mirror, mirror.refs()["refs/heads/main"])


UNREAD: Mapping[str, tuple[str, Change, str]] = {
    "symbolic link": ("x.json", ("../secret.json", 0o120000), "it is a symbolic link"),
    "link in place of a directory": ("x", ("../secret", 0o120000), "it is a symbolic link"),
    "submodule": ("x", ("", 0o160000), "it is a submodule"),
    "name that no file system may get": ("a\nb.json", "{}", "control character"),
    "deep directory": (f"{'d/' * 60}x.json", "{}", "it is deeper than 50 directories"),
}
"""Paths below a directory that are not read: the path, its content, and part of the reason."""


def add_unread(directory: Path, folder: str, case: str) -> World:
    """Commit a path that is not read below a folder of the repository that `create_world` made."""
    path, change, _ = UNREAD[case]
    Repo(directory / "control.git", time=FIRST + STEP_S).commit({f"{folder}/{path}": change})
    mirror = Mirrors(directory / "cache-of-unread").open(str(directory / "control.git"))
    return World(mirror, mirror.refs()["refs/heads/main"])
