"""kill -9 around every effect of delivering what clusters need: a plain run afterwards ends the same."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.world import FaultWorld, Runner
from tests.support.notes import note
from tests.support.world import build_world

WORLD = Path(__file__).resolve().parents[2] / "fixtures/worlds/70-crossplane-delivery"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FaultWorld]:
    runner = Runner(tmp_path / "points")
    yield FaultWorld(build_world(WORLD, tmp_path / "w").root, runner)
    runner.stop()


def test_killed_anywhere_a_plain_run_delivers_once(world: FaultWorld) -> None:
    world.save()
    assert world.run("apply").code == 0
    wanted, points = world.refs(), world.runner.points()
    note(f"kill -9 around every effect of a delivery: {len(points)} points")

    for number, point in enumerate(points, start=1):
        world.restore()
        assert world.run("apply", point=f"{number}:kill").code == -signal.SIGKILL, point

        again = world.run("apply")

        assert again.code == 0, f"after {point}: {again.out}"
        assert world.refs() == wanted, f"after {point}"
    world.fsck()
