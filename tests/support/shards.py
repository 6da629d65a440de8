"""Directories whose repositories shards divide as a test needs: the division depends on the path."""

from pathlib import Path

from reconciler.names.ids import normalise_url
from reconciler.plan.shard import shard_of


def split_root(parent: Path, *names: str) -> Path:
    """Return a directory below which two repositories belong to different ones of two shards."""
    roots = (parent / f"w{number}" for number in range(1000))
    return next(root for root in roots if len({shard_in(root, name) for name in names}) == 2)


def shard_in(root: Path, name: str) -> int:
    """Return the one of two shards that a repository below a directory belongs to."""
    return shard_of(normalise_url(f"{root}/{name}.git"), 2)
