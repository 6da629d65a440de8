"""What stands against approving a draft, through the command line on real repositories."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.git import Repo
from tests.support.points import team_point
from tests.support.small_world import manifest, repository, variant, write_world
from tests.support.world import World, refs

EDGE = "edge-1"
POINT = team_point("required")


def make(root: Path, *, deployment: bool = True) -> World:
    registered = {f"manifests/repositories/{EDGE}.yaml": repository(EDGE)}
    if not deployment:
        registered = {path: text.replace("true", "false") for path, text in registered.items()}
    write_world(root, (EDGE,), more=registered)
    return World(root)


def with_point(world: World) -> None:
    """The next upstream revision asks for configuration that nothing provides."""
    with world.edit("blueprints", "web v3") as copy:
        (copy / "web/team.yaml").write_text(POINT)
    blueprints = Repo(world.root / "blueprints.git")
    blueprints.tag("web/v3")
    with world.edit("control", "web v3") as copy:
        (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=3))


def approvable(world: World) -> list[dict[str, Any]]:
    """Return what the plan says about approving each open pull request."""
    return list(json.loads(world.run("plan", "--output", "json").out)["approvable"])


def test_an_unmet_gate_refuses_approval_where_packages_are_deployed(tmp_path: Path) -> None:
    world = make(tmp_path / "w")
    with_point(world)
    assert world.run("apply", "--quiet").code == 0
    before = world.all_refs()

    said = world.run("approve", f"{EDGE}/web")

    assert said.code == 4
    assert "config.injection.Team.team: no injectors defined" in said.out
    assert world.all_refs() == before
    unmet = {pull["head"].split("/")[1]: pull["unmet"] for pull in approvable(world)}
    assert unmet == {"db": [], "web": ["config.injection.Team.team: no injectors defined"]}
    assert "not ready" in world.run("pr", "show", f"{EDGE}/web").out


def test_gate_with_a_name_like_functions_lets_its_draft_be_updated(tmp_path: Path) -> None:
    world = make(tmp_path / "w")
    world.run("apply", "--quiet")
    with world.edit("blueprints", "web v3") as copy:
        text = (copy / "web/Kptfile").read_text()
        gate = "info:\n  readinessGates:\n  - conditionType: FunctionsVerified\n"
        (copy / "web/Kptfile").write_text(f"{text.rstrip()}\n{gate}")
    Repo(world.root / "blueprints.git").tag("web/v3")
    with world.edit("control", "web v3") as copy:
        (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=3))

    assert f"update  {EDGE}/web  UpstreamChanged" in world.run("plan").out
    world.run("apply", "--quiet")

    assert "PipelineFailed" not in world.run("status", "-o", "json").out
    refused = world.run("approve", f"{EDGE}/web")
    assert "FunctionsVerified: the package has no such condition" in refused.out + refused.err
    assert "Correct the pipeline" not in refused.out + refused.err
    refs_before = world.all_refs()
    assert world.run("apply").out.endswith("Nothing was written.\n")
    assert world.all_refs() == refs_before


def test_an_unmet_gate_is_shown_elsewhere(tmp_path: Path) -> None:
    world = make(tmp_path / "w", deployment=False)
    with_point(world)
    world.run("apply", "--quiet")

    said = world.run("approve", f"{EDGE}/web")

    assert said.code == 0
    assert "not ready: config.injection.Team.team: no injectors defined" in said.out
    assert "refs/tags/web/v1" in refs(world.root / f"{EDGE}.git")
    # A blueprint with an open point is a blueprint: from then on nobody is asked to repair it.
    for command in ("apply", "plan", "status"):
        after = world.run(command)
        assert after.code == 0
        assert "not ready" not in after.out
        assert "readiness gates" not in after.out


@pytest.mark.parametrize("deployment", [True, False])
def test_an_unanswered_conflict_refuses_approval_everywhere(tmp_path: Path, *, deployment: bool) -> None:
    world = make(tmp_path / "w", deployment=deployment)
    world.run("apply", "--quiet")
    assert world.run("approve", f"{EDGE}/web").code == 0
    with world.edit(EDGE, "Choose an image") as copy:
        text = (copy / "web/app.yaml").read_text()
        (copy / "web/app.yaml").write_text(text.replace(":v1", ":mine"))
    with world.edit("control", "Next") as copy:
        (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=2))
    assert world.run("apply", "--quiet").code == 7
    assert world.run("plan", "--quiet", "--detailed-exitcode").code == 7, "nothing is pending, a person is"

    said = world.run("approve", f"{EDGE}/web")
    assert said.code == 4
    assert "conflict in app.yaml" in said.out

    with world.edit(EDGE, "Answer", branch=world.draft_branch(EDGE, "web")) as copy:
        (copy / "web/app.yaml").write_text(text.replace(":v1", ":both"))
    assert world.run("apply", "--quiet").code == 0
    assert world.run("approve", f"{EDGE}/web").code == 0
