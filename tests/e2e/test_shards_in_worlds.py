"""Every world of fixtures/worlds, applied by one run and by shards: the same stands there after each step."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.test_worlds import WORLDS, happen
from tests.support.samples import sample
from tests.support.standing import standing
from tests.support.world import build_world, story

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("source", sample(WORLDS, 9), ids=lambda path: path.name)
def test_shards_equal_one_run_in_every_world(source: Path, tmp_path: Path) -> None:
    one = play(source, tmp_path / "w", [""])
    (tmp_path / "w").rename(tmp_path / "one")
    shards = ["0/2", "1/2"] if WORLDS.index(source) % 8 else ["1/2", "0/2"]

    assert play(source, tmp_path / "w", shards) == one


def play(source: Path, root: Path, shards: Sequence[str]) -> list[dict[str, str]]:
    """Play a world's story with every apply as these shards; return what stands after each command."""
    world, steps = build_world(source, root), []
    for action in story(source):
        if action[0] == "conditions" or happen(source, world, *action):
            continue
        for number, shard in enumerate(shards if action[0] == "apply" else [""]):
            world.run(*action, *(["--shard", shard] if shard else []), cache=f"cache-{number}")
        steps.append(standing(root))
    return steps
