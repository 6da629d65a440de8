"""Whoever may push to one repository changes the outcome of no other one, and ends no run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.hostile_objects import HostilePusher
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, refs

pytestmark = pytest.mark.slow

SEEDS = range(24 * int(os.environ.get("RECONCILER_FUZZ", "1")))
BYSTANDERS = ("edge-2", "edge-3")
UNFORESEEN = 1


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A fleet whose packages are published, and whose manifests then ask for the next revision."""
    world = write_world(tmp_path_factory.mktemp("hostile") / "world")
    world.publish()
    with world.edit("control", "Move web to v2") as copy:
        for edge in ("edge-1", *BYSTANDERS):
            (copy / manifest(edge, "web")).write_text(variant(edge, "web", revision=2))
    return world


@pytest.fixture(scope="module")
def undisturbed(settled: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    world = World(Path(shutil.copytree(settled.root, tmp_path_factory.mktemp("calm") / "world")))
    assert world.run("apply").code == 0
    return {name: refs(world.root / f"{name}.git") for name in BYSTANDERS}


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_objects_change_no_other_repository(
    settled: World, undisturbed: dict[str, dict[str, str]], tmp_path: Path, seed: int
) -> None:
    world = World(Path(shutil.copytree(settled.root, tmp_path / "world")))
    pusher = HostilePusher(world.root / "edge-1.git", seed)
    pusher.attack(1 + seed % 5)

    planned = world.run("plan")
    applied = world.run("apply")

    assert UNFORESEEN not in {planned.code, applied.code}, (pusher.log, planned.err, applied.err)
    assert {name: refs(world.root / f"{name}.git") for name in BYSTANDERS} == undisturbed, pusher.log
    if applied.code:
        assert "edge-1" in applied.out + applied.err, pusher.log


@pytest.mark.parametrize("repository", ["blueprints", "edge-1", "control"])
@pytest.mark.parametrize("ref", [b"refs/tags/web/\xff", b"refs/heads/drafts/web/\xff", b"refs/heads/\xc3("])
def test_name_of_a_ref_that_is_no_text_ends_no_run(
    settled: World, undisturbed: dict[str, dict[str, str]], tmp_path: Path, repository: str, ref: bytes
) -> None:
    world = World(Path(shutil.copytree(settled.root, tmp_path / "world")))
    path = world.root / f"{repository}.git"
    subprocess.run([b"git", b"update-ref", ref, b"refs/heads/main"], cwd=path, check=True)

    ran = world.run("apply")

    assert ran.code == 0, ran.err
    assert {name: refs(world.root / f"{name}.git") for name in BYSTANDERS} == undisturbed
