"""Every world's JSON is as its schema says: plans, locks, status, graphs and rehearsed changes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_worlds import WORLDS, happen
from tests.support.schema import output_violations
from tests.support.world import World, build_world, story

READING = ("graph", "status", "check", "explain", "expand", "pr")


@pytest.mark.parametrize("source", WORLDS, ids=lambda p: p.name)
def test_json_of_a_world_is_as_the_schemas_say(source: Path, tmp_path: Path) -> None:
    world = build_world(source, tmp_path / "w")
    wrong = [*_violations(world, FIRST)]
    for action in story(source):
        if action[0] != "conditions" and not happen(source, world, *action) and action[0] not in READING:
            world.run(*action)
    wrong += _violations(world, [*FIRST, *_last(world)])

    assert wrong == []


FIRST = [("Plan", "plan"), ("Lock", "lock", "--check"), ("Graph", "graph")]
"""Commands about all of a world."""


def _last(world: World) -> Iterator[tuple[str, ...]]:
    """Yield commands about what a world has in the end: its state, and changes of its first package."""
    yield "Status", "status"
    yield "Expansion", "expand"
    items = json.loads(world.run("lock", "--check", "-o", "json").out)["items"]
    packages = [package for item in items for package in item["packages"]]
    for package in packages[:1]:
        name, version = package["instance"]["name"], package["version"]
        yield "Graph", "graph", "--why", name
        yield "Prospect", "lock", "what-if", f"{name}@{version}"
        yield "Prospect", "lock", "what-if", f"{name}@v99.0.0"
        yield "Prospect", "lock", "what-if", name, "--remove"


def _violations(world: World, lines: list[tuple[str, ...]]) -> Iterator[str]:
    for kind, *line in lines:
        said = world.run(*line, "-o", "json")
        if said.code == 2:
            assert said.out == ""
            continue
        yield from (f"{' '.join(line)}: {violation}" for violation in output_violations(kind, said.out))
