"""`lock` on real repositories: what it writes, what it leaves alone, and what one bad package costs."""

import json
from pathlib import Path

import pytest

from tests.support.schema import violations
from tests.support.world import World, build_world, git
from tools.docs import lock_schema

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
STATE = "refs/heads/reconciler/fleet/state"
STATUS = "refs/heads/reconciler/fleet/status"


@pytest.fixture
def kpt(tmp_path: Path) -> World:
    return build_world(WORLDS / "56-kpt-packages", tmp_path / "w")


def locks(world: World) -> list[str]:
    return [
        path for path in git(world.control, "ls-tree", "-r", "--name-only", STATE).split() if "locks" in path
    ]


def test_apply_writes_the_lock_that_lock_writes(kpt: World, tmp_path: Path) -> None:
    other = build_world(WORLDS / "56-kpt-packages", tmp_path / "other")
    kpt.run("lock")
    other.run("apply")
    before = kpt.all_refs()

    assert len(locks(kpt)) == 2
    assert [p for p in locks(other) if "resolutions" not in p] == ["locks/dev.json"]
    assert "2 pins as before" in kpt.run("lock", cache="another").out
    kpt.run("apply", cache="a-third")
    after = kpt.all_refs()
    assert after["control.git"].pop(STATUS)
    assert after == before


def test_an_unreachable_repository_leaves_the_lock_of_who_uses_it(kpt: World) -> None:
    kpt.run("lock")
    before = kpt.all_refs()["control.git"]
    (kpt.root / "blueprints.git").rename(kpt.root / "away")
    kpt.run("lock", cache="fresh")

    assert kpt.all_refs()["control.git"] == before


def test_two_clones_at_different_places_make_byte_identical_locks(tmp_path: Path) -> None:
    def locked(place: str) -> dict[str, str]:
        world = build_world(WORLDS / "57-fan-out", tmp_path / place / "w")
        world.run("lock")
        return {path: git(world.control, "show", f"{STATE}:{path}") for path in locks(world)}

    here, there = locked("a"), locked("somewhere/else")

    assert here == there
    assert len([path for path in here if "resolutions" not in path]) == 3
    assert not any(str(tmp_path) in text for text in here.values())


@pytest.mark.parametrize("name", ["52-dependency-settings"])
def test_the_json_of_a_lock_is_as_its_schema_says(name: str, tmp_path: Path) -> None:
    schema = json.loads(lock_schema.FILE.read_text())
    world = build_world(WORLDS / name, tmp_path / "w")
    value = json.loads(world.run("lock", "-o", "json").out)

    assert violations(schema, value) == []
    assert violations(schema, json.loads(world.run("lock", "--check", "-o", "json").out)) == []
    del value["items"][0]["packages"][0]["version"]
    value["items"][0]["packages"][0]["more"] = 1
    assert sorted(said.rpartition(": ")[2] for said in violations(schema, value)) == [
        '"version" is a required property',
        "Additional properties are not allowed ('more' was unexpected)",
    ]


def test_the_schema_is_that_of_the_models() -> None:
    assert lock_schema.FILE.read_text() == lock_schema.text(), "run `python -m tools.docs.lock_schema`"
