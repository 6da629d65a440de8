"""Repositories and pull requests that could not be read: one problem each, at the Repository's manifest."""

from collections import Counter
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.text import verb
from reconciler.inventory.inventory import Inventory, PullRequest, RepositoryView, unreadable_problem
from reconciler.names.ids import Lifecycle, PackageKey
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, deletion_ref, parse_ref, short_branch
from reconciler.plan.changes import Change, Op
from reconciler.plan.compose import Held, Veto
from reconciler.plan.context import PlanContext
from reconciler.policy import OnUnavailable


def with_unread_repositories(problems: Collection[Problem], inventory: Inventory) -> tuple[Problem, ...]:
    """Return the problems with one for every repository that could not be read.

    A variant or set that needs such a repository is counted there: one dead repository with a
    thousand variants gives one line.
    """
    unread = [view for view in inventory.repositories.values() if view.problem]
    needing = {(p.repository, p.owner) for p in problems if p.repository is not None}
    counts = Counter(repository for repository, _ in needing)
    reported = (p for p in problems if p.repository is None)
    return (*reported, *(_problem(view, view.problem, counts[view.key]) for view in unread if view.problem))


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


def _problem(view: RepositoryView, problem: Problem, count: int) -> Problem:
    needing = f"{count} {verb(count, 'variant or set that needs it is', 'variants or sets that need it are')}"
    stalled = f"; {needing} kept as {verb(count, 'it is', 'they are')}" if count else ""
    return replace(problem, message=f"{view.unread_message}{stalled}", consequence=stalled)


def find_unreadable_pulls(
    changes: Mapping[PackageKey, Change], context: PlanContext
) -> tuple[Mapping[PackageKey, Held], tuple[Problem, ...]]:
    """Return the vetoes of packages with a pull request that cannot be read, and a problem of each.

    People's answers there are unknown, so nothing of such a package is written but the tags of main's
    revisions. The other packages of the repository proceed, also where not even the branch is legible.
    """
    vetoes = {}
    for key, change in changes.items():
        if pull := _find_unreadable(change, context):
            message = f"Pull request #{pull.number} cannot be read: {pull.unreadable}"
            op = Op.KEEP if change.before is not None else Op.BLOCK
            vetoes[key] = Held(Veto.PULL_REQUEST, Reason.PULL_REQUEST_UNREADABLE, message, op)
    problems: list[Problem] = []
    for url, pulls in sorted(context.inventory.unreadable_pulls.items()):
        for view in context.inventory.views_of(url)[:1]:
            where, name = view.source.at("spec", "git", "repo"), f"repository {view.key.name}"
            problems += [unreadable_problem(where, name, pull).owned_by(view.owner) for pull in pulls]
    return vetoes, tuple(problems)


def _find_unreadable(change: Change, context: PlanContext) -> PullRequest | None:
    """Return the unreadable pull request that a change of ours is about, None for none."""
    pulls = context.inventory.unreadable_pulls.get(change.package.url, ())
    if not pulls or change.variant is None:
        return None
    path, draft = change.package.path, context.targets[change.package].draft
    refs = [deletion_ref(context.inventory.policy.instance, path), *([draft.ref] if draft else [])]
    refs += [write.ref for write in change.writes if write.ref.startswith(HEADS)]
    heads = {change.group, *map(short_branch, refs)}
    return next((p for p in pulls if p.head and (p.head in heads or _drafts(p.head, path))), None)


def _drafts(head: str, path: str) -> bool:
    """Whether a head is a draft or proposal of the package at `path`."""
    named = parse_ref(f"{HEADS}{head}")
    is_draft = named is not None and named.lifecycle in {Lifecycle.DRAFT, Lifecycle.PROPOSED}
    return is_draft and named is not None and named.path == path
