"""`report`: the JSON reports of shards, merged into one of the fleet."""

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import Exit
from tests.e2e.test_check import Said, run
from tests.support.git import Repo
from tests.support.schema import output_violations
from tests.support.small_world import manifest, variant, write_world

EDGES = tuple(f"edge-{number}" for number in range(1, 8))
SHARDS = 3
OF_THE_RUN = {"checksum", "notes", "shards"}


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
    assert {k: v for k, v in value.items() if k not in OF_THE_RUN} == {
        k: v for k, v in whole.items() if k not in OF_THE_RUN
    }
    assert value["shards"] == ["0/3", "1/3", "2/3"]
    assert whole["shards"] == []
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
        ("", "No file has a report: every run ended before it wrote one"),
        ("{", "is no JSON: "),
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


def test_a_file_that_is_not_there_is_named(root: Path) -> None:
    said = run(root, "report", "none.json")

    assert (said.code, said.err.splitlines()[0]) == (
        Exit.USAGE,
        "error: none.json cannot be read: No such file or directory",
    )


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_shard_without_a_report_is_named_and_the_merged_one_is_not_of_the_fleet(
    root: Path, command: str
) -> None:
    files = shards(root, command)

    (root / "killed.json").write_text("")
    said, value = merged(root, [files[2], files[0]])
    text = run(root, "report", files[2], files[0], "killed.json")

    assert value["shards"] == ["0/3", "2/3"]
    assert "unavailable" in value["exits"]
    assert said.code == text.code == value["exitCode"] == Exit.UNAVAILABLE
    assert f" of fleet, 2 of 3 shards: {len(value['changes'])} create (" in text.out
    assert text.out.count("missing: shard 1/3 gave no report; ") == 1
    assert output_violations("Plan", said.out) == []


def test_a_file_that_is_named_twice_is_read_once(root: Path) -> None:
    files = shards(root, "plan")

    assert run(root, "report", *files, files[0]) == run(root, "report", *files)


def test_a_report_of_the_whole_fleet_is_read_alone(root: Path) -> None:
    files = shards(root, "plan")
    (root / "whole.json").write_text(run(root, "plan", "--control", "control.git", "-o", "json").out)

    alone = run(root, "report", "whole.json")
    beside = run(root, "report", files[0], "whole.json")

    assert alone.out.startswith("Plan of fleet, the whole fleet: ")
    assert (beside.code, beside.err.splitlines()[0]) == (
        Exit.USAGE,
        "error: whole.json is of the whole fleet, another one of 3 shards",
    )


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
