"""A run that writes to a forge is killed before and after each of its writes: the next one completes it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.errors import Exit
from tests.faults.world import Runner
from tests.support.forges.server import TOKEN
from tests.support.forges.world import VARIABLE, ForgeWorld, forge_world

FAST = "  pullRequests:\n    writesPerMinute: 60000\n    writesPerHour: 60000\n"

GROUPED = f"{FAST}    groupBy: repository\n"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    os.environ[VARIABLE] = TOKEN
    made = Runner(tmp_path_factory.mktemp("runner") / "log")
    del os.environ[VARIABLE]
    yield made
    made.stop()


def run(world: ForgeWorld, runner: Runner, cache: str, point: str = "") -> int:
    places = ("--control", str(world.root / "control.git"), "--cache-dir", str(world.root / cache))
    return runner.run("apply", *places, point=point).code


def state(world: ForgeWorld) -> tuple[object, ...]:
    refs = {path.name: world.repo(path.stem).refs() for path in world.root.glob("*.git")}
    edges = {edge: world.repo(edge).refs() for edge in world.edges}
    pulls = [(p.number, p.head, p.title, p.body, p.state) for p in world.pulls("edge-1")]
    return refs, edges, sorted(pulls, key=lambda p: p[1])


@pytest.mark.slow
@pytest.mark.parametrize(("more", "pulls"), [(FAST, 2), (GROUPED, 1)], ids=["packages", "group"])
def test_a_run_killed_around_any_write_is_completed_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: Runner, more: str, pulls: int
) -> None:
    with forge_world("github", tmp_path / "whole", monkeypatch, edges=["edge-1"], more=more) as world:
        assert run(world, runner, "cache") == Exit.DONE
        points = [line.split(" ", 1) for line in runner.points()]
        heads = world.open_heads()
    around = [(number, name) for number, name in points if "forge" in name or "push" in name]
    assert sum("forge POST" in name for _, name in around) == 2 * pulls, points

    for number, name in around:
        with forge_world(
            "github", tmp_path / f"killed-{number}", monkeypatch, edges=["edge-1"], more=more
        ) as world:
            assert run(world, runner, "cache", f"{number}:kill") == -9, name
            assert run(world, runner, "another") == Exit.DONE, name
            assert world.open_heads() == heads, name
            assert len(world.pulls("edge-1")) == pulls, name
            before = state(world)
            assert run(world, runner, "third") == Exit.DONE, name
            assert state(world) == before, name
