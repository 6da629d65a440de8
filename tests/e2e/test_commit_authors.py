"""Who is the author of commits to a downstream repository: whom its Repository names."""

from pathlib import Path

from tests.support.git import Repo
from tests.support.small_world import repository, write_world
from tests.support.world import World, git

OURS = "Package Reconciler <package-reconciler@reconciler.dev>"
AUTHORS = {
    "edge-1": (
        "    author: Platform Team\n    email: platform@example.com\n",
        "Platform Team <platform@example.com>",
    ),
    "edge-2": ("    email: edge@example.com\n", "edge@example.com <edge@example.com>"),
    "edge-3": ("", OURS),
}


def shown(repo: Path, ref: str) -> tuple[str, str]:
    author, committer = git(repo, "log", "-1", "--format=%an <%ae>|%cn <%ce>", ref).strip().split("|")
    return author, committer


def test_commits_name_the_author_of_their_repository(tmp_path: Path) -> None:
    root = tmp_path / "w"
    write_world(root)
    changed = {
        f"manifests/repositories/{edge}.yaml": repository(edge) + more for edge, (more, _) in AUTHORS.items()
    }
    Repo(root / "control.git").commit(changed)
    world = World(root)

    world.run("apply")
    drafts = {edge: shown(root / f"{edge}.git", "drafts/web/packagevariant-1") for edge in AUTHORS}
    for edge in AUTHORS:
        world.run("approve", f"{edge}/web")
    merged = {edge: shown(root / f"{edge}.git", "main") for edge in AUTHORS}
    world.run("apply")
    before = world.all_refs()
    world.run("apply", cache="another")

    assert drafts == merged == {edge: (author, OURS) for edge, (_, author) in AUTHORS.items()}
    assert world.all_refs() == before


def test_author_cannot_forge_a_commit(tmp_path: Path) -> None:
    root = tmp_path / "w"
    write_world(root)
    forged = '    author: "Kim <kim@example.com> 1 +0000\\ncommitter Kim"\n    email: "a>b\\nc"\n'
    Repo(root / "control.git").commit({"manifests/repositories/edge-1.yaml": repository("edge-1") + forged})

    World(root).run("apply")

    author, committer = shown(root / "edge-1.git", "drafts/web/packagevariant-1")
    assert author == "Kim kim@example.com 1 +0000committer Kim <abc>"
    assert committer == OURS
    git(root / "edge-1.git", "fsck", "--strict")
