"""Every world of fixtures/worlds, played on real repositories and compared with what is expected."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.cli.schema import OUTPUTS
from reconciler.render.delivery import NEEDED_BY
from tests.support.agents import packages_at, refused
from tests.support.install_schemas import faults
from tests.support.oracles import KPT, check_objects, check_packages
from tests.support.samples import sample
from tests.support.schema import output_violations
from tests.support.snapshot_forms import as_json, as_json_lines
from tests.support.world import Said, World, build_world, git, refs, run_line, story

WORLDS = sorted((Path(__file__).resolve().parents[2] / "fixtures/worlds").iterdir())

GROUPS = ("data.packaging.carvel.dev", "fleet.example.com", "packaging.carvel.dev", "pkg.crossplane.io")
"""What the clusters of the worlds serve beside Kubernetes' own kinds."""


@pytest.mark.parametrize("source", WORLDS, ids=lambda p: p.name)
def test_world(source: Path, tmp_path: Path, *, update_golden: bool) -> None:
    world = build_world(source, tmp_path / "w")
    wrong = [*_violations(world, FIRST, cache="other")] if source in SAMPLE else []

    told = _tell(source, world)

    _compare(source / "expected", told, update=update_golden)
    if source in SAMPLE:
        wrong += _violations(world, [*FIRST, *LAST, *_in_turn(world, WORLDS.index(source))])
        assert wrong == []
    if source.name in DELIVERIES:
        assert (found := list(_delivered(world)))
        assert [fault for document in found for fault in faults(document)] == []
    if story(source)[-1] != ["apply"]:
        world.run("apply")
    _rest(world)
    if KPT and source in READ:
        _read(world, tmp_path / "read")


READ = sample(WORLDS, 3)
"""Worlds that kpt reads: it reads every package of the ecosystem, and of each merge that is compared."""
IN_JSON = [w for w in WORLDS if (w / "cluster").is_dir()]


@pytest.mark.parametrize("source", sample(IN_JSON, 5), ids=lambda p: p.name)
def test_world_is_the_same_with_its_snapshot_in_json(source: Path, tmp_path: Path) -> None:
    form = (as_json, as_json_lines)[IN_JSON.index(source) % 2]
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    for directory in (copy / "cluster", *copy.glob("steps/*/cluster")):
        for file in directory.rglob("*.yaml"):
            if file.name != "snapshot.yaml":
                file.write_bytes(form(file.read_bytes()))

    told = _tell(copy, build_world(copy, tmp_path / "w"))

    _compare(source / "expected", told, update=False)


def _rest(world: World) -> None:
    """See that another apply writes nothing, and that git and clusters can read what there is."""
    before = world.all_refs()

    world.run("apply", cache="another-cache")

    assert world.all_refs() == before
    for repository in world.repositories():
        check_objects(repository)
    packages = [package for tree in _trees(world) for package in packages_at(*tree)]
    assert [fault for package in packages for fault in refused(package, *GROUPS)] == []


def _read(world: World, scratch: Path) -> None:
    """See that kpt reads what there is as we do."""
    # Some worlds only lock packages: nothing is delivered, and there is nothing to read.
    if trees := _trees(world):
        assert bool(check_packages(trees, scratch)) == any(scratch.rglob("Kptfile"))


def _trees(world: World) -> list[tuple[Path, str]]:
    fleet = [repository for repository in world.repositories() if repository != world.control]
    return [(repository, ref) for repository in fleet for ref in packages_of(repository)]


def packages_of(repository: Path) -> list[str]:
    """Return the refs with packages: main and all drafts."""
    heads = ("refs/heads/main", "refs/heads/drafts/", "refs/heads/proposed/", "refs/heads/reconciler/")
    return [name for name in refs(repository) if name.startswith(heads)]


def _tell(source: Path, world: World) -> dict[str, str]:
    transcript: list[str] = []
    conditions: list[str] = []
    for action in story(source):
        if action[0] == "conditions":
            conditions.append("\n".join(_conditions(world)))
            continue
        if happen(source, world, *action):
            transcript.append(f"# {' '.join(action)}\n")
            continue
        said = world.run(*action)
        transcript.append(f"$ reconciler {' '.join(action)}\n{said.out}{said.err}exit code {said.code}\n")
    listed = "".join(f"{r.name} {name}\n" for r in world.repositories() for name in refs(r))
    told = {
        "story.txt": _normal("\n".join(transcript), world),
        "refs.txt": listed,
        "drafts.diff": _normal(_drafts(world), world),
    }
    return told | ({"status.txt": "\n".join(conditions)} if conditions else {})


