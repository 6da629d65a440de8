"""Metrics: what a parser of OpenMetrics reads of them, and that the page lists them all."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from reconciler.cli.metrics import Sample, metrics_text

STAGES = {"read": 0.5, 'odd "name"\\\n': 3.0, "plan": 0.000001}
SAMPLES = [
    Sample("run_exit_code", 7),
    Sample("run_timestamp_seconds", 1_700_000_000.123),
    *(Sample("stage_duration_seconds", seconds, (stage,)) for stage, seconds in STAGES.items()),
]


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the value of every sample by name and labels, as a parser of OpenMetrics reads it."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_openmetrics(text)
        for sample in family.samples
    }


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def test_every_number_of_a_run_is_read_by_a_parser() -> None:
    values = read(metrics_text(SAMPLES, {"command": "apply", "reconciler": "fleet", "shard": ""}))

    common = {"command": "apply", "reconciler": "fleet"}
    assert len(values) == len(SAMPLES)
    assert values["reconciler_run_exit_code", labels(**common)] == 7
    assert values["reconciler_run_timestamp_seconds", labels(**common)] == 1_700_000_000.123
    assert values["reconciler_stage_duration_seconds", labels(**common, stage="plan")] == 0.000001
    assert values["reconciler_stage_duration_seconds", labels(**common, stage='odd "name"\\\n')] == 3
