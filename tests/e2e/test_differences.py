"""What `--diff` prints is what a run does."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A fleet with two published packages: one gets another revision, the other is deleted."""
    world = write_world(tmp_path_factory.mktemp("w") / "w", ("edge-1",))
    world.publish()
    control = Repo(world.control, time=world.clock + 60)
    control.commit({manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
    control.commit({manifest("edge-1", "db"): None})
    return world


def test_diff_applies_to_main_and_gives_the_draft(world: World, tmp_path: Path) -> None:
    patch = world.run("plan", "--diff", "edge-1/web").out
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(world.root / "edge-1.git"), str(clone))

    subprocess.run(["git", "apply", "--index", "-"], cwd=clone, input=patch.encode(), check=True)
    tree = git(clone, "write-tree").strip()
    copy = json.loads(world.run("explain", "edge-1/web", "-o", "json").out)

    assert git(clone, "rev-parse", f"{tree}:web").strip() == copy["after"]
    assert "+        image: registry.example/web:v2" in patch.splitlines()


def test_diff_of_a_fleet_has_deletions_first(world: World) -> None:
    said = world.run("plan", "--diff")

    heads = [line for line in said.out.splitlines() if line.startswith("# ") and not line.startswith("# in ")]
    assert [head.split(";")[0] for head in heads] == ["# delete edge-1/db", "# update edge-1/web"]
    assert said.code == 0


def test_diff_of_a_draft_in_review_is_what_merging_it_brings(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.root, tmp_path / "w")
    fleet = World(tmp_path / "w")
    fleet.run("apply")

    lines = fleet.run("plan", "--diff", "edge-1/web").out.splitlines()

    assert lines[0].startswith("# in review edge-1/web")
    assert "+        image: registry.example/web:v2" in lines


def test_check_prints_the_differences_that_merging_brings(world: World) -> None:
    extra = variant("edge-1", "web").replace("name: web-edge-1", "name: extra")
    extra = extra.replace("repo: edge-1\n    package: web", "repo: edge-1\n    package: extra")
    control = Repo(world.control, time=world.clock + 120)
    control.commit({manifest("edge-1", "extra"): extra}, branch="change", start="main")

    lines = world.run("check", "--head", "change", "--diff").out.splitlines()

    assert "# create edge-1/extra; web/v1" in lines
    assert "+++ b/extra/app.yaml" in lines
    assert "+++ b/web/app.yaml" not in lines
