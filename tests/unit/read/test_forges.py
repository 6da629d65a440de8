"""Answers of forges: pull requests, checks and requests on the dashboard. One that fails stops no other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import REPOSITORY, Repository
from reconciler.base.errors import Location, RefusedError, UnavailableError
from reconciler.base.reasons import Reason
from reconciler.forge.api.forge import ApiForge, KnownPulls
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import (
    CheckState,
    Commit,
    PullRequest,
    PullState,
    RepositoryView,
    ReviewedLock,
    Source,
    unreadable_problem,
)
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.names.trailers import KEEPS, TAKES
from reconciler.policy import Policy, RolloutPolicy
from reconciler.policy.rollouts import Gates, Wave
from reconciler.read.forges import ForgeState, read_forges
from tests.support.git import Repo, make_repository
from tests.support.values import replace

WHERE = Location("locks")
LOCK_HEAD = "reconciler/demo/lock"
DOWN = UnavailableError("it is down", hint="Wait.")
POLICY = Policy(instance="demo")


@dataclass
class Forge:
    """The pull requests of one repository, or an error."""

    pulls: tuple[PullRequest, ...] | UnavailableError = ()
    found: Mapping[str, CheckState] | RefusedError = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def list_pulls(self) -> tuple[PullRequest, ...]:
        self.asked.append("pulls")
        if isinstance(self.pulls, UnavailableError):
            raise self.pulls
        return self.pulls

    def checks(self, commit: str) -> Mapping[str, CheckState]:
        self.asked.append(commit)
        if isinstance(self.found, RefusedError):
            raise self.found
        return self.found


@dataclass
class Fleet:
    """The forges of repositories by the names of their directories."""

    root: Path
    forges: dict[str, Any] = field(default_factory=dict)
    unlisted: frozenset[str] = frozenset()
    unread: list[tuple[str, str]] = field(default_factory=list)
    lists_ended: bool = False
    histories: dict[str, Any] = field(default_factory=dict)
    """What earlier runs recorded, by URL."""

    def __post_init__(self) -> None:
        self.mirrors = Mirrors(self.root / "cache")

    def of(self, mirror: Any) -> Any:
        return self.forges[Path(mirror.url).name]

    def lists_pulls(self, mirror: Any) -> bool:
        return Path(mirror.url).name not in self.unlisted

    def mark_unread(self, remote: str, url: str) -> None:
        self.unread.append((remote, url))

    def repository(self, name: str, pulls: Any = ()) -> Repo:
        self.forges[name] = Forge(pulls)
        return make_repository(self.root / f"{name}.git", {"x": "1"})

    def view(self, name: str, key: str = "", **fields: Any) -> RepositoryView:
        mirror = self.mirrors.open(str(self.root / f"{name}.git"))
        key = key or name
        manifest = Repository(api_version=REPOSITORY, kind="Repository", metadata=ObjectMeta(name=key))
        place = Source(Location(f"{key}.yaml"))
        return RepositoryView(
            ObjectName("default", key), mirror.url, mirror.remote, "main", "", manifest, place, **fields
        )

    def read(
        self, *views: RepositoryView, reviewed: ReviewedLock | None = None, policy: Policy = POLICY
    ) -> ForgeState:
        control = self.mirrors.open(str(self.root / "control.git"))
        state = ForgeState({view.key: view for view in views}, reviewed, self.histories)
        return read_forges(state, control, self.mirrors, cast("Any", self), policy)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    fleet.repository("control")
    return fleet


def pull(head: str, **fields: Any) -> PullRequest:
    return PullRequest(head, "main", "Title", "Text", **{"number": 1, **fields})


def propose(repo: Repo, *heads: str) -> None:
    for head in heads:
        repo.point(f"refs/heads/{head}", repo.oid("main"))


def test_unreachable_forge_makes_each_view_of_its_repository_unavailable_and_no_other(fleet: Fleet) -> None:
    fleet.repository("down", DOWN)
    fleet.repository("edge")
    files = {
        "directories": {"p": "1"},
        "branches": {"main": "x"},
        "tags": {"v1": "x"},
        "packages": {"p": "x"},
    }
    down = [fleet.view("down", key, head=cast("Any", "x"), **files) for key in ("a", "b")]
    edge = fleet.view("edge")

    state = fleet.read(*down, edge)

    for view in down:
        problem = view.problem_at(Reason.REPOSITORY_UNAVAILABLE, "it is down", "Wait.")
        empty = replace(view, problem=problem, head=None, packages={}, branches={}, tags={})
        assert state.views[view.key] == empty
    assert state.views[edge.key] == edge
    assert state.pulls == {edge.url: ()}
    assert fleet.forges["down"].asked == ["pulls"]


@pytest.mark.parametrize("state", PullState)
def test_open_pull_request_whose_branch_is_not_here_was_pushed_meanwhile(fleet: Fleet, state) -> None:
    fleet.repository("edge", (pull("new", state=state),))
    view = fleet.view("edge")

    read = fleet.read(view)

    if state is not PullState.OPEN:
        assert read.views == {view.key: view}
        return
    problem = read.views[view.key].problem
    assert problem is not None
    assert problem.message == f"Branch new of {view.remote} came while it was read: another run is writing"
    assert problem.hint == "Run again."
    assert read.pulls == {}


EARLIER = Problem(Location("locks/x"), Reason.INVALID_STATE, "earlier")


def test_lock_is_closed_where_its_pull_requests_cannot_be_listed(fleet: Fleet) -> None:
    fleet.forges["control"] = Forge(DOWN)

    state = fleet.read(reviewed=ReviewedLock("main", problems=(EARLIER,)))

    message = "The pull requests of the control repository cannot be listed: it is down"
    problem = Problem(WHERE, Reason.REPOSITORY_UNAVAILABLE, message, "Wait.")
    assert state.reviewed == ReviewedLock("main", is_open=False, problems=(EARLIER, problem))
    assert state.problems == (EARLIER, problem)
    assert state.pulls == {}


@pytest.mark.parametrize(
    ("head", "unreadable", "is_open"),
    [(LOCK_HEAD, "why", False), ("other", "why", True), (LOCK_HEAD, "", True)],
)
def test_lock_is_closed_where_the_pull_request_of_its_branch_is_unreadable(
    fleet: Fleet, head: str, unreadable: str, is_open: bool
) -> None:
    broken = pull(head, unreadable=unreadable)
    propose(Repo(fleet.root / "control.git"), head)
    fleet.forges["control"] = Forge((broken,))

    state = fleet.read(reviewed=ReviewedLock("main", problems=(EARLIER,)))

    assert state.reviewed is not None
    problems = () if is_open else (unreadable_problem(WHERE, "the control repository", broken),)
    assert (state.reviewed.is_open, state.reviewed.problems) == (is_open, (EARLIER, *problems))


OPEN = (pull("a", head_oid="1"), pull("b", head_oid="2"), pull("c", head_oid="3", state=PullState.CLOSED))


def test_checks_that_a_gate_needs_are_read_of_the_head_of_main(fleet: Fleet) -> None:
    rollout = RolloutPolicy(waves=(Wave("canary", gates=Gates(checks=("build",))),))
    propose(fleet.repository("edge"), "a", "b", "c")
    fleet.forges["edge"] = Forge(OPEN, {"build": CheckState.PASSED})
    view = replace(fleet.view("edge"), head=Commit(Oid("9" * 40), 0))

    state = fleet.read(view, policy=replace(POLICY, rollouts=(rollout,)))

    assert state.passed_checks == {(view.url, "9" * 40): {"build"}}
    assert fleet.forges["edge"].asked == ["pulls", "9" * 40]


@dataclass(eq=False)
class Listing(ApiForge):
    """A forge that returns its open pull request, and the ended one if it is asked for everything."""

    following: Any = None
    is_due: bool = False
    asked: list[Any] = field(default_factory=list)

    def list_pulls(self) -> tuple[PullRequest, ...]:
        return (pull("a"), pull("b", number=2, state=PullState.MERGED))

    def list_known(self, url: str, history: Any, branches: Any) -> KnownPulls:
        self.asked.append((url, history, branches))
        return KnownPulls((pull("a"),), self.following, self.is_due)


@pytest.mark.parametrize(
    ("ticks", "named"),
    [
        ({(KEEPS, "a")}, []),
        ({(TAKES, "a")}, []),
        ({(KEEPS, "a"), (TAKES, "b")}, []),
        ({(KEEPS, "a"), (TAKES, "a"), (TAKES, "b")}, ["a"]),
    ],
)
def test_conflict_with_both_boxes_ticked_is_noted(fleet: Fleet, ticks, named) -> None:
    propose(fleet.repository("edge", (pull("a", ticks=frozenset(ticks)),)), "a")

    notes = fleet.read(fleet.view("edge")).notes

    text = "Both boxes of a conflict are ticked in pull request #1 of edge, so neither counts. Untick one: "
    assert [note.removeprefix(text) for note in notes] == named


def test_forge_with_an_api_lists_what_the_recorded_history_does_not_have(fleet: Fleet) -> None:
    repo = fleet.repository("edge")
    propose(repo, "a")
    repo.tag("v1")
    view = fleet.view("edge")
    forge = fleet.forges["edge"] = Listing(following="new", is_due=True)
    fleet.histories = {view.url: "old", "unregistered": "older"}

    state = fleet.read(view)

    assert forge.asked == [(view.url, "old", {"main", "a"})]
    assert state.pulls == {view.url: (pull("a"),)}
    assert (state.histories, state.is_history_due) == ({view.url: "new"}, True)
