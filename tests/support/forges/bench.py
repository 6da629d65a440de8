"""Simulated forges with two draft branches and a person who pushes, for the contract suite."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.forge.api import azure
from reconciler.forge.api.dialect import validated
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.products import PRODUCTS
from reconciler.forge.http import Budget, Transport
from reconciler.http.client import Clock
from reconciler.policy import ForgeKind, ForgeRule, WriteLimits
from tests.support.conformance import require_file
from tests.support.forges.azure import AzureSimulator
from tests.support.forges.bitbucket import BitbucketSimulator
from tests.support.forges.description import load, validator
from tests.support.forges.gitea import GiteaSimulator
from tests.support.forges.github import GitHubSimulator
from tests.support.forges.gitlab import GitLabSimulator
from tests.support.forges.server import Simulator, VirtualClock, serving
from tests.support.git import kptfile, make_repository

NAME = "acme/edge"
HEADS = {"web": "drafts/web/packagevariant-1", "db": "drafts/db/packagevariant-1"}
MAKERS: dict[str, tuple[type[Simulator], str, str]] = {
    "github": (GitHubSimulator, "/api/v3", "github-openapi.json"),
    "gitea": (GiteaSimulator, "/api/v1", "gitea-swagger.json"),
    "gitlab": (GitLabSimulator, "/api/v4", ""),
    "azure": (AzureSimulator, "", ""),
    "bitbucket": (BitbucketSimulator, "/2.0", ""),
}
DIALECTS = tuple(MAKERS)
WITH_ISSUES = tuple(kind for kind in DIALECTS if PRODUCTS[ForgeKind(kind)].dialect.has_issues)
WITH_LABELS = tuple(kind for kind in DIALECTS if kind != "bitbucket")


def shorten_pages(simulator: Simulator, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no list have more items in a page; where clients decide that, let ours ask for as few."""
    simulator.most_in_a_page = size
    monkeypatch.setattr(azure, "PAGE", size)


class SimulatorBench:
    """A simulated forge with one repository; `again` is the forge as another process sees it."""

    def __init__(self, kind: str, simulator: Simulator) -> None:
        self.kind = kind
        self.simulator = simulator
        self.hosted = next(iter(simulator.repositories.values()))
        self.forge = self.again()

    def again(self, limits: WriteLimits | None = None, timeout_s: float = 60.0, **settings: Any) -> ApiForge:
        """Return the forge as another process sees it, with other settings of its rule if given."""
        clock = Clock(self.simulator.clock.now, self.simulator.clock.sleep)
        budget = Budget(limits or WriteLimits(max_wait_s=300), clock)
        product = PRODUCTS[ForgeKind(self.kind)]
        token = product.token(self.simulator.credential())
        transport = Transport(self.simulator.api, token, budget, clock=clock, timeout_s=timeout_s)
        rule = ForgeRule("*", ForgeKind(self.kind), **settings)
        name = self.simulator.called(NAME)
        return ApiForge(validated(product.dialect(transport, name, rule)), transport, "fleet")

    def push(self, head: str) -> str:
        return str(self.hosted.repo.commit({"notes.md": head}, branch=head, message="A person's\n"))

    def delete(self, head: str) -> None:
        self.hosted.repo.delete(f"refs/heads/{head}")


def make_simulator(kind: str, root: Path) -> Simulator:
    """Return a simulator of one kind of forge, with its description where there is one."""
    make, prefix, file = MAKERS[kind]
    made = make(root, prefix, load(require_file(file)) if file else None, VirtualClock())
    if isinstance(made, GitHubSimulator):
        made.documents = validator()
    return made


@contextmanager
def simulated(kind: str, root: Path) -> Iterator[SimulatorBench]:
    """Serve a simulated forge; what it found against its description fails the test at the end."""
    simulator = make_simulator(kind, root)
    repo = make_repository(root / f"{NAME}.git", {"README.md": "edge\n"})
    for package, head in HEADS.items():
        repo.commit({f"{package}/Kptfile": kptfile(package)}, branch=head, start="main")
    simulator.host(NAME, repo)
    with serving(simulator):
        yield SimulatorBench(kind, simulator)
    assert not simulator.violations, simulator.violations
