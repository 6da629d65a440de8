"""What came of applying: words for effects, and the sum over repositories."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from reconciler.errors import Exit, ReconcilerError
from reconciler.ids import PackageKey
from reconciler.plan.changes import Effect


class Did(StrEnum):
    """What one effect did, as reports say it."""

    PUSHED = "pushed"
    DELETED = "deleted"
    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"
    MERGED = "merged"
    RECORDED = "recorded"


class Result(NamedTuple):
    """What came of one repository: effects in order, packages that failed, classes of exit.

    `left` counts the pull requests that a budget left to the next run, `limited` are their packages.
    """

    effects: tuple[Effect, ...] = ()
    failed: frozenset[PackageKey] = frozenset()
    exits: frozenset[Exit] = frozenset()
    left: int = 0
    limited: frozenset[PackageKey] = frozenset()


def joined(results: Iterable[Result]) -> Result:
    """Return the sum of results, their effects in the same order."""
    every = list(results)
    return Result(
        tuple(effect for result in every for effect in result.effects),
        frozenset(package for result in every for package in result.failed),
        frozenset(code for result in every for code in result.exits),
        sum(result.left for result in every),
        frozenset(package for result in every for package in result.limited),
    )


def failure(repository: str, error: ReconcilerError, packages: Iterable[PackageKey], ref: str = "") -> Result:
    """Return the result of something that could not be done: named, so that the rest can proceed."""
    effect = Effect(repository, Did.PUSHED, ref, error=str(error))
    return Result((effect,), frozenset(packages), frozenset({error.exit_code}))
