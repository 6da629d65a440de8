"""What the forges of a run say: pull requests, what people ask for, the checks that passed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.errors import Location, Problem, UnavailableError
from reconciler.forge.choose import Forges
from reconciler.git.repository import Mirror, Mirrors
from reconciler.ids import ObjectName
from reconciler.inventory import PullRequest, PullState, RepositoryView, ReviewedLock
from reconciler.layout import HEADS
from reconciler.lock import LOCKS_DIRECTORY
from reconciler.policy import Policy
from reconciler.read.checks import read_passed
from reconciler.read.dashboard import read_asked
from reconciler.reasons import Reason

Pulls = Mapping[str, tuple[PullRequest, ...]]
"""Pull requests by normalised URL; a repository that was not asked is missing."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What forges said, and what that makes of repositories and of the reviewed lock.

    `asked` are the boxes that people ticked on the dashboard, `passed` the checks that passed, by
    repository and commit.
    """

    views: Mapping[ObjectName, RepositoryView]
    reviewed: ReviewedLock | None = None
    pulls: Pulls = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    passed: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the reviewed lock; a repository has its own problem."""
        return self.reviewed.problems if self.reviewed else ()


def ask_forges(known: Answers, control: Mirror, mirrors: Mirrors, forges: Forges, policy: Policy) -> Answers:
    """Return what is known and what the forges add to it. Total: a forge that is dead costs its own.

    Args:
        known: Repositories and the reviewed lock, before any forge was asked.
        control: The control repository.
        mirrors: Where repositories are opened.
        forges: Whom to ask, configured.
        policy: What is wanted of them.
    """
    pulls, views = _read_pulls(known.views, mirrors, forges)
    passed = dict(read_passed(views, pulls, forges, mirrors, policy))
    reviewed = known.reviewed
    if reviewed is not None:
        reviewed, pulls = _with_lock_pulls(reviewed, pulls, control, forges)
    if not policy.dashboard:
        return Answers(views, reviewed, pulls, passed=passed)
    asked, notes = read_asked(forges.of(control), policy.instance)
    return Answers(views, reviewed, pulls, asked, passed, notes)


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
            forges.unread(view.remote, view.url)
            continue
        try:
            mirror = mirrors.open(view.remote)
            if forges.asks(mirror):
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
