"""Every seed and every finding of fuzzing, run for ever."""

import random
from pathlib import Path

import pytest

from tools.fuzz.run import CASES, mutated
from tools.fuzz.seeds import SEEDS
from tools.fuzz.shapes import drawn
from tools.fuzz.targets import TARGETS

KEPT = sorted(path for path in CASES.rglob("*") if path.is_file() and path.name != "README.md")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_finding_of_fuzzing_is_none_any_more(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", list(TARGETS))
def test_seeds_and_their_mutations_keep_the_law_of_their_target(name: str) -> None:
    draw = random.Random(name)
    for seed in SEEDS[name]:
        TARGETS[name](seed)
    for _ in range(10 if name.startswith("forge-") else 40):  # five of them, with one client
        TARGETS[name](mutated(draw, SEEDS[name]))
        TARGETS[name](drawn(draw, SEEDS[name]))


def test_every_target_has_seeds() -> None:
    assert SEEDS.keys() == TARGETS.keys()
    assert all(SEEDS.values())
