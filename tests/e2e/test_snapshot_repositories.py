"""Repositories that only a snapshot names: nothing is read or written there until that is allowed."""

from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo
from tests.support.small_world import manifest, repository, write_world
from tests.support.world import World, git

ALLOWED = "  snapshot: {repositories: true}\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world whose repository `edge-2` is registered by the cluster alone."""
    world = write_world(tmp_path / "w", ("edge-1", "edge-2"))
    files = {
        "manifests/repositories/edge-2.yaml": None,
        "snapshot/r.yaml": repository("edge-2"),
        manifest("edge-2", "db"): None,
    }
    Repo(world.control).commit(files)
    return world


def allow(world: World, text: str = ALLOWED) -> None:
    own = Repo(world.control).read("main", "reconciler.yaml").decode()
    Repo(world.control).commit({"reconciler.yaml": f"{own}{text}"})


def test_it_gets_nothing_and_its_neighbours_proceed(world: World) -> None:
    before = world.all_refs()["edge-2.git"]

    ran = world.run("apply")

    assert ran.code == Exit.INVALID_INPUT
    assert world.all_refs()["edge-2.git"] == before
    assert "drafts/web" in "".join(world.all_refs()["edge-1.git"])
    assert "RepositoryRefused: Repository default/edge-2 could not be read: Only a snapshot names " in ran.out
    assert "1 variant or set that needs it is kept as it is" in ran.out
    assert "write `spec: {snapshot: {repositories: true}}` in reconciler.yaml" in ran.out
    doctor = world.run("doctor")
    assert "error    reach: Repository default/edge-2: Only a snapshot names " in doctor.out


@pytest.mark.parametrize("gone", [(), (manifest("edge-2", "web"),), ("snapshot/r.yaml",)])
def test_what_it_owned_before_is_kept(world: World, gone: tuple[str, ...]) -> None:
    allow(world)
    world.publish()
    before, state = world.all_refs()["edge-2.git"], records(world)
    plain = Repo(world.control).read("main", "reconciler.yaml").decode()
    files: dict[str, str | None] = {"reconciler.yaml": plain.replace(ALLOWED, "")}
    Repo(world.control).commit({**files, **dict.fromkeys(gone)})

    for _ in range(2):
        ran = world.run("apply")
        assert ran.code == Exit.INVALID_INPUT
        assert "delete" not in ran.out

    assert world.all_refs()["edge-2.git"] == before
    assert records(world) == state


def records(world: World) -> set[str]:
    names = git(world.control, "ls-tree", "-r", "--name-only", "reconciler/fleet/state").split()
    return {name for name in names if "packagevariants/" in name}


def test_manifest_of_that_name_comes_first(world: World) -> None:
    evil = repository("edge-1").replace("../edge-1.git", "../edge-2.git")
    Repo(world.control).commit({"snapshot/r.yaml": evil, manifest("edge-2", "web"): None})
    before = world.all_refs()["edge-2.git"]

    assert world.run("apply").code == Exit.DONE
    assert world.all_refs()["edge-2.git"] == before


def test_change_that_allows_it_does_not_govern_its_own_check(world: World) -> None:
    git(world.control, "branch", "proposal", "main")
    own = Repo(world.control).read("main", "reconciler.yaml").decode()
    Repo(world.control).commit({"reconciler.yaml": f"{own}{ALLOWED}"}, branch="proposal")

    ran = world.run("check", "--base", "main", "--head", "proposal")

    assert "Merging this changes no package" in ran.out
    allow(world)
    assert "create  edge-2/web" in world.run("plan").out
