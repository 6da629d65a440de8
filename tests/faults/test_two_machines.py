"""Two machines with separate caches in every schedule of their visible effects do what one does."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.faults.forges import WORLDS, saved_forge
from tests.faults.machines import VISIBLE
from tests.faults.matrix import sweep
from tests.faults.moments import MOMENTS
from tests.faults.promises import final
from tests.faults.rows import FORGES
from tests.faults.world import Ran, Runner, Turn, forking

pytestmark = [pytest.mark.one_forge, pytest.mark.slow]

MOST_LOCAL, MOST_FORGE = 1, 1
LOCAL = ("first-apply", "later-apply", "later-groups", "reviewed", "delivery")


def schedules(effects: int) -> dict[str, list[Turn]]:
    """Return every schedule of two runs of so many effects where each is stopped at most once.

    In half of them the second run reads the world before the first one writes, in the others only
    when it is its turn.
    """
    found = {}
    for first in range(1, effects + 2):
        for second in range(1, effects + 2):
            for early in (True, False):
                turns = [Turn(0, 1), Turn(1, 1)] if early else []
                turns += [Turn(0, first), Turn(1, second), Turn(0), Turn(1)]
                when = "reads at once" if early else "reads later"
                found[f"the first stops before {first}, the second, which {when}, before {second}"] = turns
    return found


def check(results: Sequence[Ran], code: int, name: str) -> None:
    for ran in results:
        assert ran.code in {code, Exit.UNAVAILABLE}, f"{name}: {ran.out}"
        assert "Traceback" not in ran.out, f"{name}: {ran.out}"
        if ran.code != code:
            assert "hint" in ran.out, f"{name}: {ran.out}"


def answers(lines: Sequence[Sequence[str]], turns: Sequence[Turn]) -> list[Ran]:
    every = forking("tests.faults.machines").ask({"lines": lines, "turns": turns})
    return [Ran(each["code"], each["out"]) for each in every]


@pytest.mark.parametrize("name", LOCAL)
def test_two_machines_on_the_local_forge_do_what_one_does(name: str, tmp_path: Path) -> None:
    runner = Runner(tmp_path / "points")
    moment = MOMENTS[name]
    world = moment.build(tmp_path / "w", runner)
    world.save()
    undisturbed = world.run(*moment.line, cache="first")
    wanted = final(world)
    every = schedules(sum(point.partition(" ")[2].startswith(VISIBLE) for point in runner.points()))
    control = str(world.root / "control.git")
    lines = [
        [*moment.line, "--control", control, "--cache-dir", str(world.root / cache)]
        for cache in ("first", "second")
    ]
    with sweep("machines/local", name, list(every), MOST_LOCAL) as tried:
        for point in tried:
            world.restore()
            check(answers(lines, every[point.name]), undisturbed.code, point.name)
            again = world.run(*moment.line, cache="third")
            assert again.code == undisturbed.code, f"{point.name}: {again.out}"
            assert final(world) == wanted, point.name
    world.fsck()


@pytest.mark.parametrize("kind", list(FORGES))
@pytest.mark.parametrize("name", WORLDS)
def test_two_machines_on_a_forge_do_what_one_does(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saved_forge(kind, name, tmp_path / "w", tmp_path / "points", monkeypatch) as saved:
        undisturbed = saved.run()
        wanted, points = saved.final(), saved.runner.points()
        every = schedules(sum(point.partition(" ")[2].startswith(VISIBLE) for point in points))
        lines = [saved.line(cache) for cache in ("first", "second")]
        with sweep(f"machines/{kind}", name, list(every), MOST_FORGE) as tried:
            for point in tried:
                saved.restore()
                check(answers(lines, every[point.name]), undisturbed.code, point.name)
                again = saved.run(cache="third")
                assert again.code == undisturbed.code, f"{point.name}: {again.out}"
                assert saved.final() == wanted, point.name
