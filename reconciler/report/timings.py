"""Durations of a run for people and as JSON: its stages, and the slowest packages and functions.

They are in no plan that is saved: a report has them only where they were asked for.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from reconciler.base.wording import plural
from reconciler.report.console import table_lines

SLOWEST = 10
"""Packages and functions that a report names."""


class StageDuration(NamedTuple):
    """Duration of a stage of a run, and the number of its results."""

    name: str
    seconds: float
    items: int = 0


class Work(NamedTuple):
    """Duration of all work of one name, and how often it was done."""

    name: str
    runs: int
    seconds: float


class Timings(NamedTuple):
    """Durations of one run: stages in their order, packages and functions with the slowest first."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    stages: tuple[StageDuration, ...] = ()
    packages: tuple[Work, ...] = ()
    functions: tuple[Work, ...] = ()
    git: Work = Work("git", 0, 0.0)
    forge: Work = Work("forge", 0, 0.0)


def timings_value(timings: Timings) -> dict[str, Any]:
    """Return durations as a JSON value, in milliseconds of a second."""
    return {
        "seconds": _rounded(timings.seconds),
        "cpuSeconds": _rounded(timings.cpu_s),
        "peakBytes": timings.peak_bytes,
        "stages": [
            {"name": stage.name, "seconds": _rounded(stage.seconds), "items": stage.items}
            for stage in timings.stages
        ],
        "packages": [_work_value(work) for work in timings.packages[:SLOWEST]],
        "functions": [_work_value(work) for work in timings.functions[:SLOWEST]],
        "git": _work_value(timings.git),
        "forge": _work_value(timings.forge),
    }


def timings_lines(timings: Timings) -> Iterator[str]:
    """Yield durations as text: stages, then the slowest packages and functions."""
    yield ""
    yield f"Time: {timings.seconds:.2f} s, of which CPU {timings.cpu_s:.2f} s; {_megabytes(timings)}"
    rows = [(stage.name, f"{stage.seconds:.3f} s", str(stage.items)) for stage in timings.stages]
    yield from table_lines(("STAGE", "TIME", "RESULTS"), rows)
    if timings.git.runs or timings.forge.runs:
        yield ""
        yield f"Git: {plural(timings.git.runs, 'command')}, {timings.git.seconds:.3f} s"
        yield f"Forges: {plural(timings.forge.runs, 'request')}, {timings.forge.seconds:.3f} s"
    for title, works in (("SLOWEST PACKAGES", timings.packages), ("SLOWEST FUNCTIONS", timings.functions)):
        if works:
            yield ""
            slow = works[:SLOWEST]
            yield from table_lines(
                (title, "TIME", "RUNS"), [(w.name, f"{w.seconds:.3f} s", str(w.runs)) for w in slow]
            )


def _megabytes(timings: Timings) -> str:
    return f"at most {timings.peak_bytes / 2**20:.0f} MiB of memory"


def _work_value(work: Work) -> dict[str, Any]:
    return {"name": work.name, "runs": work.runs, "seconds": _rounded(work.seconds)}


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
