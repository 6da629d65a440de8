"""Where a commit stands: a decision table over one history, without a repository."""

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from reconciler.git.commits import CommitData, History
from reconciler.inventory.standing import Position, Standing, decide_standing
from reconciler.names.ids import Oid

#   a - b - c - d     main
#        \     \
#         x     m     a branch that left main early, and one that left it late (m merges x)
#   a - r             main as it was rewritten
PARENTS = {"a": "", "b": "a", "c": "b", "d": "c", "x": "b", "m": "cx", "r": "a"}


class Commits(History):
    """The history above; it is cut off below the commits in `cut`."""

    def __init__(self, cut: str = "") -> None:
        super().__init__()
        self._cut = cut

    @property
    def is_shallow(self) -> bool:
        return bool(self._cut)

    def find_commit(self, oid: Oid) -> CommitData | None:
        raise NotImplementedError

    def find_parents(self, oid: Oid) -> tuple[Oid, ...] | None:
        if oid not in PARENTS:
            return None
        return () if oid in self._cut else tuple(map(Oid, PARENTS[oid]))

    def changed_paths(self, old: Oid, new: Oid, paths: Iterable[str]) -> set[str]:
        raise NotImplementedError


class Case(NamedTuple):
    reason: str
    commit: str
    tip: str | None
    applied: str | None
    position: Position
    commits: int = 0
    contains: bool = True
    cut: str = ""


CASES = [
    Case("the tip, and nothing was applied", "d", "d", None, Position.CURRENT),
    Case("the tip, applied before", "d", "d", "d", Position.CURRENT),
    Case("the tip, ahead of what was applied", "d", "d", "b", Position.CURRENT),
    Case("one behind", "c", "d", None, Position.BEHIND, 1, contains=False),
    Case("behind main, ahead of what was applied", "c", "d", "b", Position.BEHIND, 1),
    Case("behind main and what was applied", "a", "d", "c", Position.BEHIND, 3, contains=False),
    Case("behind by a merge, whose commits count too", "b", "m", "b", Position.BEHIND, 3),
    Case("a branch ahead of main", "m", "c", "c", Position.UNMERGED),
    Case("a branch that left main before what was applied", "x", "d", "d", Position.UNMERGED, contains=False),
    Case("a branch that left main after what was applied", "x", "d", "b", Position.UNMERGED),
    Case(
        "a branch of a main that nothing was applied from", "x", "d", None, Position.UNMERGED, contains=False
    ),
    Case("main was moved back", "b", "b", "d", Position.REWOUND, 2, contains=False),
    Case("main was moved back, and went on from there", "r", "r", "d", Position.REWRITTEN, contains=False),
    Case("what was applied is gone", "d", "d", "lost", Position.REWRITTEN, contains=False),
    Case("applied, and then main was rewritten", "d", "r", "d", Position.DROPPED),
    Case("older than applied, and main was rewritten", "c", "r", "d", Position.DROPPED, contains=False),
    Case("no remote, behind what was applied", "b", None, "d", Position.BEHIND, 2, contains=False),
    Case("no remote, at what was applied", "d", None, "d", Position.CURRENT),
    Case("a history that ends before what was applied", "d", "d", "b", Position.UNKNOWN, 0, False, "c"),
    Case("a history that ends after what was applied", "d", "d", "c", Position.CURRENT, 0, True, "b"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_position(case: Case) -> None:
    tip, applied = (Oid(oid) if oid else None for oid in (case.tip, case.applied))

    standing = decide_standing(Oid(case.commit), tip, applied, Commits(case.cut), "main" if tip else "")

    assert (standing.position, standing.commits) == (case.position, case.commits)
    assert standing.contains_applied is case.contains


DROPPED = (
    "This checkout is at a commit that the default branch does not contain any more (abcdef01 is the tip): "
    "the default branch was moved"
)


@pytest.mark.parametrize(
    ("standing", "sentence"),
    [
        (Standing(), ""),
        (Standing(Position.BEHIND, 1, Oid("abcdef0123"), branch="main"),
            "This checkout is 1 commit behind main (abcdef01 is the tip)"),
        (Standing(Position.BEHIND, 3, applied=Oid("abcdef0123")),
            "This checkout is 3 commits behind abcdef01, which was applied last"),
        (Standing(Position.REWOUND, 2, applied=Oid("abcdef0123"), branch="main"),
            "Branch main was moved back: its tip is 2 commits behind abcdef01, which was applied last"),
        (Standing(Position.REWRITTEN, 0, applied=Oid("abcdef0123"), branch="main"),
            "Branch main was moved: it does not contain abcdef01, which was applied last"),
        (Standing(Position.REWRITTEN, 0, applied=Oid("abcdef0123")),
            "The default branch was moved: it does not contain abcdef01, which was applied last"),
        (Standing(Position.DROPPED, 0, Oid("abcdef0123")), DROPPED),
        (Standing(Position.UNKNOWN, 0, applied=Oid("abcdef0123")),
            "The history of the default branch ends before abcdef01, which was applied last"),
    ],
)  # fmt: skip
def test_sentence(standing: Standing, sentence: str) -> None:
    assert standing.sentence == sentence
