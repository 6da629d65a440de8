"""Lives of drawn fleets on real repositories: what single tests keep apart is combined at random.

A life is a drawn fleet and drawn steps of people, upstream authors, clusters and failing machines;
after each step runs settle, and every oracle of tests/support/combination/oracles.py is asked. The
driver is written by hand and not with hypothesis: a trace holds each step's arguments as JSON, so
that it can be kept as a case and replayed on a later version, lives are tests of their own that
several processes share, and `make soak` plays them for hours. A failure prints its trace, shortened;
`RECONCILER_TRACE=FILE` replays one.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.faults.world import Runner
from tests.support.combination.ledger import ViolationError
from tests.support.combination.life import Trace, draw_life, replay
from tests.support.combination.needy_lives import NEEDS, draw_needs
from tests.support.combination.operations import OPERATIONS, draw_operations
from tests.support.combination.places import PLACED, draw_places
from tests.support.combination.themes import THEMES
from tests.support.notes import note
from tests.support.samples import ALL

Fails = Callable[[Trace], bool]


def shrink(trace: Trace, fails: Fails, *, seconds: float = 60) -> Trace:
    """Return the shortest failing trace that leaving out steps, then variants, leads to in this time."""
    end = time.monotonic() + seconds
    steps, size = list(trace["steps"]), max(1, len(trace["steps"]) // 2)
    while size and time.monotonic() < end:
        for start in range(len(steps) - size, -1, -size):
            shorter = steps[:start] + steps[start + size :]
            if time.monotonic() < end and fails({**trace, "steps": shorter}):
                steps = shorter
        size //= 2
    spec = trace["spec"]
    for field in ("variants", "neighbours", "corpus"):
        for item in list(spec.get(field, ())):
            fewer = {**spec, field: [other for other in spec[field] if other != item]}
            if time.monotonic() < end and fails({"spec": fewer, "steps": steps}):
                spec = fewer
    return {"spec": spec, "steps": steps}


def same_violation(first_line: str, runner: Runner | None) -> Fails:
    """Return a test of traces: whether replaying one violates the same rule."""

    def fails(trace: Trace) -> bool:
        with tempfile.TemporaryDirectory(prefix="machine-") as directory:
            try:
                replay(trace, Path(directory) / "w", runner)
            except ViolationError as violation:
                return rule_of(str(violation)) == rule_of(first_line)
            except (KeyError, IndexError):
                return False  # a step that its missing neighbours made impossible
            return False

    return fails


def rule_of(violation: str) -> str:
    """Return what a violation is about, without the names in it."""
    words = violation.split("\n", maxsplit=1)[0].split(" ")
    return " ".join(word for word in words if word.isalpha())


pytestmark = pytest.mark.slow

FIRST = 500
LIVES = int(os.environ.get("RECONCILER_LIVES") or (10 if ALL else 2))
THEMED = 2 if ALL else 1
DRAWN = [("anything", FIRST + n) for n in range(LIVES)]
DRAWN += [(name, FIRST + n) for name in THEMES if name != "anything" for n in range(min(THEMED, LIVES))]
OPERATED = 3 if ALL else 1
DRAWN += [(OPERATIONS, FIRST + n) for n in range(min(OPERATED, LIVES))]
PLACES = (0, 1, 2, 3, 5, 12)
"""Lives that find what places once lost: a move, a package of another instance, a declined deletion."""
DRAWN += [(PLACED, FIRST + n) for n in (range(20) if ALL else PLACES[: 3 * LIVES])]
DRAWN += [(NEEDS, FIRST + n) for n in range(6 if ALL else 1)]
STEPS = 15
SOAK_MINUTES = float(os.environ.get("RECONCILER_SOAK_MINUTES", "0"))
TRACE = os.environ.get("RECONCILER_TRACE", "")
SHRINK_S = float(os.environ.get("RECONCILER_SHRINK_SECONDS", "60"))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("runner") / "points")


@pytest.mark.parametrize(("theme", "seed"), DRAWN)
def test_life_keeps_every_promise(theme: str, seed: int, runner: Runner) -> None:
    live(seed, theme, runner)


@pytest.mark.skipif(not TRACE, reason="RECONCILER_TRACE names no file")
def test_trace_of_the_environment_keeps_every_promise(runner: Runner, tmp_path: Path) -> None:
    replay(json.loads(Path(TRACE).read_text()), tmp_path / "w", runner)


@pytest.mark.skipif(not SOAK_MINUTES, reason="`make soak` plays lives for hours")
def test_soak_keeps_every_promise(runner: Runner) -> None:
    end = time.monotonic() + 60 * SOAK_MINUTES
    failures = []
    lives = 0
    while time.monotonic() < end:
        seed = int.from_bytes(os.urandom(4))
        theme = sorted({*THEMES, OPERATIONS, PLACED, NEEDS})[lives % (3 + len(THEMES))]
        lives += 1
        try:
            live(seed, theme, runner)
        except pytest.fail.Exception as failure:
            failures.append((theme, seed))
            print(f"{theme} {seed}: {failure}", flush=True)
    note(f"soak: {lives} lives, {len(failures)} violated a promise {failures}")
    assert not failures


def live(seed: int, theme: str, runner: Runner) -> None:
    """Play one life; fail with a trace that replays it."""
    root = Path(tempfile.mkdtemp(prefix="machine-"))
    random = Random(seed)
    try:
        if theme == OPERATIONS:
            draw_operations(random, root / "w", STEPS)
        elif theme == PLACED:
            draw_places(random, root / "w", STEPS)
        elif theme == NEEDS:
            draw_needs(random, root / "w", STEPS)
        else:
            draw_life(random, root / "w", THEMES[theme], STEPS, runner)
    except ViolationError as violation:
        told, trace = violation.args
        trace = shrink(trace, same_violation(told, runner), seconds=SHRINK_S)
        pytest.fail(
            f"{told}\n{theme} {seed}, replay with RECONCILER_TRACE:\n{json.dumps(trace)}", pytrace=False
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
