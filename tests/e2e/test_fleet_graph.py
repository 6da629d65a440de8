"""`graph --of packages`: names, clusters, files, and what it refuses, on real repositories."""

import json
from pathlib import Path

import pytest

from tests.support.small_world import write_world
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A fleet whose packages were published, apart from those of edge-3 which are in review."""
    write_world(tmp_path / "world")
    built = World(tmp_path / "world")
    built.run("apply")
    built.run("approve", "edge-1/web", "edge-2/web")
    return built


def boxes(world: World, *arguments: str) -> list[str]:
    value = json.loads(world.run("graph", "--of", "packages", *arguments, "-o", "json").out)
    names = {name for group in value["groups"] for node in group["nodes"] for name in node["packages"]}
    return sorted(names)


def test_names_are_packages_upstreams_sets_and_repositories(world: World) -> None:
    every = boxes(world)

    assert {"edge-1/web", "edge-3/db"} < set(every)
    assert boxes(world, "edge-1") == ["edge-1/db", "edge-1/web"]
    assert boxes(world, "edge-[13]/web") == ["edge-1/web", "edge-3/web"]
    assert boxes(world, "blueprints/web") == [name for name in every if name.endswith("/web")]


def test_versions_on_main_and_in_review_are_told_apart(world: World) -> None:
    text = world.run("graph", "--of", "packages", "edge-1", "edge-3").out

    lines = [line.strip(" │├└─") for line in text.splitlines()]
    assert "edge-1/web [on main]" in lines
    assert "edge-3/web [in review]" in lines


def test_picture_is_written_to_a_file(world: World, tmp_path: Path) -> None:
    file = tmp_path / "fleet.svg"

    printed = world.run("graph", "--of", "packages", "-o", "svg", "--out", str(file))

    assert (printed.code, printed.out) == (0, "")
    assert file.read_text().startswith("<svg ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--of", "packages", "edge-1/wbe"), "Did you mean edge-1/web"),
        (("--of", "packages", "--cluster", "nope"), "No cluster with packages is called nope"),
        (("--of", "packages", "--why", "db"), "--why is about dependencies, not packages"),
        (("edge-1",), "Did you mean `reconciler graph --of packages edge-1`"),
    ],
)
def test_what_does_not_exist_or_belong_together_is_refused(
    world: World, arguments: tuple[str, ...], message: str
) -> None:
    printed = world.run("graph", *arguments)

    assert printed.code == 2
    assert message in printed.err
