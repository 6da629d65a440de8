"""Measurements of one run: spans by their kind, the slowest packages, and the file that gets them."""

from pathlib import Path

from reconciler.base.timing import SpanKind, TimeSpan
from reconciler.cli.main import invoke
from reconciler.cli.measuring import Recorder
from reconciler.report.timings import SLOWEST, StageDuration, Work
from tests.support.small_world import published

KINDS = SpanKind
SPANS = [
    (KINDS.STAGE, "read", 1.0, 2), (KINDS.STAGE, "plan", 0.5, 1), (KINDS.STAGE, "read", 2.0, 3),
    (KINDS.GIT, "fetch", 0.25, 0), (KINDS.GIT, "push", 0.5, 0), (KINDS.FORGE, "GET", 4.0, 0),
    (KINDS.FUNCTION, "b", 1.0, 0), (KINDS.FUNCTION, "a", 0.5, 0), (KINDS.FUNCTION, "a", 0.5, 0),
    *((KINDS.PACKAGE, f"p{number:02}", float(number // 2), 0) for number in range(SLOWEST + 5)),
]  # fmt: skip


def test_spans_of_one_name_add_up_and_only_the_slowest_packages_are_kept() -> None:
    recorder = Recorder()
    for kind, name, seconds, items in SPANS:
        recorder(TimeSpan(kind, name, seconds=seconds, items=items))

    timings = recorder.timings()

    assert timings.stages == (StageDuration("read", 3.0, 5), StageDuration("plan", 0.5, 1))
    assert timings.functions == (Work("a", 2, 1.0), Work("b", 1, 1.0))
    assert (timings.git, timings.forge) == (Work("git", 2, 0.75), Work("forge", 1, 4.0))
    assert timings.packages == tuple(
        Work(f"p{number:02}", 1, float(number // 2))
        for number in sorted(range(5, SLOWEST + 5), key=lambda number: (-(number // 2), number))
    )
    assert 0 < timings.seconds < 60
    assert 0 <= timings.cpu_s < 60
    assert timings.peak_bytes > 1 << 20


def test_stages_of_a_run_are_named_in_their_order_with_their_results(tmp_path: Path) -> None:
    world = published()
    file = tmp_path / "run.prom"
    said = world.run("plan", "--timings", "--metrics-file", str(file))

    stages = said.out.partition("STAGE")[2].partition("\n\n")[0].splitlines()[1:]
    assert [(*line.split()[:1], line.split()[-1]) for line in stages] == [
        ("read", "2"), ("expand", "2"), ("resolve", "2"), ("fetch", "0"), ("render", "2"), ("plan", "2"),
    ]  # fmt: skip
    text = file.read_text()
    assert 'reconciler_run_exit_code{command="plan",reconciler="fleet"} 0.0' in text
    assert (file.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o644, [file])

    said = world.run("apply", "--timings", "-o", "markdown", "--metrics-file", str(file))
    assert "STAGE" not in said.out
    assert [line.split()[0] for line in said.err.partition("STAGE")[2].splitlines()[1:8]] == [
        "read", "expand", "resolve", "fetch", "render", "plan", "apply",
    ]  # fmt: skip
    assert "STAGE" not in world.run("apply", "-o", "json", "--timings").err


def test_metrics_of_a_run_that_fails_have_its_code(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"

    assert invoke(["plan", "--control", str(tmp_path / "none"), "--metrics-file", str(file)]) == 2
    assert 'reconciler_run_exit_code{command="plan"} 2.0' in file.read_text()
    lost = tmp_path / "none" / "run.prom"
    assert invoke(["plan", "--control", str(tmp_path / "none"), "--metrics-file", str(lost)]) == 2
