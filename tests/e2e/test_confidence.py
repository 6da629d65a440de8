"""Confidence in an upstream revision: told by the plan, required by a rule of approval, and by a wave."""

import json
from pathlib import Path

import pytest

from reconciler.errors import Exit
from tests.support.git import Repo
from tests.support.schema import output_violations
from tests.support.small_world import _CONFIGURATION, app, manifest, variant, write_world
from tests.support.world import World

EDGES = ("e1", "e2", "e3", "e4")
MONDAY = 1_767_400_000


def make_world(root: Path, settings: str = "") -> World:
    write_world(root, EDGES, more={"reconciler.yaml": f"{_CONFIGURATION}{settings}"})
    return World(root)


def settle(world: World) -> None:
    """Let people approve everything, and a run publish it."""
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        assert world.run(*line).code in {Exit.DONE, Exit.WAITING}


def ask(world: World, revision: int, *edges: str) -> None:
    """Let the packages web of some repositories ask for a revision."""
    files = {manifest(edge, "web"): variant(edge, "web", revision=revision) for edge in edges}
    Repo(world.control, time=MONDAY).commit(files, message="Move\n")


def configure(world: World, settings: str) -> None:
    Repo(world.control, time=MONDAY).commit(
        {"reconciler.yaml": f"{_CONFIGURATION}{settings}"}, message="Settings\n"
    )


def confidences(world: World) -> dict[str, dict[str, object]]:
    out = world.run("plan", "--output", "json").out
    assert output_violations("Plan", out) == []
    return {told["revision"]: told for told in json.loads(out)["confidences"]}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return a fleet in which e1 runs web/v2, e2 went back from it, and e3 had a conflict with it."""
    world = make_world(tmp_path_factory.mktemp("lived") / "w")
    settle(world)
    Repo(world.root / "e3.git", time=MONDAY).commit(
        {"web/app.yaml": app("web", 7)}, message="Another image\n"
    )
    settle(world)
    ask(world, 2, "e1", "e2", "e3")
    world.run("apply")
    draft = world.draft_branch("e3", "web")
    with world.edit("e3", "Take the new image", branch=draft) as copy:
        (copy / "web/app.yaml").write_text(app("web", 2))
    settle(world)
    ask(world, 1, "e2")
    settle(world)
    ask(world, 2, "e4")
    return world


def test_the_plan_tells_how_packages_fared_with_a_revision_that_it_brings(lived: World) -> None:
    said = lived.run("plan").out

    assert "confidence in web/v2: runs in 2 packages, the first since 2026-01-0" in said
    assert "; 3 had it, 1 went back, 1 met a conflict\n" in said


def test_json_counts_the_packages(lived: World) -> None:
    told = confidences(lived)["web/v2"]

    assert {name: told[name] for name in ("running", "reverted", "conflicts", "total")} == {
        "running": 2,
        "reverted": 1,
        "conflicts": 1,
        "total": 3,
    }


def test_the_job_summary_has_the_same_words(lived: World) -> None:
    (line,) = (line for line in lived.run("plan").out.splitlines() if line.startswith("confidence in "))

    assert line.removeprefix("confidence in ") in lived.run("plan", "--output", "markdown").out


def test_the_html_report_has_the_same_words(lived: World, tmp_path: Path) -> None:
    (line,) = (line for line in lived.run("plan").out.splitlines() if line.startswith("confidence in "))

    lived.run("plan", "--html", str(tmp_path / "plan.html"))

    assert f"<li>{line.removeprefix('confidence in ')}</li>" in (tmp_path / "plan.html").read_text()


def test_a_revision_that_nobody_had_is_new_in_json_alone(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w")
    settle(world)
    ask(world, 2, "e1")

    assert "confidence" not in world.run("plan").out
    assert confidences(world)["web/v2"]["text"] == "new to this fleet"


def test_a_plan_without_another_revision_tells_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w")

    assert confidences(world) == {}


def test_a_rule_approves_once_enough_packages_run_the_revision(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w")
    settle(world)
    configure(world, "  approval:\n    auto:\n    - confidence: {packages: 1}\n")
    ask(world, 2, "e1", "e2")
    world.run("apply")

    waiting = world.run("apply").out
    assert "Approval waits for confidence in web/v2: 0 packages run it, and 1 must" in waiting
    assert "confidence in its upstream revision" in world.run("status", "--output", "wide").out
    before = world.all_refs()
    assert "Nothing was written" in world.run("apply").out
    assert world.all_refs() == before

    assert world.run("approve", "e1/web").code == Exit.DONE
    assert "1 to approve" in world.run("apply").out


def test_packages_that_went_back_take_confidence_away(lived: World) -> None:
    configure(lived, "  approval:\n    auto:\n    - confidence: {packages: 1}\n")
    lived.run("apply")

    assert (
        "Approval waits for confidence in web/v2: 1 of 3 packages went back from it, and at most 0 may"
        in lived.run("apply").out
    )

    configure(lived, "  approval:\n    auto:\n    - confidence: {packages: 1, maxReverted: 34%}\n")
    assert "1 to approve" in lived.run("plan").out


def test_confidence_is_unknown_where_a_repository_could_not_be_read(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w")
    settle(world)
    ask(world, 2, "e1")
    settle(world)
    configure(world, "  approval:\n    auto:\n    - confidence: {packages: 1}\n")
    ask(world, 2, "e2")
    world.run("apply")
    (world.root / "e3.git").rename(world.root / "e3.away")

    said = world.run("plan")
    assert "Approval waits for confidence in web/v2: a repository could not be read" in said.out

    (world.root / "e3.away").rename(world.root / "e3.git")
    assert "1 to approve" in world.run("plan").out
