"""`report`: the JSON reports of shards, merged into one of the fleet."""

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import Exit
from tests.e2e.test_check import Said, run
from tests.support.git import Repo
from tests.support.schema import output_violations
from tests.support.small_world import manifest, variant, write_world

EDGES = tuple(f"edge-{number}" for number in range(1, 8))
SHARDS = 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a fleet with a new package everywhere, and a manifest that stalls its owner."""
    write_world(tmp_path / "w", EDGES)
    broken = variant("edge-4", "db").replace("repo: edge-4", "repo: nowhere")
    Repo(tmp_path / "w/control.git").commit({manifest("edge-4", "db"): broken}, message="Break one\n")
    return tmp_path / "w"


def shards(root: Path, command: str) -> list[str]:
    """Run a command for each shard, and return the files with its reports."""
    files = []
    for index in range(SHARDS):
        said = run(root, command, "--control", "control.git", "--shard", f"{index}/{SHARDS}", "-o", "json")
        (root / f"{command}-{index}.json").write_text(said.out)
        files.append(f"{command}-{index}.json")
    return files


def merged(root: Path, files: list[str]) -> tuple[Said, dict[str, Any]]:
    said = run(root, "report", *files, "-o", "json")
    return said, json.loads(said.out)


def test_merged_plans_are_the_plan_of_the_fleet(root: Path) -> None:
    whole = json.loads(run(root, "plan", "--control", "control.git", "-o", "json").out)
    files = shards(root, "plan")

    said, value = merged(root, files)

    assert output_violations("Plan", said.out) == []
    assert {k: v for k, v in value.items() if k not in {"checksum", "notes"}} == {
        k: v for k, v in whole.items() if k not in {"checksum", "notes"}
    }
    assert said.code == whole["exitCode"] == Exit.INVALID_INPUT
    assert merged(root, files[::-1])[1] == value


def test_merged_outcomes_have_every_effect_once_and_the_worst_exit(root: Path) -> None:
    (root / "edge-5.git/hooks").mkdir(exist_ok=True)
    hook = root / "edge-5.git/hooks/pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)

    files = shards(root, "apply")
    said, value = merged(root, files)
    text = run(root, "report", *files)

    opened = [effect for effect in value["effects"] if effect["what"] == "opened"]
    assert len(opened) == 2 * len(EDGES) - 1 - 2  # one is stalled, two cannot be pushed
    assert said.code == text.code == max(json.loads((root / file).read_text())["exitCode"] for file in files)
    assert text.out.startswith("Outcome of fleet, 3 shards: 13 create")
    assert text.out.count("problem: manifests/edge-4-db.yaml:") == 1
    assert "failed: pushed edge-5 " in text.out
    assert text.out.splitlines()[-1].endswith(" failed.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read"),
        ("[]", "is no report of"),
        ('{"kind": "StatusList"}', "is no report of"),
        ('{"kind": "Plan"}', "A file is no report of this version"),
    ],
)
def test_another_file_is_refused(root: Path, content: str, message: str) -> None:
    (root / "other.json").write_text(content)

    said = run(root, "report", "other.json")

    assert said.code == Exit.USAGE
    assert message in said.err


def test_a_shard_that_is_given_twice_is_refused(root: Path) -> None:
    files = shards(root, "plan")
    (root / "again.json").write_text((root / files[0]).read_text())

    said = run(root, "report", *files, "again.json")

    assert said.code == Exit.USAGE
    assert " is in plan-0.json and in again.json\n" in said.err


def test_reports_of_two_instances_are_refused(root: Path) -> None:
    files = shards(root, "plan")
    value = json.loads((root / files[0]).read_text())
    (root / "plan-0.json").write_text(json.dumps({**value, "instance": "other"}))

    said = run(root, "report", *files)

    assert said.code == Exit.USAGE
    assert "is of instance" in said.err
