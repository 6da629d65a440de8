"""The gate of the benches: which figure is met, and that one bench that misses or fails ends no other."""

from pathlib import Path

import pytest

from tools.bench import goals
from tools.bench.goals import Figure, Goals, Verdict


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
        (1.0, Verdict.MISSED), (1.9, Verdict.MISSED), (2.0, Verdict.MET), (3.0, Verdict.MET),
        (3.1, Verdict.UNDECIDED),
    ],
)  # fmt: skip
def test_time_is_judged_as_on_a_quiet_machine(monkeypatch: pytest.MonkeyPatch, slow, verdict) -> None:
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


@pytest.mark.parametrize(("bench", "goal"), [(b, g) for b, known in goals.BEFORE.items() for g in known])
def test_what_was_measured_before_belongs_to_a_goal_that_is_measured(bench: str, goal: str) -> None:
    source = (Path(goals.__file__).parent / f"{bench}.py").read_text(encoding="utf-8")

    assert goal.removesuffix("one repository") in source
