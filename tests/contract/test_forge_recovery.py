"""What a run and the next one do after a fault of a forge: each write, each fault, each lag of the lists.

The next run is another process an hour later. It completes what was not done, writes nothing else, and
leaves the forge as if nothing had happened. GitLab's dialect stands for all: the steps are shared.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import pytest

from reconciler.base.errors import ReconcilerError, RefusedError, UnavailableError
from reconciler.forge.api.forge import ApiForge
from reconciler.http.client import LimitedError, LostReplyError, UnauthorizedError
from reconciler.inventory.inventory import PullRequest
from tests.support.forges.bench import HEADS, SimulatorBench, simulated
from tests.support.values import replace

pytestmark = pytest.mark.slow

HOUR_S = 3700
DESIRED = PullRequest(HEADS["web"], "main", "Create web", "Why.", draft=False)


class Write(NamedTuple):
    """A write: the calls before it, the call that makes it, and its request."""

    kind: str
    before: tuple[Callable[[ApiForge], object], ...]
    call: Callable[[ApiForge], object]
    method: str
    path: str


def opens(forge: ApiForge) -> object:
    return forge.ensure(DESIRED)


def opens_draft(forge: ApiForge) -> object:
    return forge.ensure(replace(DESIRED, draft=True))


def comments(body: str) -> Callable[[ApiForge], object]:
    return lambda forge: forge.comment(1, key="note", body=body)


def writes_issue(body: str) -> Callable[[ApiForge], object]:
    return lambda forge: forge.write_issue("dashboard", "Dashboard", body)


def merges(forge: ApiForge) -> object:
    (pull,) = forge.list_pulls()
    return forge.merge(1, expect=pull.head_oid)


REPEATED, IN_TWO, SOUGHT, OPENED, ISSUE = "repeated", "two requests", "looked up", "opened", "issue"
MERGED = "merged"
"""A request that may be repeated; two such; one whose effect is looked up first, by number or in a list."""
PULL = "merge_requests/1$"
WRITES = {
    "open": Write(OPENED, (), opens, "POST", "merge_requests$"),
    "edit": Write(REPEATED, (opens,), lambda f: f.ensure(replace(DESIRED, title="Update web")), "PUT", PULL),
    "label": Write(IN_TWO, (opens,), lambda f: f.ensure(replace(DESIRED, labels=("edge",))), "PUT", PULL),
    "mark ready": Write(REPEATED, (opens_draft,), lambda f: f.mark_ready(1), "PUT", PULL),
    "mark as draft": Write(REPEATED, (opens,), lambda f: f.mark_draft(1), "PUT", PULL),
    "close": Write(REPEATED, (opens,), lambda f: f.close(1, comment=""), "PUT", PULL),
    "comment": Write(SOUGHT, (opens,), comments("One."), "POST", "notes$"),
    "edit comment": Write(REPEATED, (opens, comments("One.")), comments("Two."), "PUT", "notes/"),
    "merge": Write(MERGED, (opens,), merges, "PUT", "merge$"),
    "open issue": Write(ISSUE, (), writes_issue("One."), "POST", "issues$"),
    "edit issue": Write(REPEATED, (writes_issue("One."),), writes_issue("Two."), "PUT", "issues/1$"),
}


class Fault(NamedTuple):
    """A fault of so many requests of one kind."""

    kind: str
    times: int


ALWAYS = 99
FAULTS = {
    "none": Fault("", 0),
    "connection breaks before the write": Fault("reset_before", 1),
    "server fails before the write": Fault("503", 1),
    "connection breaks after the write": Fault("reset_after", 1),
    "reply is cut short": Fault("truncated", 1),
    "every reply is lost": Fault("reset_after", ALWAYS),
    "every connection breaks": Fault("reset_before", ALWAYS),
    "one limit": Fault("429", 1),
    "every write is limited": Fault("429", ALWAYS),
    "token may not write": Fault("403", ALWAYS),
    "token is refused": Fault("401", ALWAYS),
}
BEFORE = ("connection breaks before the write", "server fails before the write")
AFTER = ("connection breaks after the write", "reply is cut short")
LAGS_S = {"at once": 0, "in 20 s": 20, "after the run": 600}
KINDS = (REPEATED, IN_TWO, SOUGHT, OPENED, ISSUE, MERGED)
SOON, LATE, EVER = ("at once", "in 20 s"), ("after the run",), tuple(LAGS_S)


class Outcome(NamedTuple):
    """The error of the run, None if the write was done, and whether the next run has to write."""

    error: type[ReconcilerError] | None
    is_left: bool


DONE = Outcome(None, is_left=False)
UNKNOWN = Outcome(LostReplyError, is_left=False)
LOST = Outcome(LostReplyError, is_left=True)


class Rule(NamedTuple):
    kinds: tuple[str, ...]
    faults: tuple[str, ...]
    lags: tuple[str, ...]
    outcome: Outcome
    reason: str


RULES = [
    Rule(KINDS, ("none",), EVER, DONE, "nothing happened"),
    Rule((REPEATED, IN_TWO), (*BEFORE, *AFTER), EVER, DONE, "repeating it changes nothing"),
    Rule((SOUGHT, MERGED), (*BEFORE, *AFTER), EVER, DONE, "it is read by number, which shows it at once"),
    Rule((OPENED,), BEFORE, EVER, DONE, "the forge refuses a second one: it may be repeated"),
    Rule((OPENED,), AFTER, SOON, DONE, "the list shows it within a minute"),
    Rule((OPENED,), AFTER, LATE, Outcome(UnavailableError, is_left=False),
         "the forge says that it exists, and nothing tells which it is"),
    Rule((ISSUE,), BEFORE, EVER, LOST, "the forge accepts a second one: it is not repeated in this run"),
    Rule((ISSUE,), AFTER, SOON, DONE, "the list shows it within a minute"),
    Rule((ISSUE,), AFTER, LATE, UNKNOWN, "the next run sees it"),
    Rule((REPEATED,), ("every reply is lost",), EVER, UNKNOWN, "the next run sees it"),
    Rule((IN_TWO,), ("every reply is lost",), EVER, LOST, "the second request was not sent"),
    Rule((SOUGHT, MERGED), ("every reply is lost",), EVER, DONE,
         "it is read by number, which shows it at once"),
    Rule((OPENED, ISSUE), ("every reply is lost",), SOON, DONE, "the list shows it within a minute"),
    Rule((OPENED, ISSUE), ("every reply is lost",), LATE, UNKNOWN, "the next run sees it"),
    Rule(KINDS, ("every connection breaks",), EVER, LOST, "it was never done"),
    Rule(KINDS, ("one limit",), EVER, DONE, "the run waits as long as it must"),
    Rule(KINDS, ("every write is limited",), EVER, Outcome(LimitedError, is_left=True),
         "a second limit ends the writes of the run"),
    Rule(KINDS, ("token may not write",), EVER, Outcome(RefusedError, is_left=True), "waiting does not help"),
    Rule((OPENED, ISSUE, REPEATED, IN_TWO, SOUGHT), ("token is refused",), EVER,
         Outcome(UnauthorizedError, is_left=True), "another one may do"),
    Rule((MERGED,), ("token is refused",), EVER, Outcome(RefusedError, is_left=True),
         "GitLab refuses so an account that may not merge: the token may read"),
]  # fmt: skip
ROWS = {row: rule for rule in RULES for row in product(rule.kinds, rule.faults, rule.lags)}


def test_every_kind_fault_and_lag_has_one_rule() -> None:
    assert set(ROWS) == set(product(KINDS, FAULTS, LAGS_S))
    assert len(ROWS) == sum(len(rule.kinds) * len(rule.faults) * len(rule.lags) for rule in RULES) == 198
    assert {write.kind for write in WRITES.values()} == set(KINDS)


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatorBench]:
    with simulated("gitlab", tmp_path_factory.mktemp("forge")) as bench:
        yield bench


def forge_state(bench: SimulatorBench) -> list[tuple[object, ...]]:
    """Return everything that pull requests and issues show."""
    pulls = sorted(bench.hosted.pulls.values(), key=lambda pull: pull.number)
    return [
        (p.head, p.title, p.body, p.state, p.draft, p.labels, bool(p.merged), list(p.comments.values()))
        for p in pulls
    ]


def call(write: Write, bench: SimulatorBench) -> tuple[type[ReconcilerError] | None, int]:
    """Make the call in a new process; return the type of its error and the number of its writes."""
    before = len(bench.simulator.writes())
    try:
        write.call(bench.again(timeout_s=0.5))
    except ReconcilerError as error:
        return type(error), len(bench.simulator.writes()) - before
    return None, len(bench.simulator.writes()) - before


def begin(write: Write, bench: SimulatorBench, main: str) -> None:
    bench.hosted.pulls.clear()
    bench.simulator.hidden.clear()
    bench.hosted.repo.point("refs/heads/main", main)
    for prepare in write.before:
        prepare(bench.again())


@pytest.mark.parametrize("name", WRITES)
def test_next_run_completes_a_write_once(forge: SimulatorBench, name: str) -> None:
    write, simulator, main = WRITES[name], forge.simulator, forge.hosted.repo.oid("main")
    begin(write, forge, main)
    write.call(forge.again())
    undisturbed = forge_state(forge)

    for fault, lag in product(FAULTS, LAGS_S):
        rule = ROWS[write.kind, fault, lag]
        row = f"{name}; {fault}; shown {lag}: {rule.reason}"
        simulator.clock.time += HOUR_S
        begin(write, forge, main)
        simulator.plan(FAULTS[fault].kind, write.method, write.path, times=FAULTS[fault].times)
        simulator.lag_until = simulator.clock.now() + LAGS_S[lag]

        error, _ = call(write, forge)

        assert error is rule.outcome.error, row
        simulator.faults.clear()
        simulator.clock.time += HOUR_S
        error, writes = call(write, forge)
        assert (error, writes > 0) == (None, rule.outcome.is_left), row
        assert call(write, forge) == (None, 0), row
        assert forge_state(forge) == undisturbed, row
    forge.hosted.repo.point("refs/heads/main", main)
