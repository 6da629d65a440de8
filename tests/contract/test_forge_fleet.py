"""A fleet through planner and apply, under the limits of a forge and on a virtual clock.

Real pushes, real pull requests, one server that keeps a journal and the limits that GitHub documents (primary
and secondary), and a checker that knows nothing but that journal. The test suite has 100 drafts in 5
repositories and a twentieth of the limits; with RECONCILER_FLEET=100 (`make laws`) there are 2,000 in 100, at
the limits of GitHub. Either way all drafts take the same hours.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.forge.registry import Forges
from reconciler.http.client import Clock
from reconciler.plan.changes import exit_of
from reconciler.run.apply import apply_plan
from reconciler.run.plan import RunOptions, plan_run
from tests.support.forges.bench import make_simulator
from tests.support.forges.server import HOUR, MINUTE, Simulator, most_in_a_window, serving
from tests.support.forges.world import VARIABLE
from tests.support.git import Repo, kptfile, make_repository
from tests.support.small_world import CONFIGURATION, package_set, repository

pytestmark = pytest.mark.slow

REPOSITORIES = int(os.environ.get("RECONCILER_FLEET", "5"))
PACKAGES = 20
DRAFTS = REPOSITORIES * PACKAGES
PER_MINUTE = 80 * REPOSITORIES // 100
PER_HOUR = 500 * REPOSITORIES // 100
REQUESTS_PER_HOUR = 5000 * REPOSITORIES // 100
SERVED = """\
  forges:
  - {{prefix: {address}/acme, type: github, api: {api}}}
  credentials:
  - {{prefix: {address}/acme, username: x-access-token, tokenEnv: {variable}}}
  pullRequests: {{groupBy: {group_by}, writesPerMinute: {minute}, writesPerHour: {hour}, maxWait: {wait}}}
