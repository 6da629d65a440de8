"""What ended long ago is recorded, not listed, and a plan can tell no difference."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.forge.api.dialect import ApiPullRequest
from reconciler.forge.api.forge import ApiForge, KnownPulls
from reconciler.forge.http import Budget
from reconciler.http.client import Clock
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.refs import HEADS
from reconciler.plan.context import newest_pull
from reconciler.policy import WriteLimits
from reconciler.records.state import PullHistory
from tests.support.values import replace

HOUR, DAY = 3600.0, 86400.0
HEADS_OF_DRAFTS = [f"drafts/{path}/packagevariant-{n}" for path in ("web", "db") for n in (1, 2, 3)]
OTHERS = ["drafts/web/feature", "reconciler/fleet/delete/web", "reconciler/fleet/group/repository/r/1"]
ACTS = ["open", "open merge delete", "open close", "open close delete", "reopen", "comment", "restore"]
EVENTS = st.tuples(st.sampled_from(ACTS), st.sampled_from([*HEADS_OF_DRAFTS, *OTHERS]))


@dataclass
class Forge:
    """A repository on a forge: its pull requests and branches, in pages of two."""

    now: float = 1_700_000_000.0
    pulls: dict[int, ApiPullRequest] = field(default_factory=dict)
    branches: set[str] = field(default_factory=set)
    pages: int = 0
    name: str = "acme/edge"

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        yield from self._paged(sorted(self.pulls.values(), key=lambda pull: pull.number))

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        yield from self._paged([pull for pull in self.pulls.values() if pull.state is PullState.OPEN])

    def list_changed(self, _since: float = 0.0) -> Iterator[list[ApiPullRequest]]:
        ended = [pull for pull in self.pulls.values() if pull.state is not PullState.OPEN]
        yield from self._paged(sorted(ended, key=lambda pull: (-pull.changed, -pull.number)))

    def _paged(self, pulls: list[ApiPullRequest]) -> Iterator[list[ApiPullRequest]]:
        for start in range(0, max(1, len(pulls)), 2):
            self.pages += 1
            yield pulls[start : start + 2]

    def happen(self, events: str, head: str) -> None:
        """Let people do something about a branch or about its newest pull request, after some hours."""
        for event in events.split():
            self.now += HOUR * 5
            self._happen(event, head)

    def _happen(self, event: str, head: str) -> None:
        newest = max((p for p in self.pulls.values() if p.head == head), key=lambda p: p.number, default=None)
        is_open = newest is not None and newest.state is PullState.OPEN
        match event:
            case "open" if not is_open:
                self.branches.add(head)
                number = len(self.pulls) + 1
                self.change(ApiPullRequest(number, head, "main", "", "", False, PullState.OPEN, f"{number}"))
            case "close" | "merge" if is_open and newest is not None:
                state = PullState.CLOSED if event == "close" else PullState.MERGED
                self.change(replace(newest, state=state))
            case "reopen" if newest is not None and newest.state is PullState.CLOSED:
                self.branches.add(head)
                self.change(replace(newest, state=PullState.OPEN))
            case "comment" if newest is not None:
                self.change(newest)
            case "delete" if not is_open:
                self.branches.discard(head)
            case "restore" if newest is not None:
                self.branches.add(head)

    def change(self, pull: ApiPullRequest) -> None:
        created = pull.created or self.now
        self.pulls[pull.number] = replace(pull, times=(created, self.now))

    def read(self, history: PullHistory | None, branches: Collection[str] = ()) -> KnownPulls:
        """Return what a run reads with the history of an earlier one."""
        clock = Clock(lambda: self.now, lambda _: None)
        transport = SimpleNamespace(budget=Budget(WriteLimits(), clock), clock=clock, skew_s=0.0)
        forge = ApiForge(cast("Any", self), cast("Any", transport), "fleet")
        return forge.list_known("host/acme/edge", history, branches or self.branches)


def judgements(pulls: tuple[PullRequest, ...], branches: Collection[str]) -> dict[str, Any]:
    """Return all that a plan takes from ended pull requests."""
    drafts = [branch for branch in branches if branch.startswith("drafts/")]
    by_branch = {b: {(p.number, p.state, p.head_oid) for p in pulls if p.head == b} for b in drafts}
    last = {head: newest_pull(pulls, f"{HEADS}{head}") for head in {*branches, *OTHERS[1:]}}
    of_package = {}
    for path in ("drafts/web/", "drafts/db/"):
        own = [p for p in pulls if p.head.startswith(path)]
        names = {p.head for p in own if "packagevariant" in p.head}
        of_package[path] = (max((p.number for p in own), default=0), max(names, default=""))
    opened = {p.number for p in pulls if p.state is PullState.OPEN}
    return {
        "branches": by_branch,
        "last": {head: (p.number, p.state, p.head_oid) for head, p in last.items() if p},
        "packages": of_package,
        "open": opened,
    }


GONE = "open close delete"


@example([[(GONE, HEADS_OF_DRAFTS[index]) for index in (2, 0, 3, 3, 3)], []])
@given(st.lists(st.lists(EVENTS, min_size=3, max_size=12), min_size=2, max_size=4))
def test_recorded_pull_requests_are_judged_as_listed_ones(rounds: list[list[tuple[str, str]]]) -> None:
    forge, history = ended(5), None
    for number, acts in enumerate(rounds):
        history = forge.read(history).history if number else None
        for events, head in acts:
            forge.happen(events, head)

    known, listed = forge.read(history), forge.read(None)

    assert judgements(known.pulls, forge.branches) == judgements(listed.pulls, forge.branches)


def ended(count: int) -> Forge:
    """Return a repository with so many ended pull requests, the last one five days old."""
    forge = Forge()
    for _ in range(count):
        forge.happen("open close", "drafts/web/packagevariant-1")
    forge.now += 5 * DAY
    return forge


def pages(forge: Forge, history: PullHistory | None) -> int:
    before = forge.pages
    forge.read(history)
    return forge.pages - before


@pytest.mark.parametrize(("count", "is_recorded"), [(0, False), (4, False), (5, True), (40, True)])
def test_a_history_is_recorded_where_it_spares_requests(count: int, is_recorded: bool) -> None:
    forge = ended(count)

    history = forge.read(None).history

    assert (history is not None) is is_recorded
    assert pages(forge, history) <= 2


def test_what_ended_since_is_recorded_once_it_takes_more_than_a_page() -> None:
    forge = ended(9)
    history = forge.read(None).history
    assert forge.read(history).history == history

    for _ in range(3):
        forge.happen("open merge", "drafts/db/packagevariant-1")
    forge.now += DAY
    following = forge.read(history).history

    assert (pages(forge, history), pages(forge, following)) == (1 + 3 + 1, 2)


@pytest.mark.parametrize("order", [1, -1])
def test_pull_request_that_two_pages_have_counts_as_it_changed_last(order: int) -> None:
    forge = ended(1)
    pull = replace(forge.pulls[1], state=PullState.OPEN)
    later = replace(pull, state=PullState.MERGED, times=(pull.created, pull.changed + HOUR))
    forge.list_all = lambda: iter([[pull], [later]][::order])  # type: ignore[method-assign]

    assert [known.state for known in forge.read(None).pulls] == [PullState.MERGED]


def test_another_repository_of_the_name_is_listed_anew() -> None:
    old, new = ended(9), ended(9)
    new.pulls = {n: replace(p, times=tuple(t + DAY for t in p.times)) for n, p in new.pulls.items()}

    known = new.read(old.read(None).history)

    assert known.is_due
    assert [pull.number for pull in known.pulls] == list(new.pulls)


def test_what_changes_while_pages_are_read_is_not_missed() -> None:
    forge = ended(9)
    history = forge.read(None).history
    for _ in range(4):
        forge.happen("open close", "drafts/db/packagevariant-1")
    original = forge.list_changed

    def list_changed(_since: float = 0.0) -> Iterator[list[ApiPullRequest]]:
        for number, page in enumerate(original()):
            yield page
            if number == 0 and forge.pulls[10].state is PullState.CLOSED:
                forge.change(replace(forge.pulls[10], state=PullState.MERGED))
                forge.now += 1

    forge.list_changed = list_changed  # type: ignore[method-assign]

    assert {p.number: p.state for p in forge.read(history).pulls}[10] is PullState.MERGED


def test_an_unreadable_pull_request_stays_listed() -> None:
    forge = ended(9)
    forge.pulls[3] = replace(forge.pulls[3], unreadable="its title is missing", times=())

    assert forge.read(None).history is None
