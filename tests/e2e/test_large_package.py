"""A package of two thousand files travels from its upstream to main, and through an update."""

from pathlib import Path

import pytest

from tests.support.combination import trees
from tests.support.git import Repo, kptfile
from tests.support.small_world import manifest, variant, write_fleet
from tests.support.world import EPOCH, World

pytestmark = pytest.mark.slow

FILES = 2000
CONFIG_MAP = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: item-{number}\ndata:\n  release: {release}\n"
)


def test_package_of_two_thousand_files_travels(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w")
    edge = Repo(world.root / "edge-1.git")

    created = world.run("apply")
    assert created.code == 0, created.err
    assert world.run("approve", "--all").code == 0
    assert drafted(edge, "main") == upstream("one")

    control = Repo(world.control, time=EPOCH + 90_000)
    control.commit({manifest("edge-1", "web"): variant("edge-1", "web", revision=2)}, message="Upgrade\n")
    changed = world.run("apply")
    assert changed.code == 0, changed.err
    assert drafted(edge, "drafts/web/packagevariant-2") == upstream("two")

    before = world.all_refs()
    assert world.run("apply").code == 0
    assert world.all_refs() == before


def make_world(root: Path) -> World:
    """Make a catalog of one large package in two revisions, and an empty repository for it."""
    revisions = [{"Kptfile": kptfile("web"), **items("one")}, items("two")]
    files = {manifest("edge-1", "web"): variant("edge-1", "web")}
    return write_fleet(root, "web", revisions, ["edge-1"], files)


def items(release: str) -> dict[str, bytes]:
    return {
        f"items/{number}.yaml": CONFIG_MAP.format(number=number, release=release).encode()
        for number in range(FILES)
    }


def upstream(release: str) -> dict[str, bytes]:
    return {f"web/{path}": data for path, data in items(release).items()}


def drafted(repo: Repo, branch: str) -> dict[str, bytes]:
    """Return the items of the package on a branch, without what is written beside them."""
    listed = trees.files(repo, trees.root(repo, branch), "web/items")
    return {path: without_merge_comment(data) for path, data in listed.items()}


def without_merge_comment(data: bytes) -> bytes:
    """Return a resource without the merge comment and identifier that identify it across renames."""
    lines = data.decode().split("\n")
    identifier = "internal.kpt.dev/upstream-identifier"
    kept = [line.partition(" # kpt-merge")[0] for line in lines if identifier not in line]
    return "\n".join(line for line in kept if line != "  annotations:").encode()
