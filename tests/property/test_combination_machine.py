"""Lives of drawn fleets on real repositories: what single tests keep apart is combined at random.

A life is a drawn fleet and drawn steps of people, upstream authors, clusters and failing machines;
after each step runs settle, and every oracle of tests/support/combination/oracles.py is asked. The
driver is written by hand and not with hypothesis: lives are tests of their own that several processes
share, and `make soak` plays them for hours. A theme and a seed are a life, and a failure prints its
steps.
"""

import os
import tempfile
import time
from pathlib import Path
from random import Random

import pytest

from tests.faults.world import Runner
from tests.support.combination.ledger import ViolationError
from tests.support.combination.life import draw_life
from tests.support.combination.themes import THEMES
from tests.support.notes import note
from tests.support.samples import ALL

pytestmark = pytest.mark.slow

FIRST = 500
LIVES = int(os.environ.get("RECONCILER_LIVES") or (10 if ALL else 1))
STEPS = 15
SOAK_MINUTES = float(os.environ.get("RECONCILER_SOAK_MINUTES", "0"))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("runner") / "points")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LIVES))
@pytest.mark.parametrize("theme", THEMES)
def test_life_keeps_every_promise(theme: str, seed: int, runner: Runner) -> None:
    live(seed, theme, runner)


@pytest.mark.skipif(not SOAK_MINUTES, reason="`make soak` plays lives for hours")
def test_soak_keeps_every_promise(runner: Runner) -> None:
    end = time.monotonic() + 60 * SOAK_MINUTES
    failures = []
    lives = 0
    while time.monotonic() < end:
        seed = int.from_bytes(os.urandom(4))
        theme = sorted(THEMES)[lives % len(THEMES)]
        lives += 1
        try:
            live(seed, theme, runner)
        except ViolationError as violation:
            failures.append((theme, seed))
            print(f"{theme} {seed}: {violation}", flush=True)
    note(f"soak: {lives} lives, {len(failures)} violated a promise {failures}")
    assert not failures


def live(seed: int, theme: str, runner: Runner) -> None:
    """Play one life; raise with its steps what it violates."""
    with tempfile.TemporaryDirectory(prefix="machine-") as directory:
        draw_life(Random(seed), Path(directory) / "w", THEMES[theme], STEPS, runner)
