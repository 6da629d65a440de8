"""Problems and failed effects by their cause, so that a report gives each cause once."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from reconciler.base.text import Text
from reconciler.names.problems import Problem

MOST_PLACES = 10
"""Places of one cause that are listed; more of them are counted."""

Item = TypeVar("Item")


def group_by_cause(items: Iterable[Item], key: Callable[[Item], tuple[str, Text, Text]]) -> list[list[Item]]:
    """Group items by their key, at the place of the first; an item without a cause is a group of its own.

    Args:
        items: Problems or effects.
        key: Returns kind, cause and hint of an item.
    """
    groups: dict[tuple[object, ...], list[Item]] = {}
    for number, item in enumerate(items):
        kind, cause, hint = key(item)
        groups.setdefault((kind, cause, hint) if cause else (number,), []).append(item)
    return list(groups.values())


class ProblemGroup(NamedTuple):
    """Problems of one cause, or a single problem, which alone has a location and a stalled owner.

    Of several, `message` is their number and their cause, and `places` have the place, the owner and the rest
    of the message of each; many are counted.
    """

    problems: tuple[Problem, ...]
    reason: str
    message: Text
    hint: Text
    location: str = ""
    subject: str = ""
    places: tuple[Text, ...] = ()


def group_problems(problems: Iterable[Problem]) -> list[ProblemGroup]:
    """Return problems by reason, cause and hint, each group at the place of its first one."""
    groups = group_by_cause(problems, lambda problem: (problem.reason, problem.cause, problem.hint))
    return [_group(tuple(group)) for group in groups]


def _group(problems: tuple[Problem, ...]) -> ProblemGroup:
    first, more = problems[0], len(problems) - MOST_PLACES
    if len(problems) == 1:
        where = str(first.location)
        return ProblemGroup(problems, first.reason, first.message, first.hint, where, first.subject)
    places = [f"{p.location}: {p.subject}{p.consequence}" for p in problems[:MOST_PLACES]]
    places += [f"and {more} more"] if more > 0 else []
    message = f"{len(problems)}, all for one cause: {first.cause}"
    return ProblemGroup(problems, first.reason, message, first.hint, places=tuple(places))
