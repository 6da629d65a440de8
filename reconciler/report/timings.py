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
        "seconds": round(timings.seconds, 3),
        "cpuSeconds": round(timings.cpu_s, 3),
        "peakBytes": timings.peak_bytes,
        "stages": list(map(_rounded_value, timings.stages)),
        "packages": list(map(_rounded_value, timings.packages[:SLOWEST])),
        "functions": list(map(_rounded_value, timings.functions[:SLOWEST])),
        "git": _rounded_value(timings.git),
        "forge": _rounded_value(timings.forge),
    }


def timings_lines(timings: Timings) -> Iterator[str]:
    """Yield durations as text: stages, then the slowest packages and functions."""
    yield ""
    memory = f"at most {timings.peak_bytes / 2**20:.0f} MiB of memory"
    yield f"Time: {timings.seconds:.2f} s, of which CPU {timings.cpu_s:.2f} s; {memory}"
    rows = [(stage.name, f"{stage.seconds:.3f} s", str(stage.items)) for stage in timings.stages]
    yield from table_lines(("STAGE", "TIME", "RESULTS"), rows)
    if timings.git.runs or timings.forge.runs:
        yield ""
        yield f"Git: {plural(timings.git.runs, 'command')}, {timings.git.seconds:.3f} s"
        yield f"Forges: {plural(timings.forge.runs, 'request')}, {timings.forge.seconds:.3f} s"
    for title, works in (("SLOWEST PACKAGES", timings.packages), ("SLOWEST FUNCTIONS", timings.functions)):
        if works:
            yield ""
            rows = [(work.name, f"{work.seconds:.3f} s", str(work.runs)) for work in works[:SLOWEST]]
            yield from table_lines((title, "TIME", "RUNS"), rows)


def _rounded_value(work: StageDuration | Work) -> dict[str, Any]:
    return {**work._asdict(), "seconds": round(work.seconds, 3)}
