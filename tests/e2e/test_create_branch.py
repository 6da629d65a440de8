"""An empty repository whose registration says `createBranch` gets its branch with its first drafts."""

from pathlib import Path

from tests.support.git import make_repository
from tests.support.small_world import repository, write_world
from tests.support.world import World, git, refs

EDGE = "edge-1"


def test_the_branch_and_its_drafts_come_in_one_push_and_can_be_approved(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    asking = repository(EDGE) + "    createBranch: true\n"
    write_world(world.root, (EDGE,), more={f"manifests/repositories/{EDGE}.yaml": asking})
    (world.root / f"{EDGE}.git").rename(world.root / "unused")
    make_repository(world.root / f"{EDGE}.git")

    said = world.run("apply")

    assert said.code == 0, said
    found = refs(world.root / f"{EDGE}.git")
    heads = sorted(ref for ref in found if ref.startswith("refs/heads/"))
    assert heads == [
        "refs/heads/drafts/db/packagevariant-1",
        "refs/heads/drafts/web/packagevariant-1",
        "refs/heads/main",
    ]
    bare = world.root / f"{EDGE}.git"
    log = git(bare, "log", "--format=%s|%P", "main")
    assert log == "Initial commit: Creating main branch|\n"
    for head in heads[:2]:
        assert git(bare, "rev-parse", f"{head}^").strip() == found["refs/heads/main"]
        assert git(bare, "ls-tree", "--name-only", head).split()[0] == "README.md"
    git(bare, "fsck", "--strict")
    before = world.all_refs()
    assert world.run("apply", "--quiet", cache="fresh").code == 0
    assert world.all_refs() == before
    assert world.run("approve", "--all").code == 0
    assert "refs/tags/web/v1" in refs(bare)
