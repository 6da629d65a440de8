"""An entry of `spec.upstreams` whose package got another name in its repository is a rename."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.world import World, build_world, git, restored

SOURCE = Path(__file__).resolve().parents[2] / "fixtures/worlds/99-a-list-of-upstreams"


def make_world(root: Path) -> World:
    world = build_world(SOURCE, root)
    for _ in range(2):
        world.run("apply")
        world.run("approve", "--all")
    world.run("apply")
    return world


@pytest.fixture
def world() -> World:
    """A set of web and db in three clusters, in two waves; people consent to three deletions."""
    return restored("renamed-upstreams", make_world)


def swap(world: World, new: str, own: str = "charts") -> None:
    """Let the set make `new` of the package that replaces db in its list, and call it `own`."""
    with world.edit("control", f"{new} for db") as copy:
        manifest = copy / "manifests/charts.yaml"
        text = manifest.read_text().replace("package: db", f"package: {new}")
        allowed = f'  annotations: {{reconciler.dev/allow-deletes: "3"}}\n  name: {own}\n'
        manifest.write_text(text.replace("  name: charts\n", allowed))


@pytest.mark.parametrize("own", ["charts", "platform"])
def test_old_package_goes_where_the_renamed_one_is_published(own: str, world: World) -> None:
    """Also where the set gets another name in the same commit."""
    with world.edit("blueprints", "Call db store") as copy:
        shutil.copytree(copy / "db", copy / "store")
        kptfile = copy / "store/Kptfile"
        kptfile.write_text(kptfile.read_text().replace("name: db", "name: store"))
        git(copy, "rm", "-q", "-r", "db")
    world.tag("blueprints", "store/v1", "main")
    swap(world, "store", own)

    first = world.run("apply")
    world.run("approve", "--all")
    second = world.run("apply")

    assert first.code == 0, first
    assert re.search(r"create +ap/store +New +store/v1", first.out)
    assert "delete" not in first.out
    if own == "charts":
        assert "has no target for ap/db any more; it makes ap/store, ap/web there" in second.out
    why = "It goes when eu/store, which takes its place in a rollout, is published"
    assert re.search(rf"keep +eu/db +AwaitingWave +.*; {why}", second.out)
    assert [line.split()[1] for line in second.out.splitlines() if line.startswith("delete")] == ["ap/db"]


def test_entry_that_leaves_while_another_comes_is_removed_at_once(world: World) -> None:
    """Its package is still among the blueprints, so nothing tells that the new one takes its place."""
    swap(world, "cache")

    said = world.run("apply")

    assert [line.split()[1] for line in said.out.splitlines() if line.startswith("delete")] == [
        "ap/db",
        "eu/db",
        "us/db",
    ]
    assert "spec.upstreams of PackageVariantSet default/charts has no db any more" in said.out
