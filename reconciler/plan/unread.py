"""Repositories that could not be read: one problem each, at the manifest that registers it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reconciler.errors import Problem
from reconciler.inventory import Inventory, RepositoryView
from reconciler.policy import OnUnavailable
from reconciler.reasons import Reason

_OWNERS = ("PackageVariant ", "PackageVariantSet ")


def with_unread_repositories(problems: Iterable[Problem], inventory: Inventory) -> tuple[Problem, ...]:
    """Return the problems with one for every repository that could not be read, whoever uses it.

    An owner that needs such a repository is counted there, not told again: of one dead repository
    with a thousand variants a person reads one line.
    """
    unread = {view.problem.message: view for view in inventory.repositories.values() if view.problem}
    if not unread:
        return tuple(problems)
    told: list[Problem] = []
    owners: dict[str, set[str]] = {}
    for problem in problems:
        message = next((m for m in unread if problem.message.endswith(m)), None)
        if message is not None and _is_consequence(problem):
            owners.setdefault(message, set()).add(problem.subject)
        else:
            told.append(problem)
    every = (view for view in inventory.repositories.values() if view.problem)
    return (*told, *(_problem(view, owners) for view in every))


def find_unread(inventory: Inventory) -> Mapping[Problem, OnUnavailable]:
    """Return why each repository that could not be read was not, sorted, and whether that is a failure."""
    unread = {p: OnUnavailable.FAIL for p in inventory.problems if p.reason == Reason.REPOSITORY_UNAVAILABLE}
    for view in inventory.repositories.values():
        if view.problem and view.problem.reason == Reason.REPOSITORY_UNAVAILABLE:
            unread[view.problem] = view.unavailable
    return dict(sorted(unread.items()))


def _is_consequence(problem: Problem) -> bool:
    return problem.reason == Reason.REPOSITORY_UNAVAILABLE and problem.subject.startswith(_OWNERS)


def _problem(view: RepositoryView, owners: dict[str, set[str]]) -> Problem:
    assert view.problem is not None  # noqa: S101 - only views with a problem are asked for
    count = len(owners.get(view.problem.message, ()))
    stalled = f"; {count} owner{'s' if count > 1 else ''} that need it are kept as they are" if count else ""
    message = f"Repository {view.key} could not be read: {view.problem.message}{stalled}"
    return replace(view.problem, message=message)
