"""Repositories and pull requests that could not be read: one problem each, at the Repository's manifest."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from reconciler.base.errors import Problem
from reconciler.base.reasons import Reason
from reconciler.base.wording import verb
from reconciler.inventory.inventory import Inventory, PullRequest, RepositoryView, unreadable_problem
from reconciler.names.ids import Lifecycle, PackageKey
from reconciler.names.refs import HEADS, TAGS, deletion_ref, parse_ref, short_branch
from reconciler.plan.changes import Change, MoveRef, Op
from reconciler.plan.context import PlanContext
from reconciler.policy import OnUnavailable

_OWNERS = ("PackageVariant ", "PackageVariantSet ")


def with_unread_repositories(problems: Iterable[Problem], inventory: Inventory) -> tuple[Problem, ...]:
    """Return the problems with one for every repository that could not be read.

    A variant or set that needs such a repository is counted there: one dead repository with a
    thousand variants gives one line.
    """
    unread = [view.unread_message for view in inventory.repositories.values() if view.problem]
    if not unread:
        return tuple(problems)
    reported: list[Problem] = []
    owners: dict[str, set[str]] = {}
    for problem in problems:
        message = next((m for m in unread if problem.message.endswith(m)), None)
        if message is not None and _is_consequence(problem):
            owners.setdefault(message, set()).add(problem.subject)
        else:
            reported.append(problem)
    every = (view for view in inventory.repositories.values() if view.problem)
    return (*reported, *(_problem(view, owners) for view in every))


def find_unread(inventory: Inventory) -> Mapping[Problem, OnUnavailable]:
    """Return why each repository that could not be read was not, sorted, and whether that is a failure."""
    unread = {p: OnUnavailable.FAIL for p in inventory.problems if p.reason == Reason.REPOSITORY_UNAVAILABLE}
    for view in inventory.repositories.values():
        if view.problem and view.problem.reason == Reason.REPOSITORY_UNAVAILABLE:
            unread[view.problem] = view.unavailable
    return dict(sorted(unread.items()))


def is_unavailable(view: RepositoryView) -> bool:
    """Tell whether a repository could not be read, and that is a failure of the run."""
    problem = view.problem
    is_unread = problem is not None and problem.reason == Reason.REPOSITORY_UNAVAILABLE
    return is_unread and view.unavailable is OnUnavailable.FAIL


def _is_consequence(problem: Problem) -> bool:
    return problem.reason == Reason.REPOSITORY_UNAVAILABLE and problem.subject.startswith(_OWNERS)


def _problem(view: RepositoryView, owners: dict[str, set[str]]) -> Problem:
    assert view.problem is not None  # noqa: S101 - only views with a problem are asked for
    count = len(owners.get(view.unread_message, ()))
    needing = f"{count} {verb(count, 'variant or set that needs it is', 'variants or sets that need it are')}"
    stalled = f"; {needing} kept as {verb(count, 'it is', 'they are')}" if count else ""
    return replace(view.problem, message=f"{view.unread_message}{stalled}")


def keep_unreadable_pulls(
    changes: Sequence[Change], context: PlanContext
) -> tuple[tuple[Change, ...], tuple[Problem, ...]]:
    """Keep packages with a pull request that cannot be read; return all changes with its problem.

    People's answers there are unknown, so nothing of such a package is written but the tags of main's
    revisions. The other packages of the repository proceed, also where not even the branch is legible.
    """
    unreadable = context.inventory.unreadable_pulls
    drafted = {t.key: short_branch(t.draft.ref) for t in context.targets.values() if t.draft is not None}
    kept = [
        _kept(change, pull) if (pull := _find_unreadable(change, unreadable, drafted, context)) else change
        for change in changes
    ]
    return tuple(kept), tuple(_pull_problems(context.inventory))


def _pull_problems(inventory: Inventory) -> Iterable[Problem]:
    for url, pulls in sorted(inventory.unreadable_pulls.items()):
        view = next(iter(inventory.views_of(url)), None)
        if view is not None:
            where, subject = view.source.at("spec", "git", "repo"), f"Repository {view.key}"
            name = f"repository {view.key.name}"
            yield from (unreadable_problem(where, name, pull, subject) for pull in pulls)


def _find_unreadable(
    change: Change,
    unreadable: Mapping[str, tuple[PullRequest, ...]],
    drafted: Mapping[PackageKey, str],
    context: PlanContext,
) -> PullRequest | None:
    """Return the unreadable pull request that a change of ours is about, None for none."""
    pulls = unreadable.get(change.package.url, ())
    if not pulls or change.variant is None:
        return None
    path, instance = change.package.path, context.inventory.policy.instance
    heads = {change.group, drafted.get(change.package, ""), short_branch(deletion_ref(instance, path))}
    heads |= {short_branch(write.ref) for write in change.writes if write.ref.startswith(HEADS)}
    return next((p for p in pulls if p.head and (p.head in heads or _drafts(p.head, path))), None)


def _drafts(head: str, path: str) -> bool:
    """Whether a head is a draft or proposal of the package at `path`."""
    named = parse_ref(f"{HEADS}{head}")
    is_draft = named is not None and named.lifecycle in {Lifecycle.DRAFT, Lifecycle.PROPOSED}
    return is_draft and named is not None and named.path == path


def _kept(change: Change, pull: PullRequest) -> Change:
    tags = tuple(w for w in change.writes if isinstance(w, MoveRef) and w.ref.startswith(TAGS))
    op = Op.PUBLISH if tags else Op.KEEP if change.before is not None else Op.BLOCK
    message = f"Pull request #{pull.number} cannot be read: {pull.unreadable}"
    kept = change.without_effects(op, Reason.PULL_REQUEST_UNREADABLE, message, tags)
    return replace(kept, waits=False)
