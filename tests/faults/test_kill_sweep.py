"""kill -9 before and after every effect: a plain run afterwards ends where an undisturbed one does."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.git import failpoints
from tests.faults.world import PROJECT, FaultWorld, Runner, live, make_world
from tests.support.notes import note
from tests.support.small_world import EDGES, manifest, variant

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("runner") / "points")
    yield made
    made.stop()


def first(world: FaultWorld) -> None:
    """Nothing was ever applied."""
    del world


def later(world: FaultWorld) -> None:
    """Everything that can happen to a fleet happened since the last run."""
    assert world.run("apply").code == 0
    live(world)


def opened(world: FaultWorld) -> None:
    """Drafts and deletions wait for approval."""
    later(world)
    assert world.run("apply", "--allow-deletes", "9").code in (0, 7)


def grouped(world: FaultWorld) -> None:
    """Each repository has one group: nothing was ever applied."""
    control = world.repo("control")
    text = control.read("main", "reconciler.yaml").decode()
    control.commit({"reconciler.yaml": f"{text}  pullRequests: {{groupBy: repository}}\n"})


def grouped_later(world: FaultWorld) -> None:
    """One group was edited, one merged, one closed; then upstream moved and a variant went."""
    grouped(world)
    assert world.run("apply").code == 0
    first, second, third = map(world.repo, EDGES)
    first.commit({"db/notes.txt": "Mine\n"}, branch=_group("edge-1"))
    second.merge(_group("edge-2"))
    assert world.run("pr", "close", "edge-3#1").code == 0
    asked = {manifest(edge, "web"): variant(edge, "web", revision=2) for edge in EDGES}
    world.repo("control").commit({**asked, manifest("edge-1", "db"): None, manifest("edge-2", "db"): None})
    assert third.oid(_group("edge-3"))


def grouped_open(world: FaultWorld) -> None:
    """Groups wait for approval."""
    grouped(world)
    assert world.run("apply").code == 0


def reviewed(world: FaultWorld) -> None:
    """Pins are reviewed: the first ones are merged, one tag has moved since, and one variant is new."""
    control = world.repo("control")
    text = control.read("main", "reconciler.yaml").decode()
    floating = {manifest(edge, "web"): _floating(edge) for edge in EDGES[1:]}
    control.commit({"reconciler.yaml": f"{text}  lock: {{mode: reviewed}}\n", **floating})
    world.repo("blueprints").tag("web/stable", "web/v1")
    assert world.run("apply").code == 0
    assert world.run("approve", "control/locks").code == 0
    assert world.run("apply").code == 0
    world.repo("blueprints").tag("web/stable", "web/v2")
    control.commit({manifest(EDGES[0], "web"): _floating(EDGES[0])})


def reviewed_open(world: FaultWorld) -> None:
    """The proposal of another lock waits for approval."""
    reviewed(world)
    assert world.run("apply").code == 0


def _floating(edge: str) -> str:
    return variant(edge, "web").replace("revision: 1", "tag: stable")


def _group(edge: str) -> str:
    return f"reconciler/fleet/group/repository/default/{edge}/1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "line"),
    [
        (first, ("apply",)),
        (later, ("apply", "--allow-deletes", "9")),
        (opened, ("approve", "--all")),
        (grouped, ("apply",)),
        (grouped_later, ("apply", "--allow-deletes", "9")),
        (grouped_open, ("approve", "--all")),
        (reviewed, ("apply",)),
        (reviewed_open, ("approve", "control/locks")),
    ],
    ids=[
        "first-apply",
        "later-apply",
        "approve-all",
        "groups",
        "later-groups",
        "approve-groups",
        "reviewed",
        "approve-lock",
    ],
)
def test_killed_anywhere_a_plain_run_completes_it(
    moment: Callable[[FaultWorld], None],
    line: tuple[str, ...],
    runner: Runner,
    tmp_path: Path,
) -> None:
    world = make_world(tmp_path / "w", runner)
    moment(world)
    world.save()
    undisturbed = world.run(*line)
    wanted, points = world.refs(), runner.points()
    effects = " ".join(line)
    note(f"kill -9 around every effect of `{effects}`: {len(points)} points, {len(EDGES)} repositories")

    for number, _ in enumerate(points, start=1):
        world.restore()
        killed = world.run(*line, point=f"{number}:kill")
        assert killed.code == KILLED, f"{points[number - 1]}: {killed.out}"

        again = world.run(*line)

        assert again.code == undisturbed.code, f"after {points[number - 1]}: {again.out}"
        assert world.refs() == wanted, f"after {points[number - 1]}"
    world.fsck()


def test_the_number_of_points_grows_with_the_world(runner: Runner, tmp_path: Path) -> None:
    counts = []
    for size in (1, 2, 3):
        world = make_world(tmp_path / f"w{size}", runner, EDGES[:size])
        world.run("apply")
        counts.append(len(runner.points()))

    assert counts[0] < counts[1] < counts[2]


def test_the_plain_command_is_killed_and_completes(runner: Runner, tmp_path: Path) -> None:
    world = make_world(tmp_path / "w", runner, EDGES[:1])
    line = [sys.executable, "-m", "reconciler.cli.main", "apply", "-q"]
    line += ["--control", str(world.root / "control.git"), "--cache-dir", str(world.root / "cache")]

    killed = subprocess.run(line, cwd=PROJECT, env={**os.environ, failpoints.VARIABLE: "5:kill"}, check=False)
    again = subprocess.run(line, cwd=PROJECT, check=False, capture_output=True, text=True)

    assert killed.returncode == KILLED
    assert again.returncode == 0, again.stdout + again.stderr
    assert "refs/heads/drafts/web/packagevariant-1" in world.refs()["edge-1.git"]
