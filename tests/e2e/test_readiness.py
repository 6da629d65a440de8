"""What stands against approving a draft, through the command line on real repositories."""

from pathlib import Path

from tests.support.git import Repo
from tests.support.small_world import manifest, repository, variant, write_world
from tests.support.world import World

EDGE = "edge-1"


def make(root: Path, *, deployment: bool = True) -> World:
    registered = {f"manifests/repositories/{EDGE}.yaml": repository(EDGE)}
    if not deployment:
        registered = {path: text.replace("true", "false") for path, text in registered.items()}
    return write_world(root, (EDGE,), more=registered)


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
