"""A base that moves under open drafts, and commits that change nothing: there are none."""

from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import EDGES, app, manifest, variant, write_world
from tests.support.world import World, git, refs

OURS = "package-reconciler@reconciler.dev"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "w", EDGES[:1])


def upgraded(world: World) -> Path:
    """Publish, change upstream, and return the repository with an open draft of the update."""
    world.publish()
    Repo(world.control).commit({manifest(EDGES[0], "web"): variant(EDGES[0], "web", revision=2)})
    assert world.run("apply").code == 0
    return world.root / f"{EDGES[0]}.git"


def drafts(repository: Path) -> dict[str, str]:
    return {name: oid for name, oid in refs(repository).items() if name.startswith("refs/heads/drafts/")}


def test_every_commit_of_ours_changes_the_tree_of_its_parent(world: World) -> None:
    repository = upgraded(world)
    Repo(repository).commit({"web/mine.txt": "A person's\n"}, branch=drafts_name(repository))
    Repo(repository).commit({"web/notes.txt": app("web", 1)})
    for command in (("apply",), ("approve", "--all"), ("apply",), ("apply",)):
        world.run(*command)

    checked = 0
    for repo in world.repositories():
        lines = git(repo, "log", "--all", "--format=%H %T %P %ce").splitlines()
        trees = {line.split()[0]: line.split()[1] for line in lines}
        made = [line.split()[:-1] for line in lines if line.endswith(OURS)]
        empty = [commit for commit, tree, *parents in made if parents and trees[parents[0]] == tree]
        assert empty == [], repo
        checked += len(made)
    assert checked > 5


def drafts_name(repository: Path) -> str:
    (name,) = drafts(repository)
    return name.removeprefix("refs/heads/")
