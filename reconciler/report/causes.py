"""Problems and failed effects by their cause, so that a report gives each cause once."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from reconciler.base.errors import Problem

MOST_PLACES = 10
"""Places of one cause that are listed; more of them are counted."""

Item = TypeVar("Item")


def group_by_cause(items: Iterable[Item], key: Callable[[Item], tuple[str, str, str]]) -> list[list[Item]]:
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
    """Problems of one cause, or a single problem."""

    problems: tuple[Problem, ...]

    @property
    def reason(self) -> str:
        """The reason of all of them."""
        return self.problems[0].reason

    @property
    def location(self) -> str:
        """The place of a single problem; empty for several."""
        return "" if self.is_shared else str(self.problems[0].location)

    @property
    def message(self) -> str:
        """The message of a single problem; of several their number and their cause."""
        first = self.problems[0]
        return f"{len(self.problems)}, all for one cause: {first.cause}" if self.is_shared else first.message

    @property
    def subject(self) -> str:
        """The stalled owner of a single problem; empty for several."""
        return "" if self.is_shared else self.problems[0].subject

    @property
    def hint(self) -> str:
        """The hint of all of them."""
        return self.problems[0].hint

    @property
    def is_shared(self) -> bool:
        """Whether there are several problems of one cause."""
        return len(self.problems) > 1

    @property
    def places(self) -> list[str]:
        """The place, the owner and the rest of the message of each of several problems; many are counted."""
        if not self.is_shared:
            return []
        more = len(self.problems) - MOST_PLACES
        places = [f"{p.location}: {p.subject}{_after_cause(p)}" for p in self.problems[:MOST_PLACES]]
        return [*places, f"and {more} more"] if more > 0 else places


def group_problems(problems: Iterable[Problem]) -> list[ProblemGroup]:
    """Return problems by reason, cause and hint, each group at the place of its first one."""
    groups = group_by_cause(problems, lambda problem: (problem.reason, problem.cause, problem.hint))
    return [ProblemGroup(tuple(group)) for group in groups]


def _after_cause(problem: Problem) -> str:
    return problem.message.partition(problem.cause)[2]
