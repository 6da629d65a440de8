"""A rollout that stops in its second wave, told in the same words everywhere, and killed at any point."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.e2e.test_worlds import happen
from tests.faults.promises import final
from tests.faults.world import FaultWorld, Runner
from tests.support.samples import ALL, sample
from tests.support.world import World, build_world, story

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).resolve().parents[2] / "fixtures/worlds/37-rollout-in-waves"
KILLS = 6 if ALL else 2
"""Points of one run at which it is killed, spread over all that it passes."""
EARLY = (
    "edge-04/web: Application argocd/edge-04-web is Degraded: Deployment web exceeded its progress deadline"
)
LINES = [
    "rollout web/v2 of default/web: failed, 5 of 12 published",
    "wave canary: complete, 2 of 2 published",
    f"wave early: failed, 3 of 4 published, 1 failed ({EARLY})",
    "wave main: waiting, 0 of 6 published, is stopped: wave early failed",
]


def played(root: Path, until: str) -> World:
    """Play the story of the world up to, and with, one change of people."""
    world = build_world(SOURCE, root)
    for action in story(SOURCE):
        if not happen(SOURCE, world, *action):
            world.run(*action)
        if action == ["change", until]:
            return world
    raise AssertionError(until)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return the fleet when the gate of the second wave has failed, and a run has seen it."""
    world = played(tmp_path_factory.mktemp("failed") / "w", "3-early-is-degraded")
    world.run("apply")
    return world


@pytest.mark.parametrize(
    "line",
    [("plan",), ("status",), ("apply",), ("plan", "--output", "markdown"), ("plan", "--output", "json")],
    ids=" ".join,
)
def test_every_command_tells_the_rollout_in_the_same_words(failed: World, line: tuple[str, ...]) -> None:
    text = failed.run(*line).out

    assert [words for words in LINES if words.removeprefix("rollout ") not in text] == []


def test_the_pull_request_of_a_stopped_rollout_says_not_to_merge_it(failed: World) -> None:
    text = failed.run("pr", "show", "edge-06#2").out

    assert "wave early of rollout web/v2 of default/web" in text
    assert "is stopped: wave early failed: do not merge it now" in text


@pytest.mark.parametrize("moment", sample(["4-roll-back", "1-release", "2-canary-is-healthy"], 3))
def test_a_run_that_was_killed_anywhere_is_completed_by_the_next(moment: str, tmp_path: Path) -> None:
    now = played(tmp_path / "w", moment).clock
    world = FaultWorld(tmp_path / "w", Runner(tmp_path / "points"), now)
    world.save()
    undisturbed = world.run("apply")
    expected, points = final(world), len(world.runner.points())
    assert undisturbed.code == 0
    assert points > KILLS
    world.run("apply")
    assert final(world) == expected

    wrong = []
    for point in range(1, points + 1, max(1, points // KILLS)):
        world.restore()
        killed = world.run("apply", point=f"{point}:kill")
        world.run("apply", cache="another-cache")
        shutil.rmtree(world.root / "another-cache", ignore_errors=True)
        if killed.code != -signal.SIGKILL or final(world) != expected:
            wrong.append(point)

    assert wrong == []


def test_no_policy_merges_what_a_stopped_rollout_has_in_review(tmp_path: Path) -> None:
    world = played(tmp_path / "w", "2-canary-is-healthy")
    with world.edit("control", "Approve by policy") as copy:
        configuration = copy / "reconciler.yaml"
        configuration.write_text(configuration.read_text() + "  approval:\n    auto:\n    - {}\n")
    world.run("apply")
    world.wait_until("2026-01-03T06:05:00Z")
    happen(SOURCE, world, "change", "3-early-is-degraded")
    with world.edit("control", "Pause") as copy:
        manifest = copy / "manifests/web.yaml"
        annotation = '  annotations:\n    reconciler.dev/rollout-paused: "true"\nspec:\n  upstream'
        manifest.write_text(manifest.read_text().replace("spec:\n  upstream", annotation))

    paused = world.run("apply").out
    with world.edit("control", "Resume") as copy:
        manifest = copy / "manifests/web.yaml"
        manifest.write_text(manifest.read_text().replace('"true"', '"false"'))
    resumed = world.run("plan").out

    assert "merged" not in paused
    assert paused.count("Rollout web/v2 of web is paused") == 3
    assert resumed.count("ApprovedByPolicy") == 3
