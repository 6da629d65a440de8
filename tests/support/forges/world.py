"""A small world with downstream repositories on a simulated forge, and runs of it in this process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base.errors import Exit
from reconciler.forge.registry import Forges
from reconciler.http.client import Clock
from reconciler.inventory.shard import WHOLE, Shard, shard_of
from reconciler.names.ids import normalise_url
from reconciler.plan.changes import Outcome, Plan, exit_of
from reconciler.read.forges import CONTROL_TOKEN
from reconciler.run.apply import apply_plan
from reconciler.run.plan import PlannedRun, RunOptions, plan_run
from tests.support.forges.bench import make_simulator
from tests.support.forges.server import Pull, Simulator, serving
from tests.support.git import Repo, make_repository
from tests.support.small_world import CONFIGURATION, blueprint, manifest, repository, variant

ORGANISATION = "acme"
VARIABLE = "RECONCILER_TEST_TOKEN"


class Ran(NamedTuple):
    """One run: its exit code, its plan, what came of it."""

    code: Exit
    plan: Plan
    outcome: Outcome


@dataclass
class ForgeWorld:
    """Control and blueprints on this machine, downstreams on the forge, every one with some packages."""

    root: Path
    simulator: Simulator
    edges: Sequence[str]
    packages: Sequence[str]
    cache: str = "cache"
    control: str = ""
    runs: list[Ran] = field(default_factory=list)

    def repo(self, name: str) -> Repo:
        is_hosted = name in self.edges or (name == "control" and self.control.startswith("http"))
        inside = f"{ORGANISATION}/{name}" if is_hosted else name
        return Repo(self.root / f"{inside}.git", time=int(self.simulator.clock.now()))

    def plan(self, *, timeout_s: float = 60.0, shard: Shard = WHOLE, lists_ended: bool = False) -> PlannedRun:
        clock = Clock(self.simulator.clock.now, self.simulator.clock.sleep)
        settings = RunOptions(self.control, self.root / self.cache, shard=shard)
        return plan_run(settings, Forges(clock, shard, timeout_s, lists_ended=lists_ended))

    def run(self, *, timeout_s: float = 60.0, shard: Shard = WHOLE) -> Ran:
        return self.apply(self.plan(timeout_s=timeout_s, shard=shard))

    def apply(self, planned: PlannedRun) -> Ran:
        outcome = apply_plan(planned)
        ran = Ran(exit_of(planned.plan, outcome=outcome), planned.plan, outcome)
        self.runs.append(ran)
        return ran

    def pulls(self, edge: str) -> list[Pull]:
        return self.simulator.pulls(f"{ORGANISATION}/{edge}")

    def open_heads(self) -> list[tuple[str, str]]:
        """Return repository and head of every open pull request, sorted."""
        names = self.simulator.repositories
        return sorted((n, p.head) for n in names for p in self.simulator.open_pulls(n))

    def upgrade(self, package: str = "web", revision: int = 2) -> None:
        """Change the upstream revision of every variant of a package, by default to the second."""
        files = {manifest(edge, package): variant(edge, package, revision=revision) for edge in self.edges}
        self.repo("control").commit(files, message="Upgrade\n")


Serve = Callable[..., ForgeWorld]
"""Serves a world on a kind of forge, with the options of `forge_world`."""
Make = Callable[..., ForgeWorld]
"""Serves a world on the forge of a test, with more configuration."""


@contextmanager
def forge_world(
    kind: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    edges: Sequence[str] = ("edge-1", "edge-2"),
    packages: Sequence[str] = ("web", "db"),
    more: str = "",
    hosted_control: bool = False,
    others: Sequence[str] = (),
) -> Iterator[ForgeWorld]:
    """Serve a world; violations of the forge's description fail the test at the end.

    Two shards each hold some of several downstream repositories: that depends on the address. With
    `hosted_control` the control repository stands on the forge too; `others` are further repositories
    there, which no variant names.
    """
    root.mkdir(exist_ok=True)
    simulator = make_simulator(kind, root)
    monkeypatch.setenv(VARIABLE, simulator.token)
    blueprints = make_repository(root / "blueprints.git", _both(packages, 1))
    blueprints.commit(_both(packages, 2), message="Release 2\n")
    for package in packages:
        blueprints.tag(f"{package}/v1", _first(blueprints))
        blueprints.tag(f"{package}/v2")
    for edge in (*edges, *others):
        repo = make_repository(root / ORGANISATION / f"{edge}.git", {"README.md": f"{edge}\n"})
        simulator.host(f"{ORGANISATION}/{edge}", repo)

    def divides(address: str) -> bool:
        urls = (normalise_url(f"{address}/{ORGANISATION}/{edge}.git") for edge in edges)
        return len({shard_of(url, 2) for url in urls}) == min(2, len(edges))

    with serving(simulator, accepts=divides):
        files = _control(kind, simulator, edges, packages, more, others)
        control = root / "control.git"
        if hosted_control:
            files = {
                path: text.replace("../blueprints.git", f"{root}/blueprints.git")
                for path, text in files.items()
            }
            control = root / ORGANISATION / "control.git"
            monkeypatch.setenv(CONTROL_TOKEN, simulator.token)
        hosted = make_repository(control, files)
        address = str(control)
        if hosted_control:
            simulator.host(f"{ORGANISATION}/control", hosted)
            address = simulator.url(f"{ORGANISATION}/control")
        yield ForgeWorld(root, simulator, (*edges, *others), tuple(packages), control=address)
    assert not simulator.violations, simulator.violations


def _first(repo: Repo) -> str:
    return str(repo.git[repo.oid("main")].parents[0].id)


def _both(packages: Sequence[str], revision: int) -> dict[str, str]:
    return {path: text for package in packages for path, text in blueprint(package, revision).items()}


def _control(
    kind: str,
    simulator: Simulator,
    edges: Sequence[str],
    packages: Sequence[str],
    more: str,
    others: Sequence[str],
) -> dict[str, str]:
    files = {"reconciler.yaml": _configuration(kind, simulator, more)}
    files["manifests/repositories/blueprints.yaml"] = repository("blueprints")
    for edge in (*edges, *others):
        address = simulator.url(f"{ORGANISATION}/{edge}")
        files[f"manifests/repositories/{edge}.yaml"] = repository(edge).replace(f"../{edge}.git", address)
    files |= {manifest(edge, package): variant(edge, package) for edge in edges for package in packages}
    return files


def _configuration(kind: str, simulator: Simulator, more: str) -> str:
    return f"""{CONFIGURATION}\
  forges:
  - prefix: {simulator.address}/{ORGANISATION}
    type: {kind}
    api: {simulator.api}
  credentials:
  - prefix: {simulator.address}/{ORGANISATION}
    username: {simulator.credential().username}
    tokenEnv: {VARIABLE}
{more}"""
