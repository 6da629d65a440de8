"""Damage of a record on the state branch lets nothing pass that the record held back."""

from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo
from tests.support.small_world import manifest, published, variant, write_world
from tests.support.world import World, build_world, git, refs

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
STATE = "reconciler/fleet/state"
REFUSED = "deletions.json"
GUARD = "  deletions:\n    count: 0\n"
DELETION = "refs/heads/reconciler/fleet/delete/web"


@pytest.fixture
def world() -> World:
    """A world with a published package whose deletion was refused, and a guard that was relaxed since."""
    made = published()
    text = git(made.control, "show", "main:reconciler.yaml")
    commit(made, {"reconciler.yaml": f"{text}{GUARD}", manifest("edge-1", "web"): None})
    assert made.run("apply").code == Exit.REFUSED
    commit(made, {"reconciler.yaml": text})
    return made


def commit(world: World, files: dict[str, str | None]) -> None:
    world.clock += 60
    Repo(world.control, time=world.clock).commit(files)


def damage(world: World, how: str, record: str = REFUSED) -> None:
    with world.edit("control", "Damage", branch=STATE) as copy:
        path = copy / record
        if how == "a directory":
            path.unlink()
            path.mkdir()
            (path / "x").write_text("{}")
        else:
            path.write_text(
                {"cut off": path.read_text()[:20], "empty": "", "too large": " " * (2 << 20)}[how]
            )


def proposes_deletion(world: World) -> bool:
    return DELETION in refs(world.root / "edge-1.git")


@pytest.mark.parametrize("how", ["cut off", "empty", "too large", "a directory"])
def test_damaged_record_of_refused_deletions_keeps_the_guard(world: World, how: str) -> None:
    damage(world, how)

    said = world.run("apply")

    assert said.code == Exit.REFUSED, said.out + said.err
    assert f"{REFUSED}: InvalidState: The record cannot be read: " in said.out
    assert "every deletion needs consent" in said.out
    assert "the record of what was refused before cannot be read" in said.out
    assert not proposes_deletion(world)

    again = world.run("apply")
    assert again.code == Exit.REFUSED
    assert "which was refused before and waits for consent" in again.out
    assert "InvalidState" not in again.out
    assert not proposes_deletion(world)


DAMAGES = ["cut off", "empty", "too large"]


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_pin_keeps_a_held_upstream_where_it_is(tmp_path: Path, how: str) -> None:
    world = build_world(WORLDS / "11-floating-tag", tmp_path / "w")
    world.tag("blueprints", "web/stable", "web/v1")
    world.publish()
    assert world.run("lock", "hold", "default/web").code == Exit.DONE
    world.tag("blueprints", "web/stable", "web/v2")
    damage(world, how, "locks/upstreams/default/web.json")

    ended = world.run("apply")

    assert ended.code == Exit.INVALID_INPUT
    assert "locks/upstreams/default/web.json: InvalidState: The record cannot be read: " in ended.out
    again = world.run("apply")
    assert again.code == Exit.DONE, again.out
    assert "upstream offers web/stable@" in again.out


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_record_of_a_variant_keeps_what_people_rejected(tmp_path: Path, how: str) -> None:
    world = write_world(tmp_path / "w", ("edge-1",))
    world.run("apply")
    world.run("approve", "edge-1/web")
    commit(world, {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
    world.run("apply")
    world.run("approve", "edge-1/web")
    world.run("apply")
    world.revert("edge-1")
    before = world.run("apply")
    assert "Rejected" in before.out
    damage(world, how, "packagevariants/default/edge-1.jsonl")

    ended = world.run("apply")

    assert ended.code == Exit.INVALID_INPUT, ended.out
    assert "InvalidState: The record cannot be read: " in ended.out
    assert "Rejected" in ended.out
    assert "Rejected" in world.run("apply").out
