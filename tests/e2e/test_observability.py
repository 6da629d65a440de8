"""Metrics of a run; none of them changes a result."""

import os
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from reconciler.workdir.starter import SEPARATE, write_demo
from tests.support.command_server import run_reconciler


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


def test_run_that_fails_writes_its_exit_code_and_no_counts(control: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.prom"
    file.write_text("what an earlier run left\n")

    failed = run(control, "apply", "--metrics-file", str(file), "--control", str(tmp_path / "nowhere"))

    assert failed.returncode != 0
    values = metrics(file)
    assert values["run_exit_code"][""] == failed.returncode
    assert "packages" not in values
