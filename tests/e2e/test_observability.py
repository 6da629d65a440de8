"""Metrics, durations and log lines of a run; none of them changes a result."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from reconciler.base.redact import Redactor
from reconciler.cli.log import bug_lines
from reconciler.workdir.demo import SEPARATE, write_demo
from tests.support.command_server import run_reconciler
from tests.support.schema import output_violations

STAGES = ["read", "expand", "resolve", "fetch", "render", "plan"]


@pytest.fixture
def control(tmp_path: Path) -> Path:
    write_demo(tmp_path / "w", SEPARATE, clusters=3)
    return tmp_path / "w/control"


def run(control: Path, *line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    cache = str(control.parent / "cache")
    return run_reconciler((*line, "--cache-dir", cache), cwd=control, env={**os.environ, **environment})


def metrics(path: Path) -> dict[str, dict[str, float]]:
    """Return the samples of a file: value by metric and label that is not common."""
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            own = {k: v for k, v in sample.labels.items() if k not in {"command", "reconciler"}}
            values.setdefault(sample.name.removeprefix("reconciler_"), {})[",".join(own.values())] = (
                sample.value
            )
    return values


# Metrics


def test_metrics_follow_the_fleet_from_plan_to_published_packages(control: Path, tmp_path: Path) -> None:
    file = tmp_path / "reconciler.prom"
    planned = run(control, "plan", "--metrics-file", str(file))
    before = metrics(file)
    applied = run(control, "apply", "--metrics-file", str(file))
    after = metrics(file)

    assert (planned.returncode, applied.returncode) == (0, 0)
    assert before["packages"]["pending"] == before["changes"]["create"] == before["changes_pending"][""] == 5
    assert "effects" not in before
    assert after["packages"]["in review"] == 5
    assert after["packages"]["pending"] == after["changes_pending"][""] == 0
    assert after["effects"]["done"] > 5
    assert after["effects"]["failed"] == 0
    assert after["packages_oldest_timestamp_seconds"]["in review"] > 1_600_000_000
    assert list(after["stage_duration_seconds"]) == sorted([*STAGES, "apply"])
    assert after["git_commands"][""] > 0
    assert file.stat().st_mode & 0o777 == 0o644
    assert {path.name for path in tmp_path.iterdir()} == {"w", "reconciler.prom"}  # no temporary file


def test_run_that_fails_writes_its_exit_code_and_no_counts(control: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.prom"
    file.write_text("what an earlier run left\n")

    failed = run(control, "apply", "--metrics-file", str(file), "--control", str(tmp_path / "nowhere"))

    assert failed.returncode != 0
    values = metrics(file)
    assert values["run_exit_code"][""] == failed.returncode
    assert "packages" not in values


def test_metrics_file_that_cannot_be_written_is_an_error(control: Path, tmp_path: Path) -> None:
    failed = run(control, "plan", "--metrics-file", str(tmp_path / "nowhere/m.prom"))

    assert failed.returncode != 0
    assert "nowhere" in failed.stderr


# Determinism


def test_nothing_that_is_measured_changes_plan_or_refs(control: Path, tmp_path: Path) -> None:
    plain = run(control, "plan", "-o", "json")
    options = ("--metrics-file", str(tmp_path / "m"))
    measured = run(control, "plan", "-o", "json", *options, RECONCILER_LOG_FORMAT="json")
    timed = run(control, "plan", "-o", "json", "--timings")

    assert measured.stdout == plain.stdout
    report = json.loads(timed.stdout)
    assert [stage["name"] for stage in report.pop("timings")["stages"]] == STAGES
    assert report == json.loads(plain.stdout)


def test_timings_are_as_the_schema_describes_them(control: Path) -> None:
    planned = run(control, "plan", "-o", "json", "--timings").stdout
    applied = run(control, "apply", "-o", "json", "--timings").stdout

    assert output_violations("plan", planned) == []
    assert output_violations("plan", applied) == []
    assert json.loads(applied)["timings"]["stages"][-1]["name"] == "apply"


def test_saved_plan_with_timings_is_applied_by_its_checksum(control: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    run(control, "plan", "-o", "json", "--timings", "--out", str(saved))

    assert run(control, "apply", str(saved)).returncode == 0


def test_timings_name_slow_packages_and_functions(control: Path) -> None:
    text = run(control, "plan", "--timings").stdout

    assert "STAGE" in text
    assert "render" in text


# Log lines


JSON = {"RECONCILER_LOG_FORMAT": "json"}


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_of_standard_error_is_a_json_object(control: Path, tmp_path: Path) -> None:
    spans = objects(run(control, "plan", "-v", **JSON).stderr)
    (failed,) = objects(run(control, "plan", "--control", str(tmp_path), **JSON).stderr)
    (usage,) = objects(run(control, "plan", "--nope", **JSON).stderr)

    assert spans[-1]["event"] == "plan"
    assert {span["kind"] for span in spans} >= {"stage"}
    assert (failed["level"], failed["kind"], "hint" in failed) == ("error", "error", True)
    assert usage["level"] == "error"
    assert "--nope" in usage["event"]


def test_an_event_says_the_same_in_text_and_as_json(control: Path) -> None:
    (control.parent / "cluster-europe-01.git/HEAD").unlink()

    said = run(control, "graph").stderr.splitlines()
    (event,) = objects(run(control, "graph", **JSON).stderr)

    assert said == [f"not read: {event['event']}", f"  hint: {event['hint']}"]
    assert (event["level"], event["kind"]) == ("warning", "not read")


def test_a_bug_is_one_object_with_its_traceback_and_no_secret() -> None:
    environment = {**JSON, "API_TOKEN": "hunter22222"}
    with pytest.raises(ValueError, match="hunter22222") as raised:
        int("hunter22222")
    with mock.patch.dict(os.environ, environment):
        (bug,) = objects(bug_lines(raised.value, Redactor.of_environment(os.environ)))

    assert (bug["level"], bug["kind"]) == ("error", "bug")
    assert bug["event"] == "ValueError: invalid literal for int() with base 10: '***'"
    assert bug["traceback"].startswith("Traceback (most recent call last):")
    assert "reconciler" in bug["versions"]
    assert "hunter22222" not in json.dumps(bug)


def test_a_form_that_does_not_exist_is_refused(control: Path) -> None:
    failed = run(control, "plan", RECONCILER_LOG_FORMAT="xml")

    assert failed.returncode == 2
    assert "RECONCILER_LOG_FORMAT is 'xml'" in failed.stderr
    assert "hint: Set it to text or json." in failed.stderr