def happen(source: Path, world: World, verb: str, *rest: str) -> bool:
    """Do what people do between two commands; return whether the line is of that kind."""
    match verb:
        case "change":
            world.lay(source / "steps" / rest[0])
        case "propose":
            world.propose(source / "steps" / rest[0])
        case "tag":
            world.tag(*rest)
        case "revert":
            world.revert(*rest)
        case "wait-until":
            world.wait_until(*rest)
        case _:
            return False
    return True


def _conditions(world: World) -> Iterator[str]:
    """Yield every condition that is recorded, one a line."""
    for owner in json.loads(world.run("status", "--output", "json").out)["items"]:
        yield f"{owner['kind']} {owner['namespace']}/{owner['name']}"
        for condition in owner["conditions"]:
            yield "  {type}={status} {reason}: {message}".format(**condition).rstrip(": ")
    yield ""


def _drafts(world: World) -> str:
    diffs = []
    for repository in world.repositories():
        for name in refs(repository):
            if name.startswith(("refs/heads/drafts/", "refs/heads/reconciler/")) and "/stat" not in name:
                diff = git(repository, "diff", "--no-renames", f"main...{name}")
                diffs.append(f"# {repository.name} {name}\n{diff}")
    return "".join(diffs)


def _normal(text: str, world: World) -> str:
    """Leave out what depends on where the world stands: paths, and ids made from them."""
    text = text.replace(str(world.root), "<world>")
    text = re.sub(r"(?<=checksum )[0-9a-f]{12}\b|\b[0-9a-f]{64}\b", "<checksum>", text)
    text = re.sub(r"\b[0-9a-f]{40}\b", "<oid>", text)
    return re.sub(r"index [0-9a-f]{7,}\.\.[0-9a-f]{7,}", "index <oid>..<oid>", text)


def _compare(expected: Path, told: dict[str, str], *, update: bool) -> None:
    if update:
        expected.mkdir(exist_ok=True)
        for old in expected.iterdir():
            old.unlink()
        for name, text in told.items():
            (expected / name).write_text(text)
    assert told == {p.name: p.read_text() for p in sorted(expected.iterdir())}


# The JSON of a world is as its schema says, and so are the manifests that it delivers

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
SAMPLE = [world for world in WORLDS if world in sample(WORLDS, 11) or world.name in DELIVERIES]
"""Worlds of which every JSON must be as its schema has it, the first plan and the end."""
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


LAST = [("Status", "status"), ("Expansion", "expand")]
"""Commands about what a world has in the end."""


def test_every_command_about_a_fleet_is_sampled() -> None:
    about_files = ("package ", "functions ", "index ", "snapshot import", "init", "demo", "repo add")
    changing = ("answer", "lock hold", "lock follow", "pr show", "pr merge", "pr close", "pr reopen", "apply")
    commands = {name for names in OUTPUTS.values() for name in names if not name.startswith(about_files)}

    sampled = {
        " ".join(line).partition(" -")[0] for _, *line in (*FIRST, *IN_TURN, ("Explanation", "explain"))
    }

    assert commands - {*changing, "status", "expand"} == sampled


def _in_turn(world: World, number: int) -> Iterator[tuple[str, ...]]:
    """Yield the commands whose turn it is: on SOME worlds in a row every one has run."""
    yield from (line for turn, line in enumerate(IN_TURN) if (turn + number) % SOME == 0)
    items = json.loads(world.run("status", "-o", "json").out)["items"]
    packages = [f"{p['repository']}/{p['name']}" for item in items if (p := item.get("package"))]
    if packages:
        section = SECTIONS[number % len(SECTIONS)]
        yield "Explanation", "explain", packages[number % len(packages)], *section


def _delivered(world: World) -> Iterator[dict[str, Any]]:
    """Yield the generated manifests on main and on all drafts of all repositories."""
    for repository in world.repositories():
        for ref in refs(repository):
            if ref.startswith("refs/heads/") and repository != world.control:
                for file in git(repository, "ls-tree", "-r", "--name-only", ref).splitlines():
                    text = git(repository, "show", f"{ref}:{file}") if file.endswith(".yaml") else ""
                    if NEEDED_BY in text:
                        yield yaml.safe_load(text)


def _run(world: World, cache: str, command: str, *rest: str) -> Said:
    """Run a command; one takes files instead of a control repository."""
    if command == "validate":
        copy = world.root / "copy"
        git(world.root, "clone", "-q", str(world.control), str(copy))
        return run_line(command, str(copy / "reconciler.yaml"), str(copy / "manifests"), *rest)
    return world.run(command, *rest, cache=cache)


def _violations(world: World, lines: list[tuple[str, ...]], cache: str = "cache") -> Iterator[str]:
    for kind, *line in lines:
        said = _run(world, cache, *line, "-o", "json")
        if said.code == 2:
            assert said.out == ""
            continue
        yield from (f"{' '.join(line)}: {violation}" for violation in output_violations(kind, said.out))
