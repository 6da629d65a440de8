"""The goals of speed: every figure of a bench has a limit, and is met, missed or not decided.

A time is CPU time, divided by how much slower than a quiet machine this one is at that moment.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

REPORT = "RECONCILER_BENCH_REPORT"
"""The variable with the file that gets the figures of a bench as JSON."""
QUIET_MS = 1.1
"""What PyYAML's C loader takes for the sample on the machine of the goals, when nothing else runs."""
BEFORE: dict[str, dict[str, float]] = orjson.loads(Path(__file__).with_name("before.json").read_bytes())
"""The first measured figure of a goal by bench; a younger goal has none."""
MOST_SLOWNESS = 3.0
"""A machine that is slower than this decides no goal of time."""
SAMPLE = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: default
  labels:
    app: web
spec:
  replicas: 3 # kpt-set: ${replicas}
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - name: web
        image: nginx:1.25 # kpt-set: nginx:${tag}
        ports:
        - containerPort: 80
"""


class Verdict(StrEnum):
    """Whether a goal is reached."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "not decided"


class Figure(NamedTuple):
    """A measured value beside its limit; None was not measured, for the reason in `note`."""

    bench: str
    goal: str
    figure: float | None
    limit: float
    unit: str
    is_minimum: bool = False
    note: str = ""

    @property
    def before(self) -> float | None:
        """The figure when the goal was set, None where it was not measured then."""
        return BEFORE.get(self.bench, {}).get(self.goal)

    @property
    def verdict(self) -> Verdict:
        """Whether the value is within its limit."""
        if self.figure is None:
            return Verdict.UNDECIDED
        is_met = self.figure >= self.limit if self.is_minimum else self.figure <= self.limit
        return Verdict.MET if is_met else Verdict.MISSED


class Goals:
    """The figures of one bench."""

    def __init__(self, bench: str) -> None:
        self.bench = Path(bench).stem
        self.figures: list[Figure] = []

    def at_most(self, goal: str, figure: float | None, limit: float, unit: str = "", note: str = "") -> None:
        """Add a ratio or a size that must not be above its limit."""
        self.figures.append(Figure(self.bench, goal, figure, limit, unit, note=note))

    def at_least(self, goal: str, figure: float | None, limit: float, unit: str = "", note: str = "") -> None:
        """Add a ratio that must not be below its limit."""
        self.figures.append(Figure(self.bench, goal, figure, limit, unit, is_minimum=True, note=note))

    def cpu(
        self,
        goal: str,
        figure: float,
        limit: float,
        unit: str = "s",
        note: str = "",
        *,
        slow: float | None = None,
    ) -> None:
        """Add a CPU time, as it would be on a quiet machine; one that is too slow decides nothing.

        Args:
            goal: What is limited.
            figure: The time on this machine.
            limit: The longest time.
            unit: The unit of both.
            note: More about the figure.
            slow: How slow the machine was meanwhile; measured now by default.
        """
        slow = slow or slowness()
        if slow > MOST_SLOWNESS:
            self.at_most(goal, None, limit, unit, f"this machine is {slow:.1f} times slower than a quiet one")
        else:
            self.at_most(goal, figure / slow, limit, unit, f"{note} {figure:.3g} here".strip())

    def finish(self) -> int:
        """Print the figures, write them where the environment says, and return 1 unless all are met."""
        print(*table(self.figures), sep="\n")
        if path := os.environ.get(REPORT):
            Path(path).write_bytes(to_json(self.figures))
        return int(any(figure.verdict is not Verdict.MET for figure in self.figures))


def is_quick() -> bool:
    """Tell whether only what takes seconds, and is met, is measured."""
    return "--quick" in sys.argv[1:]


def slowness() -> float:
    """Return how many times slower than a quiet machine this one is now, at least 1."""
    took = []
    for _ in range(15):
        start = time.process_time()
        for _ in range(10):
            yaml.load(SAMPLE, Loader=yaml.CSafeLoader)
        took.append((time.process_time() - start) * 1000)
    return max(1.0, statistics.median(took) / QUIET_MS)


def to_json(figures: Iterable[Figure]) -> bytes:
    """Return figures as JSON."""
    values = [{**figure._asdict(), "before": figure.before, "verdict": figure.verdict} for figure in figures]
    return orjson.dumps(values, option=orjson.OPT_INDENT_2)


def from_json(data: bytes) -> list[Figure]:
    """Return the figures of a JSON text."""
    values: list[dict[str, Any]] = orjson.loads(data)
    return [Figure(**{name: value[name] for name in Figure._fields}) for value in values]


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield a table: bench, goal, figure before, figure, limit, verdict."""
    yield f"{'bench':18} {'goal':62} {'before':>10} {'figure':>10} {'limit':>12}  verdict"
    for each in figures:
        before, figure = _quantity(each.before, each.unit), _quantity(each.figure, each.unit)
        limit = f"{'>=' if each.is_minimum else '<='} {each.limit:.3g} {each.unit}".strip()
        note = f" ({each.note})" if each.note else ""
        yield f"{each.bench:18} {each.goal:62} {before:>10} {figure:>10} {limit:>12}  {each.verdict}{note}"


def _quantity(value: float | None, unit: str) -> str:
    return "--" if value is None else f"{value:.3g} {unit}".strip()
