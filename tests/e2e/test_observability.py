"""Metrics, durations, log lines, profiles and traces of a run; none of them changes a result."""

import json
import os
import pstats
import subprocess
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from reconciler.base.redact import Redactor
from reconciler.base.timing import SpanKind, TimeSpan
from reconciler.run import traces
from reconciler.run.measuring import Recorder
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


def test_repeated_report_has_the_counts_of_the_run_that_made_it(control: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.prom"
    for _ in range(2):
        run(control, "apply")
    line = ("apply", "--metrics-file", str(file))
    run(control, *line)
    made = metrics(file)

    repeated = run(control, *line)

    again = metrics(file)
    assert repeated.returncode == 0
    assert (made["run_repeated"][""], again["run_repeated"][""]) == (0, 1)
    assert again["packages"] == made["packages"]
    assert again["changes"] == made["changes"]
    assert "stage_duration_seconds" not in again


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
    plain = run(control, "plan", "-o", "json", "--full")
    options = (
        "--metrics-file",
        str(tmp_path / "m"),
        "--profile",
        str(tmp_path / "p"),
        "--log-format",
        "json",
    )
    measured = run(control, "plan", "-o", "json", "--full", *options)
    timed = run(control, "plan", "-o", "json", "--full", "--timings")

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


def test_every_line_of_standard_error_is_a_json_object(control: Path, tmp_path: Path) -> None:
    lines = run(control, "plan", "-v", "--log-format", "json", "--full").stderr.splitlines()
    failed = run(control, "plan", "--log-format", "json", "--control", str(tmp_path)).stderr.splitlines()
    usage = run(control, "plan", "--nope", RECONCILER_LOG_FORMAT="json").stderr.splitlines()

    assert [json.loads(line)["event"] for line in lines][-1] == "plan"
    assert {json.loads(line)["kind"] for line in lines} >= {"stage"}
    assert [json.loads(line)["level"] for line in failed] == ["error", "info"]
    assert json.loads(usage[-1])["level"] == "error"


# Profiles


def test_profile_is_read_by_pstats_and_knows_our_functions(control: Path, tmp_path: Path) -> None:
    run(control, "plan", "--full", "--profile", str(tmp_path / "p.prof"))

    names = {name for _, _, name in pstats.Stats(str(tmp_path / "p.prof")).stats}  # type: ignore[attr-defined]
    assert {"plan_fleet", "render_packages"} <= names


# Traces


def test_trace_has_the_run_its_stages_and_what_they_did() -> None:
    spans = [
        TimeSpan(SpanKind.GIT, "git fetch", 100.5, 0.25, where="https://git.example/a.git"),
        TimeSpan(SpanKind.STAGE, "read", 100.0, 1.0, items=7),
        TimeSpan(SpanKind.FUNCTION, "ghcr.io/f:v1", 101.5, 0.1),
        TimeSpan(SpanKind.STAGE, "render", 101.2, 2.0),
    ]
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))

    traces.add_spans(provider, "plan", spans, start=99.5, seconds=4.0)

    made = {span.name: span for span in memory.get_finished_spans()}
    parents = {name: span.parent.span_id if span.parent else None for name, span in made.items()}
    ids = {name: span.context.span_id for name, span in made.items()}
    assert parents == {
        "reconciler plan": None,
        "read": ids["reconciler plan"],
        "render": ids["reconciler plan"],
        "git fetch": ids["read"],
        "function ghcr.io/f:v1": ids["render"],
    }
    assert dict(made["git fetch"].attributes or {}) == {"repository": "https://git.example/a.git"}
    assert made["read"].end_time == 101_000_000_000


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_trace_is_sent_only_to_a_collector_that_is_named(environment: dict[str, str], wanted: bool) -> None:
    assert traces.is_wanted(environment) is wanted


def test_trace_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[TimeSpan] = []
    monkeypatch.setattr(traces, "add_spans", lambda _provider, _command, spans, *_: sent.extend(spans))
    monkeypatch.setattr(traces, "make_provider", TracerProvider)
    recorder = Recorder(keeps_spans=True)
    recorder(TimeSpan(SpanKind.GIT, "git fetch", 1.0, 1.0, where="https://user:hunter22222@git.example/a"))

    traces.export(recorder, Redactor().text, "plan")

    assert [span.where for span in sent] == ["https://***@git.example/a"]
