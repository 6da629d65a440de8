"""Every world's JSON is as its schema says, and so are the manifests that worlds deliver."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.cli.main import invoke
from reconciler.cli.schema import OUTPUTS
from reconciler.render.delivery import NEEDED_BY
from tests.e2e.test_worlds import WORLDS, happen
from tests.support.install_schemas import faults
from tests.support.samples import sample
from tests.support.schema import output_violations
from tests.support.world import Said, World, build_world, git, refs, story

DELIVERIES = [
    "70-crossplane-delivery",
    "71-carvel-delivery",
    "72-porter-delivery",
    "73-delivery-targets",
    "74-conflicting-parents",
    "92-mirrored-package",
    "93-broken-neighbours",
]
"""Worlds whose generated manifests must be as their controllers take them."""
READING = ("graph", "status", "check", "explain", "expand", "pr")


SAMPLE = [world for world in WORLDS if world in sample(WORLDS, 11) or world.name in DELIVERIES]


@pytest.mark.parametrize("source", SAMPLE, ids=lambda p: p.name)
def test_json_of_a_world_is_as_the_schemas_say(source: Path, tmp_path: Path) -> None:
    world = build_world(source, tmp_path / "w")
    wrong = [*_violations(world, FIRST)]
    for action in story(source):
        if action[0] != "conditions" and not happen(source, world, *action) and action[0] not in READING:
            world.run(*action)
    number = WORLDS.index(source)
    wrong += _violations(world, [*FIRST, *LAST, *_in_turn(world, number)])

    assert wrong == []
    if source.name in DELIVERIES:
        found = list(_delivered(world))
        assert found
        assert [fault for document in found for fault in faults(document)] == []


def test_every_command_about_a_fleet_is_sampled() -> None:
    about_files = ("package ", "functions ", "index ", "snapshot import", "init", "demo", "repo add")
    changing = ("answer", "lock hold", "lock follow", "pr show", "pr merge", "pr close", "pr reopen", "apply")
    commands = {name for names in OUTPUTS.values() for name in names if not name.startswith(about_files)}

    sampled = {
        " ".join(line).partition(" -")[0] for _, *line in (*FIRST, *IN_TURN, ("Explanation", "explain"))
    }

    assert commands - {*changing, "status", "expand"} == sampled


FIRST = [("Plan", "plan"), ("Lock", "lock", "--check")]
"""Commands about all of a world."""


IN_TURN = [
    ("Diagnosis", "doctor"),
    ("RegisteredRepository", "repo", "list"),
    ("PullRequest", "pr", "list", "--all"),
    ("SnapshotKind", "snapshot", "kinds"),
    ("Approval", "approve", "--all", "--dry-run"),
    ("Comparison", "check", "--head", "main"),
    ("Validation", "validate"),
]
"""Other commands about all of a world: each world runs some of them."""
SECTIONS = [("--history",), ("--why-not", "newest"), ()]
"""Sections of `explain`: each world runs one of them."""
SOME = 4
"""One in so many of the other commands runs on a world."""


def _in_turn(world: World, number: int) -> Iterator[tuple[str, ...]]:
    """Yield the commands whose turn it is: on SOME worlds in a row every one has run."""
    yield from (line for turn, line in enumerate(IN_TURN) if (turn + number) % SOME == 0)
    items = json.loads(world.run("status", "-o", "json").out)["items"]
    packages = [f"{p['repository']}/{p['name']}" for item in items if (p := item.get("package"))]
    if packages:
        section = SECTIONS[number % len(SECTIONS)]
        yield "Explanation", "explain", packages[number % len(packages)], *section


LAST = [("Status", "status"), ("Expansion", "expand")]
"""Commands about what a world has in the end."""


def _delivered(world: World) -> Iterator[dict[str, Any]]:
    """Yield the generated manifests on main and on all drafts of all repositories."""
    for repository in world.repositories():
        for ref in refs(repository):
            if ref.startswith("refs/heads/") and repository != world.control:
                for file in git(repository, "ls-tree", "-r", "--name-only", ref).splitlines():
                    text = git(repository, "show", f"{ref}:{file}") if file.endswith(".yaml") else ""
                    if NEEDED_BY in text:
                        yield yaml.safe_load(text)


def _run(world: World, command: str, *rest: str) -> Said:
    """Run a command; one takes files instead of a control repository."""
    if command == "validate":
        copy = world.root / "copy"
        git(world.root, "clone", "-q", str(world.control), str(copy))
        return _said(command, str(copy / "reconciler.yaml"), str(copy / "manifests"), *rest)
    return world.run(command, *rest)


def _said(*line: str) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        return Said(invoke(line), out.getvalue(), err.getvalue())


def _violations(world: World, lines: list[tuple[str, ...]]) -> Iterator[str]:
    for kind, *line in lines:
        said = _run(world, *line, "-o", "json")
        if said.code == 2:
            assert said.out == ""
            continue
        yield from (f"{' '.join(line)}: {violation}" for violation in output_violations(kind, said.out))