"""


class KilledError(BaseException):
    """The run ends here, as a process does that is killed while it waits."""


@dataclass
class Fleet:
    """A control repository, and downstream repositories on a simulated forge."""

    root: Path
    simulator: Simulator
    edges: Sequence[str]
    group_by: str
    targets: str

    def configure(self, wait: int) -> None:
        text = CONFIGURATION + SERVED.format(
            address=self.simulator.address,
            api=self.simulator.api,
            variable=VARIABLE,
            group_by=self.group_by,
            minute=PER_MINUTE,
            hour=PER_HOUR,
            wait=wait,
        )
        Repo(self.root / "control.git", time=1_767_300_000 + wait).commit({"reconciler.yaml": text})

    def use(self, revision: int) -> None:
        """Let every variant have this revision of its upstream."""
        text = package_set("web", f"repositories:\n{self.targets}", revision=revision)
        time = int(self.simulator.clock.now())
        Repo(self.root / "control.git", time=time).commit({"manifests/set.yaml": text})

    def run(self, *, killed_after: int = 0) -> Exit:
        """Run once; with `killed_after` it ends at the first wait after so many pull requests."""
        clock = self.simulator.clock

        def sleep(seconds: float) -> None:
            if killed_after and self.opened() >= killed_after:
                raise KilledError
            clock.sleep(seconds)

        forges = Forges(Clock(clock.now, sleep), timeout_s=60.0)
        planned = plan_run(RunOptions(str(self.root / "control.git"), self.root / "cache"), forges)
        return exit_of(planned.plan, outcome=apply_plan(planned))

    def opened(self) -> int:
        return sum(len(self.simulator.repositories[name].pulls) for name in self.edges)

    def heads(self) -> list[tuple[str, str]]:
        return sorted((n, p.head) for n in self.edges for p in self.simulator.open_pulls(n))

    def hours(self) -> float:
        times = [entry.time for entry in self.simulator.writes()]
        return (max(times) - min(times)) / HOUR


@contextmanager
def fleet(root: Path, monkeypatch: pytest.MonkeyPatch, *, group_by: str) -> Iterator[Fleet]:
    root.mkdir()
    simulator = make_simulator("github", root)
    simulator.per_minute, simulator.per_hour = PER_MINUTE, PER_HOUR
    simulator.requests_per_hour = REQUESTS_PER_HOUR
    monkeypatch.setenv(VARIABLE, simulator.token)
    blueprints = make_repository(root / "blueprints.git", {"web/Kptfile": kptfile("web")})
    blueprints.tag("web/v1")
    blueprints.commit({"web/notes.txt": "Second\n"}, message="Release 2\n")
    blueprints.tag("web/v2")
    names = [f"edge-{number:03}" for number in range(REPOSITORIES)]
    for name in names:
        simulator.host(f"acme/{name}", make_repository(root / f"acme/{name}.git", {"README.md": name}))
    with serving(simulator):
        packages = ", ".join(f"p{number:02}" for number in range(PACKAGES))
        targets = "\n".join(f"    - {{name: {name}, packageNames: [{packages}]}}" for name in names)
        files = {"manifests/set.yaml": package_set("web", f"repositories:\n{targets}")}
        files["manifests/repositories/blueprints.yaml"] = repository("blueprints")
        for name in names:
            text = repository(name).replace(f"../{name}.git", simulator.url(f"acme/{name}"))
            files[f"manifests/repositories/{name}.yaml"] = text
        make_repository(root / "control.git", files)
        yield Fleet(root, simulator, [f"acme/{name}" for name in names], group_by, targets)
    assert not simulator.violations, simulator.violations[:3]


def test_first_apply_of_a_fleet_takes_the_hours_of_its_budget_despite_interruptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fleet(tmp_path / "w", monkeypatch, group_by="package") as world:
        world.configure(wait=60)
        assert world.run() is Exit.PARTIAL
        assert world.opened() == PER_HOUR
        world.configure(wait=3600)
        with pytest.raises(KilledError):
            world.run(killed_after=DRAFTS * 11 // 20)
        assert DRAFTS * 11 // 20 <= world.opened() < DRAFTS * 12 // 20

        assert world.run() is Exit.DONE

        expected = [(n, f"drafts/p{k:02}/packagevariant-1") for n in world.edges for k in range(PACKAGES)]
        assert world.heads() == expected
        assert world.opened() == DRAFTS
        assert world.hours() == pytest.approx(3.1, rel=0.1)
        assert 0 < most_in_a_window(world.simulator.journal, MINUTE) <= PER_MINUTE
        assert PER_HOUR * 4 // 5 < most_in_a_window(world.simulator.journal, HOUR) <= PER_HOUR


def test_texts_of_a_fleet_are_right_and_written_once_although_the_budget_is_spent_five_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fleet(tmp_path / "w", monkeypatch, group_by="package") as world:
        world.configure(wait=60)
        simulator, codes = world.simulator, []
        while not codes or codes[-1] is Exit.PARTIAL:
            codes.append(world.run())
            simulator.clock.sleep(HOUR)
            if len(codes) == 2:  # half of them are open, with the first revision
                assert world.opened() == DRAFTS // 2
                world.use(2)

        # A quarter an hour: the first half opened, then its texts changed and the other half opened.
        assert codes == [Exit.PARTIAL] * 5 + [Exit.DONE]
        pulls = [pull for name in world.edges for pull in simulator.pulls(name)]
        assert len(pulls) == len(world.heads()) == DRAFTS
        assert {pull.title.rpartition(" from ")[2] for pull in pulls} == {"web/v2"}
        assert all("web/v2" in pull.body and "web/v1" not in pull.body for pull in pulls)
        written = Counter(e.path for e in simulator.writes() if e.method == "PATCH")
        assert (len(written), set(written.values())) == (DRAFTS // 2, {1})
        assert len(simulator.writes()) == DRAFTS * 3 // 2
        assert world.run() is Exit.DONE
        before = len(simulator.journal)
        assert world.run() is Exit.DONE
        # One list of each repository.
        assert [e.method for e in simulator.journal[before:]] == ["GET"] * REPOSITORIES


def test_pull_requests_by_repository_take_two_minutes_and_a_second_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fleet(tmp_path / "w", monkeypatch, group_by="repository") as world:
        world.configure(wait=60)
        assert world.run() is Exit.DONE
        writes = len(world.simulator.writes())

        assert world.run() is Exit.DONE

        scope = "reconciler/fleet/group/repository/default"
        assert world.heads() == [(n, f"{scope}/{n.removeprefix('acme/')}/1") for n in world.edges]
        assert len(world.simulator.writes()) == writes == REPOSITORIES
        assert world.hours() * 60 <= 2
        assert most_in_a_window(world.simulator.journal, MINUTE) <= PER_MINUTE
