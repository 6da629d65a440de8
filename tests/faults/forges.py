"""Small worlds on a simulated forge that can be put back as they were, and runs of them with a fault."""

import copy
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.moments import DELIVERY
from tests.faults.promises import own_branches_by_content
from tests.faults.world import BALLAST, Ran, Runner
from tests.support.forges.world import ORGANISATION, ForgeWorld, forge_world
from tests.support.git import Repo
from tests.support.small_world import manifest, variant

FAST = "  pullRequests:\n    writesPerMinute: 60000\n    writesPerHour: 60000\n"
GROUPED = f"{FAST}    groupBy: repository\n"
REVIEWED = f"{FAST}  lock: {{mode: reviewed}}\n"
WORLDS = ("ungrouped", "grouped", "locks")
_FIELDS = ("pulls", "label_ids", "checks")


@dataclass
class SavedForge:
    """A world whose repositories and pull requests are copied once and put back before every run."""

    world: ForgeWorld
    runner: Runner
    pulls: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def saved(self) -> Path:
        return self.world.root.with_name(f"{self.world.root.name}.saved")

    def save(self) -> None:
        shutil.copytree(self.world.root, self.saved)
        for name, hosted in self.world.simulator.repositories.items():
            self.pulls[name] = {each: copy.deepcopy(getattr(hosted, each)) for each in _FIELDS}

    def restore(self) -> None:
        self.free_disk()
        shutil.rmtree(self.world.root)
        shutil.copytree(self.saved, self.world.root)
        simulator = self.world.simulator
        simulator.journal.clear()
        simulator.faults.clear()
        for name, hosted in simulator.repositories.items():
            hosted.repo = Repo(hosted.repo.path)
            for each, value in self.pulls[name].items():
                setattr(hosted, each, copy.deepcopy(value))

    def free_disk(self) -> None:
        (self.world.root.parent / BALLAST).unlink(missing_ok=True)

    def run(self, *, point: str = "", cache: str = "cache") -> Ran:
        return self.runner.run(*self.line(cache), point=point)

    def line(self, cache: str) -> list[str]:
        places = ["--control", self.world.control, "--cache-dir", str(self.world.root / cache)]
        return ["apply", "--output", "json", *places]

    def refs(self) -> dict[str, dict[str, str]]:
        return {path.name: Repo(path).refs() for path in self.repositories()}

    def final(self) -> tuple[object, object]:
        """Return what every repository and every pull request came to."""
        refs = {path.name: own_branches_by_content(Repo(path)) for path in self.repositories()}
        return refs, self.pull_requests()

    def repositories(self) -> list[Path]:
        root = self.world.root
        return sorted([*root.glob("*.git"), *(root / ORGANISATION).glob("*.git")])

    def pull_requests(self) -> list[tuple[str, str, str, str, str, bool]]:
        """Return every pull request but its number, which other work on the forge moves."""
        names = self.world.simulator.repositories
        every = [(name, pull) for name in names for pull in self.world.simulator.pulls(name)]
        return sorted((name, p.head, p.title, p.body, p.state, p.draft) for name, p in every)


@contextmanager
def saved_forge(
    kind: str, name: str, root: Path, runner_log: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SavedForge]:
    """Serve one of the three worlds on a forge, brought to the moment that is disturbed, and saved."""
    more = {"ungrouped": FAST, "grouped": GROUPED, "locks": REVIEWED}[name]
    is_hosted = name == "locks"
    edges = ["edge-1", "dev"] if name == "locks" else ["edge-1"]
    with forge_world(
        kind, root, monkeypatch, edges=edges[:1], more=more, hosted_control=is_hosted, others=edges[1:]
    ) as world:
        made = SavedForge(world, Runner(runner_log))
        _live(name, made)
        made.save()
        yield made


def _live(name: str, made: SavedForge) -> None:
    """Let something be open on the forge, and something else be wanted."""
    world, control = made.world, made.world.repo("control")
    if name == "locks":
        world.repo("blueprints").tag("web/stable", "web/v1")
        floating = variant("edge-1", "web").replace("revision: 1", "tag: stable")
        files = {
            str(path.relative_to(DELIVERY / "config")): path.read_text()
            for folder in ("index", "manifests/clusters")
            for path in sorted((DELIVERY / "config" / folder).rglob("*.yaml"))
        }
        control.commit({manifest("edge-1", "web"): floating, **files})
        return
    ran = made.run()
    assert ran.code == 0, ran.out
    world.simulator.merge(f"{ORGANISATION}/edge-1", 1)
    world.upgrade("web")
    control.commit({manifest("edge-1", "api"): variant("edge-1", "api")})
    blueprints = world.repo("blueprints")
    kptfile = blueprints.read("main", "web/Kptfile").decode().replace("name: web", "name: api")
    blueprints.commit({"api/Kptfile": kptfile})
    blueprints.tag("api/v1")
