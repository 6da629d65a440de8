"""Metrics of a run; none of them changes a result."""

import os
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from reconciler.workdir.starter import SEPARATE, write_demo
from tests.support.command_server import run_reconciler

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


# Determinism


def test_nothing_that_is_measured_changes_the_plan(control: Path, tmp_path: Path) -> None:
    plain = run(control, "plan", "-o", "json")
    measured = run(control, "plan", "-o", "json", "-v", "--metrics-file", str(tmp_path / "m"))

    assert measured.stdout == plain.stdout
