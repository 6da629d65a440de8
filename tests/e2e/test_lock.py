"""`lock` on real repositories: what it writes, what it leaves alone, and what one bad package costs."""

import json
from pathlib import Path

import pytest

from tests.support import lock_schema
from tests.support.schema import violations
from tests.support.world import World, build_world, git

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


def test_other_files_of_the_state_branch_stay_as_they_are(tmp_path: Path) -> None:
    world = build_world(WORLDS / "01-explicit-repositories", tmp_path / "w")
    world.run("apply")
    before = world.all_refs()

    assert world.run("lock").code == 0
    assert world.all_refs() == before
    with world.edit("control", "Ask for a package") as copy:
        (copy / "manifests/clusters").mkdir()
        wish = {
            "apiVersion": "packaging.carvel.dev/v1alpha1",
            "kind": "PackageInstall",
            "metadata": {"name": "shop", "namespace": "shop"},
            "spec": {"packageRef": {"refName": "gone.io", "versionSelection": {"constraints": ""}}},
        }
        (copy / "manifests/clusters/dev.yaml").write_text(json.dumps(wish))
    said = world.run("lock")

    assert said.code == 3
    assert "gone.io" in said.out, said.out
    files = git(world.control, "ls-tree", "-r", "--name-only", STATE).split()
    assert [path for path in files if path.startswith("packagevariants/")] != []
    assert "locks/dev.json" in files


def test_a_published_revision_that_is_wrong_is_a_note_and_no_candidate(kpt: World) -> None:
    with kpt.edit("blueprints", "Break base") as copy:
        (copy / "base/package.yaml").write_text(
            "apiVersion: data.packaging.carvel.dev/v1alpha1\nkind: Package\nspec: [no, spec]\n"
        )
    kpt.tag("blueprints", "base/v3", "main")
    said = kpt.run("lock")

    assert said.code == 0
    assert "note: blueprints/base/v3/package.yaml:3" in said.out
    assert "base@namespace/shop 2.0.0" in said.out


def test_what_has_no_answer_is_explained_in_json_too(tmp_path: Path) -> None:
    world = build_world(WORLDS / "52-dependency-settings", tmp_path / "w")
    said = world.run("lock", "--check", "--output", "json")
    value = json.loads(said.out)

    assert said.code == 3
    assert [item["cluster"] for item in value["items"]] == ["dev", "strict"]
    assert [one["code"] for one in value["items"][1]["explanations"]] == ["E-DECLINED"]
    assert [problem["reason"] for problem in value["problems"]] == ["DependencyConflict"]
    assert STATE not in world.all_refs()["control.git"]


def test_an_unreachable_repository_leaves_the_lock_of_who_uses_it(kpt: World) -> None:
    kpt.run("lock")
    before = kpt.all_refs()["control.git"]
    (kpt.root / "blueprints.git").rename(kpt.root / "away")
    kpt.run("lock", cache="fresh")

    assert kpt.all_refs()["control.git"] == before


def test_frozen_and_upgrade_contradict_and_an_unknown_name_is_said(kpt: World) -> None:
    assert kpt.run("lock", "--frozen", "--upgrade", "base.example.com").code == 2
    assert "No package or PackageVariant is called gone.io" in kpt.run("lock", "--upgrade", "gone.io").err


def test_two_clones_at_different_places_make_byte_identical_locks(tmp_path: Path) -> None:
    def locked(place: str) -> dict[str, str]:
        world = build_world(WORLDS / "57-fan-out", tmp_path / place / "w")
        world.run("lock")
        return {path: git(world.control, "show", f"{STATE}:{path}") for path in locks(world)}

    here, there = locked("a"), locked("somewhere/else")

    assert here == there
    assert len([path for path in here if "resolutions" not in path]) == 3
    assert not any(str(tmp_path) in text for text in here.values())


@pytest.mark.parametrize("name", ["52-dependency-settings", "53-shared-bundles", "55-crossplane-tree"])
def test_the_json_of_a_lock_is_as_its_schema_says(name: str, tmp_path: Path) -> None:
    schema = json.loads(lock_schema.FILE.read_text())
    world = build_world(WORLDS / name, tmp_path / "w")
    value = json.loads(world.run("lock", "-o", "json").out)

    assert violations(schema, value) == []
    assert violations(schema, json.loads(world.run("lock", "--check", "-o", "json").out)) == []
    del value["items"][0]["packages"][0]["version"]
    value["items"][0]["packages"][0]["more"] = 1
    assert sorted(said.rpartition(": ")[2] for said in violations(schema, value)) == [
        "more is unknown",
        "version is missing",
    ]


def test_the_json_of_upstream_pins_is_as_its_schema_says(tmp_path: Path) -> None:
    world = build_world(WORLDS / "12-version-range", tmp_path / "w")

    value = json.loads(world.run("lock", "--check", "-o", "json").out)

    assert violations(json.loads(lock_schema.FILE.read_text()), value) == []
    assert [pin["why"] for pin in value["upstreams"]] != []


def test_the_schema_is_that_of_the_models() -> None:
    assert lock_schema.FILE.read_text() == lock_schema.text(), "run `python -m tests.support.lock_schema`"
