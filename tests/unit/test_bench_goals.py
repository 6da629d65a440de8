"""The gate of the benches: which figure is met, and that one bench that misses or fails ends no other."""

from pathlib import Path

import pytest

from tools.bench import goals, run
from tools.bench.goals import Figure, Goals, Verdict, from_json, table, to_json

BENCH = """
from tools.bench.goals import Goals
goals = Goals(__file__)
goals.at_most("a goal", {figure}, 1)
raise SystemExit(goals.finish())
"""


@pytest.mark.parametrize(
    ("figure", "at_most", "at_least"),
    [
        (0.9, Verdict.MET, Verdict.MISSED),
        (1.0, Verdict.MET, Verdict.MET),
        (1.1, Verdict.MISSED, Verdict.MET),
        (None, Verdict.UNDECIDED, Verdict.UNDECIDED),
    ],
)
def test_figure_on_its_limit_is_met(figure: float | None, at_most: Verdict, at_least: Verdict) -> None:
    assert Figure("b", "g", figure, 1, "").verdict is at_most
    assert Figure("b", "g", figure, 1, "", is_minimum=True).verdict is at_least


@pytest.mark.parametrize(
    ("slow", "verdict"),
    [
        (1.0, Verdict.MISSED),
        (1.9, Verdict.MISSED),
        (2.0, Verdict.MET),
        (3.0, Verdict.MET),
        (3.1, Verdict.UNDECIDED),
    ],
)
def test_time_is_judged_as_on_a_quiet_machine(
    monkeypatch: pytest.MonkeyPatch, slow: float, verdict: Verdict
) -> None:
    monkeypatch.setattr(goals, "slowness", lambda: slow)
    made = Goals("bench_x.py")

    made.cpu("a goal", 2.0, 1.0)

    assert [figure.verdict for figure in made.figures] == [verdict]


@pytest.mark.parametrize(("figure", "code"), [(1, 0), (2, 1), (None, 1)])
def test_bench_fails_unless_every_goal_is_met(figure: float | None, code: int) -> None:
    made = Goals("bench_x.py")
    made.at_most("another", 0, 1)
    made.at_most("a goal", figure, 1)

    assert made.finish() == code


def test_figures_survive_json_and_are_lines_of_the_table() -> None:
    figures = [
        Figure("b", "first", 2.0, 1, "s", note="why"),
        Figure("b", "second", None, 3, "x", is_minimum=True),
    ]

    assert from_json(to_json(figures)) == figures
    assert [line.split("  verdict")[0].split()[0] for line in table(figures)] == ["bench", "b", "b"]
    assert list(table(figures))[1].endswith("2 s       <= 1 s  missed (why)")
    assert list(table(figures))[2].endswith("--       >= 3 x  not decided")


def test_what_was_measured_before_stands_beside_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "BEFORE", {"b": {"first": 4.3}})

    first, other = Figure("b", "first", 2.0, 1, "s"), Figure("c", "first", 2.0, 1, "s")

    assert [figure.before for figure in (first, other)] == [4.3, None]
    assert list(table([first]))[1].endswith("4.3 s        2 s       <= 1 s  missed")
    assert b'"before": 4.3' in to_json([first])


@pytest.mark.parametrize(("bench", "goal"), [(b, g) for b, known in goals.BEFORE.items() for g in known])
def test_what_was_measured_before_belongs_to_a_goal_that_is_measured(bench: str, goal: str) -> None:
    source = (Path(goals.__file__).parent / f"{bench}.py").read_text(encoding="utf-8")

    assert goal.removesuffix("one repository") in source


@pytest.mark.parametrize(
    ("figures", "code"),
    [
        (["0"], 0),
        (["2", "0"], 1),
        (["None", "0"], 1),
        (["1 / 0", "0"], 1),
        ([], 1),
    ],
    ids=["all met", "one missed", "one not decided", "one failed", "none"],
)
def test_every_bench_runs_and_all_must_be_met(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    figures: list[str],
    code: int,
) -> None:
    for number, figure in enumerate(figures):
        (tmp_path / f"bench_{number}.py").write_text(BENCH.format(figure=figure))
    monkeypatch.setattr(run, "BENCHES", tmp_path)

    assert run.main(["--json", str(tmp_path / "bench.json")]) == code

    written = from_json((tmp_path / "bench.json").read_bytes())
    assert [figure.bench for figure in written] == [f"bench_{number}" for number in range(len(figures))]
    assert f"{sum(f.verdict is Verdict.MET for f in written)} met, " in capfd.readouterr().out
