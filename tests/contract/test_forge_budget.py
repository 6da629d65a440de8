"""The budget of writes on a virtual clock, as one client spends it; test_forge_fleet has whole runs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.github import GitHub
from reconciler.forge.http import Budget, Transport, split
from reconciler.forge.registry import Forges
from reconciler.git.repository import Mirrors
from reconciler.git.urls import Credential
from reconciler.http.client import Clock, LimitedError, StaticToken
from reconciler.inventory.inventory import PullRequest
from reconciler.inventory.shard import Shard, shard_of
from reconciler.names.ids import normalise_url
from reconciler.policy import ForgeKind, ForgeRule, Policy, WriteLimits
from tests.support.forges.bench import make_simulator
from tests.support.forges.server import MINUTE, Simulator, VirtualClock, most_in_a_window, serving
from tests.support.forges.world import forge_world
from tests.support.git import make_repository

pytestmark = pytest.mark.slow

CEILING = WriteLimits(per_minute=80, per_hour=500, max_wait_s=60)


@contextmanager
def fleet(root: Path, repositories: int, drafts: int) -> Iterator[tuple[Simulator, list[tuple[str, str]]]]:
    """Serve repositories with draft branches that have no pull request yet."""
    simulator = make_simulator("github", root)
    heads = []
    for number in range(repositories):
        name = f"acme/edge-{number}"
        repo = make_repository(root / f"{name}.git", {"README.md": name})
        for draft in range(drafts):
            head = f"drafts/p{draft}/packagevariant-1"
            repo.point(f"refs/heads/{head}", repo.write(str(repo.tree("main")), [repo.oid("main")]))
            heads.append((name, head))
        simulator.host(name, repo)
    with serving(simulator):
        yield simulator, heads
    assert not simulator.violations, simulator.violations[:3]


def run(simulator: Simulator, heads: Sequence[tuple[str, str]], limits: WriteLimits) -> float:
    """Open what is missing as one run does; return the wait it ends with, 0 if nothing is left."""
    clock = Clock(simulator.clock.now, simulator.clock.sleep)
    transport = Transport(simulator.api, StaticToken(simulator.token), Budget(limits, clock), clock=clock)
    forges = {n: ApiForge(GitHub(transport, n), transport, "fleet") for n in simulator.repositories}
    there = {(name, pull.head) for name, forge in forges.items() for pull in forge.list_pulls()}
    for name, head in (pair for pair in heads if pair not in there):
        try:
            forges[name].ensure(PullRequest(head, "main", f"Create {head}", "Why."))
        except LimitedError as error:
            return error.wait_s
    return 0.0


def test_budget_checker_detects_exceeded_limit(tmp_path: Path) -> None:
    with fleet(tmp_path, 2, 60) as (simulator, heads):
        simulator.per_minute = 10_000
        run(simulator, heads, WriteLimits(per_minute=10_000, per_hour=10_000))

        assert most_in_a_window(simulator.journal, MINUTE) == 120


def test_two_shards_together_keep_the_limits(tmp_path: Path) -> None:
    with fleet(tmp_path, 10, 20) as (simulator, heads):
        half = split(CEILING, 2)
        for part in (0, 1):
            run(simulator, heads[part::2], half)

        assert (half.per_minute, half.per_hour) == (40, 250)
        assert most_in_a_window(simulator.journal, MINUTE) <= 80


@pytest.mark.parametrize("part", [0, 1])
def test_shard_does_not_list_pull_requests_of_an_upstream_of_another_shard(tmp_path: Path, part: int) -> None:
    url = "https://github.com/acme/blueprints.git"
    mirror = Mirrors(tmp_path / "cache").open(url)
    forges = Forges(shard=Shard(part, 2))
    rule = ForgeRule("https://github.com/", ForgeKind.GITHUB)
    forges.configure(Policy(forges=(rule,)), lambda _: Credential("", "token"), {})

    assert forges.lists_pulls(mirror) == (shard_of(normalise_url(url), 2) == part)


def test_writes_of_other_shards_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [f"edge-{n}" for n in range(1, 5)]
    with forge_world("github", tmp_path / "world", monkeypatch, edges=edges) as world:
        urls = [normalise_url(world.simulator.url(f"acme/{edge}")) for edge in edges]
        parts = next(n for n in range(2, 20) if len({shard_of(url, n) for url in urls}) > 1)
        share = 2 * max(Counter(shard_of(url, parts) for url in urls).values())
        monkeypatch.setenv("RECONCILER_PULL_REQUESTS_WRITES_PER_HOUR", str(share * parts))

        runs = [world.run(shard=Shard(part, parts)) for part in range(parts)]

        assert {ran.code for ran in runs} == {Exit.DONE}
        assert len(world.open_heads()) == 2 * len(edges)


def test_shard_lists_its_own_pull_requests_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [f"edge-{n}" for n in range(1, 5)]
    with forge_world("github", tmp_path / "world", monkeypatch, edges=edges) as world:
        names = {f"acme/{edge}": normalise_url(world.simulator.url(f"acme/{edge}")) for edge in edges}
        parts = next(n for n in range(2, 20) if len({shard_of(url, n) for url in names.values()}) > 1)
        for lap in range(2):
            for part in range(parts):
                world.simulator.journal.clear()
                assert world.run(shard=Shard(part, parts)).code in {Exit.DONE, Exit.WAITING}
                listed = {
                    name for name in names for e in world.simulator.journal if f"/repos/{name}/" in e.path
                }
                assert listed == {name for name, url in names.items() if shard_of(url, parts) == part}
            if lap == 0:
                for name in names:
                    world.simulator.close(name, 1)
        control = world.repo("control")
        before = control.refs()

        whole = world.run()

        assert whole.plan.is_empty
        assert control.refs() == before, "the shards observed what one run observes"


def test_exhausted_budget_reports_remaining_writes_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  pullRequests:\n    writesPerMinute: 2\n    writesPerHour: 3\n    maxWait: 60\n"
    with forge_world("github", tmp_path / "world", monkeypatch, more=more) as world:
        first = world.run()
        errors = [e.error for e in first.outcome.effects if e.error]

        assert first.code is Exit.PARTIAL
        assert len(world.open_heads()) == 3
        assert errors[-1].startswith("1 pull request is left in all; about ")
        world.simulator.clock.sleep(3600)
        assert world.run().code is Exit.DONE
        assert len(world.open_heads()) == 4
        assert world.run().plan.is_empty


def test_unread_repository_exhausts_the_budget() -> None:
    clock = VirtualClock()
    budget = Budget(WriteLimits(), Clock(clock.now, clock.sleep))
    budget.mark_unread("a")

    with pytest.raises(LimitedError), budget.write():
        pytest.fail("nothing may be written")
