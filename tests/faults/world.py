"""A small world in two moments of its life, and runs of it that can be killed at any effect."""

import atexit
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.disk import can_mount
from tests.support.git import Repo
from tests.support.small_world import EDGES, app, manifest, variant, write_world

BALLAST = "ballast"
PROJECT = Path(__file__).resolve().parents[2]


class Ran(NamedTuple):
    """How one run ended: its exit code, or minus the signal that killed it."""

    code: int
    out: str

    @property
    def effects(self) -> list[dict[str, Any]]:
        """What the run reported as JSON; nothing if it ended before it could."""
        start = self.out.find("{\n")
        return json.JSONDecoder().raw_decode(self.out[start:])[0].get("effects", []) if start >= 0 else []


class Turn(NamedTuple):
    """A run of two goes on until it stands before one of its visible effects, from 1; 0 is its end."""

    run: int
    effect: int = 0


@dataclass
class Forking:
    """A process of `module` that answers requests, each a line of JSON, by forking runs.

    A run has the environment of the test at the time of the request.
    """

    module: str
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: Mapping[str, Any]) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({**request, "env": dict(os.environ)}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)
        assert self.process.stdout
        self.process.stdout.close()


@cache
def forking(module: str) -> Forking:
    """Return the process of a module; it is started once per test process, for its imports cost a second."""
    can_mount()  # first: a process sees the later mounts of a test only if it shares the test's mounts
    started = Forking(module)
    atexit.register(started.stop)
    return started


class Runner:
    """Runs with one fault; `points` numbers the failpoints that a run passes."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def run(self, *line: str, point: str = "", clock_s: float = 0.0, now: float | None = None) -> Ran:
        self.log.unlink(missing_ok=True)
        request = {"line": line, "point": point, "log": str(self.log), "clock": clock_s, "now": now}
        return Ran(**forking("tests.faults.runner").ask(request))

    def points(self) -> list[str]:
        """Return the points that the last run passed."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@dataclass
class FaultWorld:
    """Repositories at one place, which can be put back as they were; `now` is the time of runs, if any."""

    root: Path
    runner: Runner
    now: float | None = None

    @property
    def saved(self) -> Path:
        return self.root.with_name(f"{self.root.name}.saved")

    def save(self) -> None:
        shutil.rmtree(self.saved, ignore_errors=True)
        shutil.copytree(self.root, self.saved, symlinks=True)

    def restore(self) -> None:
        self.free_disk()
        shutil.rmtree(self.root)
        shutil.copytree(self.saved, self.root, symlinks=True)

    def free_disk(self) -> None:
        """Remove what a run that was to meet a full disk filled it with."""
        (self.root.parent / BALLAST).unlink(missing_ok=True)

    def run(self, *line: str, point: str = "", cache: str = "cache", clock_s: float = 0.0) -> Ran:
        places = ("--control", str(self.root / "control.git"), "--cache-dir", str(self.root / cache))
        return self.runner.run(*line, *places, point=point, clock_s=clock_s, now=self.now)

    def repo(self, name: str) -> Repo:
        return Repo(self.root / f"{name}.git", time=1_767_300_000)

    def refs(self) -> dict[str, dict[str, str]]:
        return {path.name: Repo(path).refs() for path in sorted(self.root.glob("*.git"))}

    def fsck(self) -> None:
        for path in sorted(self.root.glob("*.git")):
            Repo(path).fsck()


def make_world(root: Path, runner: Runner, edges: tuple[str, ...] = EDGES) -> FaultWorld:
    """Make a small world whose runs can be killed."""
    write_world(root, edges)
    return FaultWorld(root, runner)


def live(world: FaultWorld) -> None:
    """Let people do everything at once to a world that was applied.

    A draft approved, one merged with git, one squashed, a hotfix, a draft edited, a package no
    longer wanted that is published and one that never was, and a new upstream revision.
    """
    assert world.run("approve", "edge-1/web", "edge-1/db", "edge-2/web").code == 0
    second, third = world.repo("edge-2"), world.repo("edge-3")
    second.merge("drafts/db/packagevariant-1")
    third.merge("drafts/web/packagevariant-1", how="squash")
    world.repo("edge-2").commit({"web/app.yaml": app("web", 1).replace("replicas: 1", "replicas: 7")})
    control = world.repo("control")
    control.commit(
        {
            **{manifest(edge, "web"): variant(edge, "web", revision=2) for edge in EDGES},
            manifest("edge-1", "db"): None,
            manifest("edge-3", "db"): None,
        },
        message="Change the fleet\n",
    )
