"""A control repository for a test: files in, the mirror that a run would read out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.ids import Oid

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
