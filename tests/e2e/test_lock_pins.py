"""`lock` and the pins of floating upstreams: holding, following, checking, and writing in a working copy."""

import json
import re
from pathlib import Path

import pytest

from tests.support.world import World, build_world, git

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
STATE = "refs/heads/reconciler/fleet/state"
WEB = "locks/upstreams/default/web.json"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A variant follows a tag; it is published, and the tag has moved since."""
    return started(build_world(WORLDS / "11-floating-tag", tmp_path / "w"))


@pytest.fixture
def reviewed(tmp_path: Path) -> World:
    """The same, with its first pin merged."""
    return started(build_world(WORLDS / "30-reviewed-lock", tmp_path / "w"))


def started(world: World) -> World:
    world.tag("blueprints", "web/stable", "web/v1")
    world.publish()
    world.tag("blueprints", "web/stable", "web/v2")
    return world


def clone(world: World) -> Path:
    copy = world.root / "copy"
    git(world.root, "clone", "-q", str(world.control), str(copy))
    return copy


def test_a_variant_is_held_before_it_is_ever_applied(tmp_path: Path) -> None:
    world = build_world(WORLDS / "11-floating-tag", tmp_path / "w")
    world.tag("blueprints", "web/stable", "web/v3")
    assert world.run("lock", "hold", "web", "v1").code == 0

    said = world.run("apply").out

    assert re.search(r"create +edge/web +New +web/v1; Locked", said)
    assert json.loads(git(world.control, "show", f"{STATE}:{WEB}"))["held"]


def test_a_hold_that_is_lost_with_the_state_costs_a_resolution_only(world: World) -> None:
    world.run("lock", "hold", "web")
    git(world.control, "update-ref", "-d", STATE)

    assert re.search(r"update +edge/web +UpstreamChanged", world.run("plan").out)


def test_a_hold_that_stays_with_a_former_name_is_told_until_it_is_repeated(world: World) -> None:
    world.run("lock", "hold", "web", "v1")
    with world.edit("control", "Rename the variant") as copy:
        path = copy / "manifests/web.yaml"
        path.write_text(path.read_text().replace("name: web", "name: shop", 1))
    note = "note: PackageVariant default/shop follows its upstream: default/web, from which it takes over,"

    for command in ("plan", "apply", "plan"):
        assert world.run(command).out.count(note) == 1
    step = "lock hold default/shop web/v1"
    assert f"hold it again with `reconciler {step}`" in world.run("plan").out
    assert world.run(*step.split()).code == 0
    assert note not in world.run("plan").out


def test_a_reviewed_lock_is_written_in_the_working_copy(reviewed: World) -> None:
    copy, before = clone(reviewed), reviewed.all_refs()

    said = reviewed.run("lock", control=copy)

    assert f"wrote {WEB}" in said.out
    assert git(copy, "status", "--short").split() == ["M", WEB]
    assert reviewed.all_refs() == before
    assert "wrote" not in reviewed.run("lock", control=copy).out
    git(copy, "commit", "-qam", "Take what is new")
    git(copy, "push", "-q", "origin", "HEAD:main")
    plan = reviewed.run("plan").out
    assert re.search(r"update +edge/web", plan)
    assert "lock:" not in plan


def test_a_hold_in_a_working_copy_survives_what_lock_writes_later(reviewed: World) -> None:
    copy = clone(reviewed)
    assert reviewed.run("lock", "hold", "web", "v3", control=copy).code == 0
    first = (copy / WEB).read_bytes()

    assert json.loads(first)["held"]
    assert reviewed.run("lock", control=copy).code == 0
    assert (copy / WEB).read_bytes() == first
    assert reviewed.run("lock", "follow", "web", control=copy).code == 0
    assert not json.loads((copy / WEB).read_bytes())["held"]


def test_without_a_working_copy_lock_opens_the_pull_request_that_apply_would(
    reviewed: World, tmp_path: Path
) -> None:
    other = started(build_world(WORLDS / "30-reviewed-lock", tmp_path / "other"))
    head = "refs/heads/reconciler/fleet/lock"

    assert reviewed.run("lock").code == 0
    other.run("apply")

    assert git(reviewed.control, "rev-parse", head) == git(other.control, "rev-parse", head)
    refused = reviewed.run("lock", "hold", "web")
    assert (refused.code, "working copy" in refused.err) == (2, True)
