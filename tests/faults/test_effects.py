"""Every fault at every effect of a run on the local forge; the next run ends as an undisturbed one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.base import effects
from tests.faults.disk import small_disk
from tests.faults.matrix import Point, draw, sweep
from tests.faults.moments import MOMENTS, Moment
from tests.faults.promises import check_code, check_report, final
from tests.faults.rows import EFFECT_FAULTS
from tests.faults.world import PROJECT, FaultWorld, Runner, make_world
from tests.support.small_world import EDGES

pytestmark = pytest.mark.slow

KILLED = -signal.SIGKILL
ALWAYS = ("kill", "term")
"""Faults of which every sweep tries a point in an ordinary run; of the others some sweeps do."""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path / "points")


@pytest.mark.parametrize("name", list(MOMENTS))
def test_after_a_fault_at_any_effect_the_next_run_ends_as_an_undisturbed_one(
    name: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk") as is_small:
        _sweep(name, MOMENTS[name], tmp_path / "disk", Runner(tmp_path / "points"), is_small=is_small)


def _sweep(name: str, moment: Moment, disk: Path, runner: Runner, *, is_small: bool) -> None:
    world = moment.build(disk / "w", runner)
    world.save()
    undisturbed = world.run(*moment.line)
    wanted, points = final(world), runner.points()
    check_report(undisturbed, _saved(world), world.refs(), "undisturbed")
    for fault in EFFECT_FAULTS:
        if fault == "disk" and not is_small:
            continue  # the limit of file sizes is tried everywhere
        most = 1 if fault in ALWAYS else int(draw(name, fault) % 2 == 0)
        with sweep(f"{fault}/local/{moment.world}", name, points, most) as tried:
            for point in tried:
                _disturb(world, moment.line, fault, point, undisturbed.code)
                assert final(world) == wanted, f"{fault} {point.name} ({point.number})"
    world.fsck()


def _disturb(world: FaultWorld, line: tuple[str, ...], fault: str, point: Point, code: int) -> None:
    """Run with a fault, check what that run says, and run again as if nothing had been."""
    where = f"{fault} {point.name} ({point.number})"
    world.restore()
    before = world.refs()
    ran = world.run(*line, point=f"{point.number}:{fault}")
    world.free_disk()
    check_code(fault, ran, code, where)
    check_report(ran, before, world.refs(), where)
    again = world.run(*line)
    assert again.code == code, f"after {where}: {again.out}"


def _saved(world: FaultWorld) -> dict[str, dict[str, str]]:
    return FaultWorld(world.saved, world.runner).refs()


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

    killed = subprocess.run(line, cwd=PROJECT, env={**os.environ, effects.VARIABLE: "5:kill"}, check=False)
    again = subprocess.run(line, cwd=PROJECT, check=False, capture_output=True, text=True)

    assert killed.returncode == KILLED
    assert again.returncode == 0, again.stdout + again.stderr
    assert "refs/heads/drafts/web/packagevariant-1" in world.refs()["edge-1.git"]
