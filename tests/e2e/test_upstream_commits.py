"""A pull request lists what changed upstream between the two revisions, and folds what few reviewers need."""

import json
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import app, manifest, variant, write_world
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A package at v2; upstream has v4, with commits on the package, beside it, and of a merge."""
    world = write_world(
        tmp_path / "w", ("edge-1",), more={manifest("edge-1", "web"): variant("edge-1", "web", revision=2)}
    )
    world.publish()
    upstream = Repo(world.root / "blueprints.git")
    upstream.commit({"web/app.yaml": app("web", 3)}, message="web: a smaller image\n\nBecause of the disk.\n")
    upstream.commit({"db/app.yaml": app("db", 2)}, message="db: not about web\n")
    upstream.commit({"web/notes.md": "`x` <b> @all\n"}, message="web: `notes` <b>of</b> @all\n")
    upstream.tag("web/v3")
    return world


def move(world: World, revision: int) -> str:
    """Return the text of the pull request that brings a revision."""
    Repo(world.control, time=world.clock + 60).commit(
        {manifest("edge-1", "web"): variant("edge-1", "web", revision=revision)}
    )
    assert world.run("apply").code == 0
    pulls = json.loads(world.run("pr", "list", "-o", "json").out)["items"]
    (name,) = [pull["name"] for pull in pulls if pull["title"].endswith(f"web/v{revision}")]
    (shown,) = json.loads(world.run("pr", "show", name, "-o", "json").out)["items"]
    return str(shown["body"])


def listed(body: str, head: str) -> list[str]:
    text = body.partition(f"### {head}\n")[2].partition("\n###")[0]
    return [line.rpartition(", ")[0] for line in text.splitlines() if line.startswith("- ")]


def test_commits_of_the_package_are_listed_the_newest_first(world: World) -> None:
    body = move(world, 3)

    assert listed(body, "Changed upstream") == [
        "- ``web: `notes` <b>of</b> @all`` (`Kim`",
        "- `web: a smaller image` (`Kim`",
    ]


def test_a_rollback_lists_what_it_takes_back(world: World) -> None:
    move(world, 3)
    world.run("approve", "--all")
    world.run("apply")

    body = move(world, 2)

    assert "Changed upstream" not in body
    assert [line[:25] for line in listed(body, "Taken back from upstream")] == [
        "- ``web: `notes` <b>of</b",
        "- `web: a smaller image` ",
    ]
