"""Compare the commit of a run with the default branch, and with the commit that was applied last (D28)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import Struct

from reconciler.api.porch import PackageVariant, PackageVariantSet
from reconciler.base.text import plural
from reconciler.names.ids import ObjectKey, Oid

SHORT = 8
"""Digits of a commit in a sentence."""


class Position(StrEnum):
    """Relation of a commit to the default branch and to the commit that was applied last."""

    CURRENT = "current"
    """It is the tip of the default branch, and contains what was applied last."""
    BEHIND = "behind"
    """Newer commits are on the default branch, or were applied."""
    UNMERGED = "unmerged"
    """The default branch does not contain it."""
    DROPPED = "dropped"
    """The default branch contained it, and was moved since."""
    REWOUND = "rewound"
    """It is the tip of the default branch, which was moved back from what was applied last."""
    REWRITTEN = "rewritten"
    """It is the tip of the default branch, which does not contain what was applied last."""
    UNKNOWN = "unknown"
    """It is the tip of the default branch; the history ends before what was applied last."""


class Ancestry(Protocol):
    """The part of a history that a standing is decided from."""

    @property
    def is_shallow(self) -> bool:
        """Whether the history ends before its first commit."""

    def contains(self, tip: Oid, commit: Oid) -> bool:
        """Tell whether a commit is `tip` or one of its ancestors."""

    def count_since(self, tip: Oid, commit: Oid) -> int:
        """Return the number of commits that `tip` contains and `commit` does not."""


class Standing(Struct, frozen=True):
    """Position of a commit, decided once for a run."""

    position: Position = Position.CURRENT
    commits: int = 0
    """How many it is behind `newest`, or the default branch was moved back."""
    newest: Oid | None = None
    applied: Oid | None = None
    """The control commit that was applied last; None if no run recorded one."""
    branch: str = ""
    contains_applied: bool = True
    """Whether its history has that commit, or without one the tip of the default branch."""

    @property
    def is_outdated(self) -> bool:
        """Whether newer commits replaced this one: what it lacks was not removed."""
        return self.position in (Position.BEHIND, Position.DROPPED)

    @property
    def was_moved(self) -> bool:
        """Whether the default branch was moved away from what was applied last."""
        return self.position in (Position.REWOUND, Position.REWRITTEN)

    @property
    def cause(self) -> str:
        """How the default branch was moved, in words that the next commit on it does not change."""
        branch = _capitalised(self.branch or "the default branch")
        return (
            f"{branch} was moved: it does not contain {(self.applied or '')[:SHORT]}, which was applied last"
        )

    @property
    def sentence(self) -> str:
        """How the commit differs from the one that should be applied; "" where it does not."""
        branch, commits = self.branch or "the default branch", plural(self.commits, "commit")
        newest, applied = (self.newest or "")[:SHORT], (self.applied or "")[:SHORT]
        last = f"{applied}, which was applied last"
        where = f"{branch} ({newest} is the tip)" if self.branch else last
        sentences = {
            Position.BEHIND: f"This checkout is {commits} behind {where}",
            Position.DROPPED: (
                f"This checkout is at a commit that {branch} does not contain any more "
                f"({newest} is the tip): {branch} was moved"
            ),
            Position.REWOUND: f"{_capitalised(branch)} was moved back: its tip is {commits} behind {last}",
            Position.REWRITTEN: self.cause,
            Position.UNKNOWN: f"The history of {branch} ends before {last}",
        }
        return sentences.get(self.position, "")


def _capitalised(branch: str) -> str:
    return f"Branch {branch}" if not branch.startswith("the ") else branch.capitalize()


class Removal(NamedTuple):
    """The commit that removed a manifest from the file `path`; with `is_file` the file went with it.

    `last` is the manifest of a variant or a set as the parent of the commit declares it.
    """

    path: str
    commit: Oid
    is_file: bool = True
    last: PackageVariant | PackageVariantSet | None = None


class Removals(NamedTuple):
    """The commits that removed manifests, and for all other absent ones why none is known."""

    by_key: Mapping[ObjectKey, Removal] = {}
    unproven: Mapping[ObjectKey, str] = {}


def decide_standing(
    commit: Oid, tip: Oid | None, applied: Oid | None, history: Ancestry, branch: str = ""
) -> Standing:
    """Compare a commit with the default branch and with what was applied last. Pure.

    `tip` is that of the default branch, `applied` the control commit that was applied last; None if there is
    none.
    """
    position, commits, newest = _position(commit, tip, applied, history)
    reference = applied or tip
    contains = reference is None or history.contains(commit, reference)
    return Standing(position, commits, newest, applied, branch, contains)


def _position(
    commit: Oid, tip: Oid | None, applied: Oid | None, history: Ancestry
) -> tuple[Position, int, Oid | None]:
    if tip is not None and commit != tip:
        if history.contains(tip, commit):
            return Position.BEHIND, history.count_since(tip, commit), tip
        was_there = applied is not None and history.contains(applied, commit)
        return Position.DROPPED if was_there else Position.UNMERGED, 0, tip
    if applied is None or history.contains(commit, applied):
        return Position.CURRENT, 0, tip
    if history.contains(applied, commit):
        position = Position.BEHIND if tip is None else Position.REWOUND
        return position, history.count_since(applied, commit), applied
    return Position.UNKNOWN if history.is_shallow else Position.REWRITTEN, 0, tip
