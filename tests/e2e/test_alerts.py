"""The alerts of deploy/prometheus: over metrics that are documented, and promtool fires them as it should.

Without promtool only their metrics are compared with the documentation.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ci import need

pytestmark = pytest.mark.slow

BASE = 'command="apply",reconciler="fleet"'


@pytest.fixture
def rules_file(project_root: Path) -> Path:
    return project_root / "deploy/prometheus/alerts.yaml"


@pytest.fixture
def rules(rules_file: Path) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(rules_file.read_text())["groups"]
    return group["rules"]


def test_every_metric_of_an_alert_is_documented(rules: list[dict[str, Any]], project_root: Path) -> None:
    page = (project_root / "docs/observability.md").read_text()
    documented = set(re.findall(r"^\| `(reconciler_\w+)`", page, re.MULTILINE))

    used = {name for rule in rules for name in re.findall(r"\breconciler_\w+", rule["expr"])}

    assert used <= documented
    assert len(used) > 5


def test_every_alert_says_what_to_do(rules: list[dict[str, Any]]) -> None:
    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning", "info"}
    assert {tuple(rule["annotations"]) for rule in rules} == {("summary", "description")}


CASES = [
    line.split()
    for line in """\
NotRunning run_timestamp_seconds 0 4h fires
NotRunning run_timestamp_seconds 0 2h rests
Failing run_exit_code 3 2h fires
Failing run_exit_code 3 1h rests
Failing run_exit_code 7 2h rests
Failing run_exit_code 0 2h rests
RepositoryUnread repositories{state="unread"} 1 3h fires
RepositoryUnread repositories{state="read"} 1 3h rests
DeletionsRefused refusals{reason="DeletionGuard"} 1 3h fires
PackagesStuck packages_oldest_timestamp_seconds{state="conflict"} 0 8d fires
PackagesStuck packages_oldest_timestamp_seconds{state="held_back"} 0 8d fires
PackagesStuck packages_oldest_timestamp_seconds{state="conflict"} 0 6d rests
PackagesStuck packages_oldest_timestamp_seconds{state="published"} 0 8d rests
ReviewsTooOld packages_oldest_timestamp_seconds{state="in_review"} 0 15d fires
SnapshotTooOld snapshot_timestamp_seconds{cluster="a"} 0 8d fires
RolloutFailed rollout_phase{set="web",phase="failed"} 1 1h fires
RolloutFailed rollout_phase{set="web",phase="failed"} 0 1h rests
""".splitlines()
]
"""An alert, one constant sample (with _ for a blank of its labels), and whether it fires after some time."""


def _unit_test(rules_file: Path, series: dict[str, str], at: str, alert: str) -> dict[str, Any]:
    """Return a file for `promtool test rules`: whether an alert fires after some time of constant values."""
    given = [{"series": name, "values": f"{value}x1500"} for name, value in series.items()]
    question = {"eval_time": at, "alertname": alert, "exp_alerts": []}
    tests = [{"interval": "15m", "input_series": given, "alert_rule_test": [question]}]
    return {"rule_files": [str(rules_file)], "evaluation_interval": "15m", "tests": tests}


def _fires(tmp_path: Path, rules_file: Path, series: dict[str, str], at: str, alert: str) -> bool:
    """Return whether promtool says that an alert fires; it fails if exactly none was expected."""
    need("promtool")
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(_unit_test(rules_file, series, at, alert)))
    ran = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0 or f"alertname: {alert}" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    return ran.returncode != 0


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_alert_fires_when_it_should(case: list[str], tmp_path: Path, rules_file: Path) -> None:
    alert, sample, value, at, verdict = case
    metric, _, labels = sample.rstrip("}").partition("{")
    text = ",".join(filter(None, (BASE, re.sub("_(?=back|review)", " ", labels))))

    fires = _fires(tmp_path, rules_file, {f"reconciler_{metric}{{{text}}}": value}, at, f"Reconciler{alert}")

    assert fires is (verdict == "fires")


@pytest.mark.parametrize(("writes", "fires"), [("500", True), ("499", False)])
def test_an_empty_budget_fires(tmp_path: Path, rules_file: Path, writes: str, fires: bool) -> None:
    labels = 'command="apply",reconciler="fleet",api="https://api.github.com"'
    series = {
        f"reconciler_forge_writes{{{labels}}}": writes,
        f"reconciler_forge_writes_limit{{{labels}}}": "500",
    }

    assert _fires(tmp_path, rules_file, series, "4h", "ReconcilerBudgetEmpty") is fires


def test_no_metrics_at_all_fire(tmp_path: Path, rules_file: Path) -> None:
    other = {'reconciler_run_timestamp_seconds{command="plan"}': "0"}

    assert _fires(tmp_path, rules_file, other, "4h", "ReconcilerNoMetrics")
