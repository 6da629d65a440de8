"""A fleet whose downstream repositories stand on a simulated forge."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.combination.fleet import Fleet, Pull
from tests.support.combination.spec import FleetSpec
from tests.support.forges.bench import make_simulator
from tests.support.forges.server import Simulator, serving
from tests.support.forges.world import ORGANISATION, VARIABLE
from tests.support.git import Repo, make_repository

UNLIMITED = {"writesPerMinute": 6000, "writesPerHour": 60000}


@dataclass
class ForgeFleet(Fleet):
    """Pull requests are those of the simulator; people merge them there."""

    simulator: Simulator | None = field(default=None)

    @property
    def hosted(self) -> Simulator:
        assert self.simulator is not None
        return self.simulator

    def make(self, name: str) -> Repo:
        if name not in self.spec.repositories():
            return super().make(name)
        repo = make_repository(self.root / ORGANISATION / f"{name}.git", {"README.md": f"{name}\n"})
        self.hosted.host(f"{ORGANISATION}/{name}", repo)
        return repo

    def configuration(self) -> dict[str, Any]:
        value = super().configuration()
        prefix = f"{self.hosted.address}/{ORGANISATION}"
        value["spec"]["forges"] = [{"prefix": prefix, "type": "github", "api": self.hosted.api}]
        credentials = {"prefix": prefix, "username": "x-access-token", "tokenEnv": VARIABLE}
        value["spec"]["credentials"] = [credentials]
        value["spec"]["pullRequests"] = UNLIMITED
        return value

    def registration(self, repository: str) -> dict[str, Any]:
        value = super().registration(repository)
        if repository in self.spec.repositories():
            value["spec"]["git"]["repo"] = self.hosted.url(f"{ORGANISATION}/{repository}")
        return value

    def pulls(self, repository: str, state: str = "open") -> list[Pull]:
        listed = self.hosted.pulls(f"{ORGANISATION}/{repository}")
        heads = self.repo(repository).refs()
        return [
            Pull(p.number, p.head, p.state, p.title, f"{p.title}\n{p.body}\n{p.comments}", p.draft)
            for p in listed
            if p.state == state and (state != "open" or f"refs/heads/{p.head}" in heads)
        ]

    def all_refs(self) -> dict[str, dict[str, str]]:
        """Return every ref, and every pull request: a forge holds those outside of Git."""
        refs = super().all_refs()
        for name in self.spec.repositories():
            for pull in self.hosted.pulls(f"{ORGANISATION}/{name}"):
                refs[name][f"pull request {pull.number}"] = repr(pull)
        return refs

    def decide(self, verb: str, repository: str, number: int) -> tuple[str, ...]:
        act = {"close": self.hosted.close, "reopen": self.hosted.reopen}[verb]
        act(f"{ORGANISATION}/{repository}", number)
        return ()

    def merge(self, repository: str, head: str, how: str) -> None:
        (pull,) = [p for p in self.pulls(repository) if p.head == head]
        self.hosted.merge(f"{ORGANISATION}/{repository}", pull.number, how)


@contextmanager
def forge_fleet(root: Path, spec: FleetSpec, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """Serve a fleet; what the forge finds against its description fails the test at the end."""
    root.mkdir()
    simulator = make_simulator("github", root)
    monkeypatch.setenv(VARIABLE, simulator.token)
    with serving(simulator):
        yield ForgeFleet(root, spec, simulator=simulator)
    assert not simulator.violations, simulator.violations
