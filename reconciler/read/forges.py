"""What the forges of a run say: pull requests, what people ask for, the checks that passed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reconciler.errors import Location, Problem, ReconcilerError, UnavailableError
from reconciler.forge.api_forge import ApiForge
from reconciler.forge.registry import Forge, Forges
from reconciler.git.repository import Mirror, Mirrors
from reconciler.ids import ObjectName
from reconciler.inventory import PullRequest, PullState, RepositoryView, ReviewedLock, unreadable_problem
from reconciler.lock import LOCKS_DIRECTORY
from reconciler.plan.approvals import wanted_checks
from reconciler.plan.asking import asked_keys, dashboard_key
from reconciler.policy import Policy
from reconciler.reasons import Reason
from reconciler.refs import HEADS, lock_ref, short_branch

Pulls = Mapping[str, tuple[PullRequest, ...]]
"""Pull requests by normalised URL; a repository that was not asked is missing."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What forges said, and what that makes of repositories and of the reviewed lock.

    `asked` are the boxes that people ticked on the dashboard, `passed` the checks that passed, by
    repository and commit. `unreadable` are pull requests of which nothing but the head may be known.
    """

    views: Mapping[ObjectName, RepositoryView]
    reviewed: ReviewedLock | None = None
    pulls: Pulls = field(default_factory=dict)
    unreadable: Pulls = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    passed: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the reviewed lock; a repository has its own problem."""
        return self.reviewed.problems if self.reviewed else ()


def read_forges(known: Answers, control: Mirror, mirrors: Mirrors, forges: Forges, policy: Policy) -> Answers:
    """Return what is known and what the forges add to it. Total: a forge that is dead costs its own.

    Args:
        known: Repositories and the reviewed lock, before any forge was asked.
        control: The control repository.
        mirrors: Where repositories are opened.
        forges: Whom to ask, configured.
        policy: What is wanted of them.
    """
    listed, views = _read_pulls(known.views, mirrors, forges)
    reviewed = known.reviewed
    if reviewed is not None:
        reviewed, listed = _with_lock_pulls(reviewed, listed, control, forges)
        reviewed = _with_unreadable_pulls(reviewed, listed.get(control.url, ()), policy.instance)
    unreadable = {url: broken for url, pulls in listed.items() if (broken := _unreadable(pulls))}
    pulls = {url: tuple(p for p in pulls if not p.unreadable) for url, pulls in listed.items()}
    passed = dict(read_passed(views, pulls, forges, mirrors, policy))
    answers = Answers(views, reviewed, pulls, unreadable, passed=passed)
    if not policy.dashboard:
        return answers
    asked, notes = read_asked(forges.of(control), policy.instance)
    return replace(answers, asked=asked, notes=notes)


def _unreadable(pulls: Iterable[PullRequest]) -> tuple[PullRequest, ...]:
    return tuple(pull for pull in pulls if pull.unreadable)


def _read_pulls(
    views: Mapping[ObjectName, RepositoryView], mirrors: Mirrors, forges: Forges
) -> tuple[dict[str, tuple[PullRequest, ...]], dict[ObjectName, RepositoryView]]:
    """List the pull requests of every repository; one whose forge is dead is unavailable (D21).

    Where another shard writes and asking costs of a quota, that shard asks.
    """
    pulls: dict[str, tuple[PullRequest, ...]] = {}
    dead: dict[str, UnavailableError] = {}
    for view in views.values():
        if view.url in pulls or view.url in dead:
            continue
        if not view.is_available:
            forges.mark_unread(view.remote, view.url)
            continue
        try:
            mirror = mirrors.open(view.remote)
            if forges.lists_pulls(mirror):
                pulls[view.url] = _current(forges.of(mirror).list_pulls(), mirror)
        except UnavailableError as error:
            dead[view.url] = error
    return pulls, {k: _without(v, dead[v.url]) if v.url in dead else v for k, v in views.items()}


def _current(pulls: tuple[PullRequest, ...], mirror: Mirror) -> tuple[PullRequest, ...]:
    """Return the pull requests, if they are of the same moment as the branches that were read before them.

    Raises: UnavailableError if one is open and its branch is not here: another run pushed meanwhile,
    and this one would take its draft for a name in use and propose the package twice.
    """
    refs = mirror.refs()
    newer = [p.head for p in pulls if p.state is PullState.OPEN and f"{HEADS}{p.head}" not in refs]
    if newer:
        message = f"Branch {newer[0]} of {mirror.remote} came while it was read: another run is writing"
        raise UnavailableError(message, hint="Run again.")
    return pulls


def _without(view: RepositoryView, error: UnavailableError) -> RepositoryView:
    where = view.source.at("spec", "git", "repo")
    problem = Problem(where, Reason.REPOSITORY_UNAVAILABLE, str(error), error.hint, f"Repository {view.key}")
    return replace(view, problem=problem, head=None, packages={}, branches={}, tags={})


def _with_lock_pulls(
    reviewed: ReviewedLock, pulls: dict[str, tuple[PullRequest, ...]], control: Mirror, forges: Forges
) -> tuple[ReviewedLock, dict[str, tuple[PullRequest, ...]]]:
    """Add the control repository's pull requests; where they cannot be listed the lock says why."""
    if control.url in pulls:
        return reviewed, pulls
    try:
        return reviewed, {**pulls, control.url: _current(forges.of(control).list_pulls(), control)}
    except UnavailableError as error:
        message = f"The pull requests of the control repository cannot be listed: {error}"
        where = Location(LOCKS_DIRECTORY)
        problem = Problem(where, Reason.REPOSITORY_UNAVAILABLE, message, error.hint)
        return replace(reviewed, is_open=False, problems=(*reviewed.problems, problem)), pulls


def _with_unreadable_pulls(
    reviewed: ReviewedLock, pulls: Iterable[PullRequest], instance: str
) -> ReviewedLock:
    """Return the lock closed to proposals if the pull request that proposes another one cannot be read."""
    head = short_branch(lock_ref(instance))
    broken = [pull for pull in _unreadable(pulls) if pull.head == head]
    if not broken:
        return reviewed
    where = Location(LOCKS_DIRECTORY)
    problems = (unreadable_problem(where, "the control repository", pull) for pull in broken)
    return replace(reviewed, is_open=False, problems=(*reviewed.problems, *problems))


def read_passed(
    views: Mapping[ObjectName, RepositoryView],
    pulls: Mapping[str, tuple[PullRequest, ...]],
    forges: Forges,
    mirrors: Mirrors,
    policy: Policy,
) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """Yield the checks that passed by repository and commit. What cannot be asked has passed nothing."""
    by_url: dict[str, list[RepositoryView]] = {}
    for view in views.values() if any(rule.checks for rule in policy.approvals) else ():
        if view.is_available:
            by_url.setdefault(view.url, []).append(view)
    for url, some in by_url.items():
        forge = forges.of(mirrors.open(some[0].remote))
        for commit in wanted_checks(some, pulls.get(url, ()), policy):
            try:
                yield (url, commit), forge.passed_checks(commit)
            except ReconcilerError:
                continue


def read_asked(forge: Forge, instance: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return what is asked for on the dashboard of an instance, and notes on what could not be read.

    Total: a dashboard that cannot be read asks for nothing, this time.
    """
    if not isinstance(forge, ApiForge):
        return frozenset(), ()
    try:
        issue = forge.find_issue(dashboard_key(instance))
    except UnavailableError as error:
        return frozenset(), (f"The dashboard cannot be read: {error}",)
    return asked_keys(issue.body) if issue is not None and issue.is_open else frozenset(), ()
