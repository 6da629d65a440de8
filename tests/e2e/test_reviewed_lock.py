"""A reviewed lock on real repositories: what people do on its branch, and what becomes of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.world import World, build_world, git, refs, restored

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
BRANCH = "reconciler/fleet/lock"
HEAD = f"refs/heads/{BRANCH}"
WEB, API = "locks/upstreams/default/web.json", "locks/upstreams/default/api.json"


@pytest.fixture
def world() -> World:
    """Two variants follow one tag; their first pins are merged, and the tag has moved since."""
    return restored("reviewed", make_reviewed)


def make_reviewed(root: Path) -> World:
    world = build_world(WORLDS / "30-reviewed-lock", root)
    with world.edit("control", "Want another") as copy:
        text = (copy / "manifests/web.yaml").read_text()
        api = text.replace("name: web", "name: api").replace(
            "repo: edge\n    package: web", "repo: edge\n    package: api"
        )
        (copy / "manifests/api.yaml").write_text(api)
    world.tag("blueprints", "web/stable", "web/v1")
    world.publish()
    world.tag("blueprints", "web/stable", "web/v2")
    return world


def show(world: World, ref: str, path: str) -> dict[str, Any]:
    return json.loads(git(world.control, "show", f"{ref}:{path}"))


def commit_of(world: World, tag: str) -> str:
    return git(world.root / "blueprints.git", "rev-parse", tag).strip()


def lock_line(world: World) -> str:
    """Return what a plan says about the lock, empty if it says nothing."""
    said = world.run("plan").out
    return next((line for line in said.splitlines() if line.startswith("lock: ")), "")


def rests(world: World) -> bool:
    """Whether a run writes nothing, also from a fresh clone without any cache."""
    before = world.all_refs()
    world.run("apply", cache=f"cache-{len(list(world.root.iterdir()))}")
    return world.all_refs() == before


def test_what_people_write_on_the_branch_stays_and_the_rest_follows(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        lock = json.loads((copy / WEB).read_text())
        (copy / WEB).write_text(json.dumps({**lock, "commit": commit_of(world, "web/v1"), "held": True}))
    edited = refs(world.control)[HEAD]
    assert lock_line(world).startswith(
        "lock: update (PullRequestOutdated)"
    )  # its list of pins is shorter now
    world.run("apply")
    assert lock_line(world).startswith("lock: keep (DraftEdited)")
    assert rests(world)

    world.tag("blueprints", "web/stable", "web/v3")
    said = world.run("apply").out

    assert "left as edited: upstreams/default/web.json" in said
    assert git(world.control, "rev-parse", f"{HEAD}^").strip() == edited
    assert show(world, HEAD, API)["commit"] == commit_of(world, "web/v3")
    assert show(world, HEAD, WEB)["commit"] == commit_of(world, "web/v1")
    assert rests(world)

    assert world.run("approve", "control/locks").code == 0
    plan = world.run("plan", "--all").out
    assert re.search(r"update +edge/api .* -> web/stable@", plan)
    assert re.search(r"keep +edge/web +UpToDate", plan)
    assert "lock:" not in plan


def test_a_pin_that_a_person_takes_out_of_the_proposal_stays_out(world: World) -> None:
    world.run("apply")
    main = show(world, "main", WEB)
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        (copy / WEB).write_bytes(git(world.control, "show", f"main:{WEB}").encode())
    world.tag("blueprints", "web/stable", "web/v3")
    world.run("apply")

    assert show(world, HEAD, WEB) == main
    assert show(world, HEAD, API)["commit"] == commit_of(world, "web/v3")
    assert rests(world)


def test_pin_that_people_left_out_of_what_they_merged_is_not_called_reverted(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        (copy / WEB).write_bytes(git(world.control, "show", f"main:{WEB}").encode())
    world.run("apply")
    assert world.run("approve", "control/locks").code == 0
    world.run("apply")

    said = lock_line(world)

    assert said.startswith("lock: keep (Rejected): Pull request #2 was merged, and main does not have these")
    git(world.root, "clone", "-q", str(world.control), "copy")
    ran = Clone(world.root, world.clock, timed=True).run("lock")
    assert "`reconciler lock` in a working copy writes them" in said
    assert f"wrote {WEB}" in ran.out


def test_main_is_merged_into_a_proposal_that_people_changed(world: World) -> None:
    world.run("apply")
    with world.edit("control", "Not that one", branch=BRANCH) as copy:
        (copy / WEB).write_bytes(git(world.control, "show", f"main:{WEB}").encode())
    world.tag("blueprints", "web/stable", "web/v3")
    with world.edit("control", "Drop a pin") as copy:
        (copy / API).unlink()

    assert world.run("apply").code == 0

    assert git(world.control, "rev-parse", f"{HEAD}^2") == git(world.control, "rev-parse", "main")
    assert rests(world)
    assert world.run("approve", "control/locks").code == 0
    assert show(world, "main", WEB)["commit"] == commit_of(world, "web/v1")
    assert show(world, "main", API)["commit"] == commit_of(world, "web/v3")


class Clone(World):
    """Commands are run in a working copy of the control repository."""

    @property
    def control(self) -> Path:
        """The working copy."""
        return self.root / "copy"
