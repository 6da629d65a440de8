"""`--metrics-file` and `--timings`: measure a run; without them nothing is measured."""

import heapq
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reconciler import __version__
from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.redact import Redactor
from reconciler.base.timing import SpanKind, TimeSpan, watching
from reconciler.report.timings import SLOWEST, StageDuration, Timings, Work

if TYPE_CHECKING:
    from reconciler.plan.changes import Outcome
    from reconciler.report.metrics import Sample
    from reconciler.run.plan import PlannedRun

F = TypeVar("F", bound=Callable[..., Any])


class Recorder:
    """Collects the spans of a run; safe for several threads."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._cpu_s = sum(os.times()[:4])
        self._lock = threading.Lock()
        self._packages: list[tuple[float, str]] = []
        self._works: dict[tuple[SpanKind, str], tuple[int, float, int]] = {}

    def __call__(self, span: TimeSpan) -> None:
        """Count one span."""
        with self._lock:
            if span.kind is SpanKind.PACKAGE:
                push = heapq.heappush if len(self._packages) < SLOWEST else heapq.heappushpop
                push(self._packages, (span.seconds, span.name))
                return
            key = span.kind, "" if span.kind in {SpanKind.GIT, SpanKind.FORGE} else span.name
            runs, seconds, items = self._works.get(key, (0, 0.0, 0))
            self._works[key] = runs + 1, seconds + span.seconds, items + span.items

    def timings(self) -> Timings:
        """Return the durations until now."""
        with self._lock:
            works = {key: Work(key[1], *values[:2]) for key, values in self._works.items()}
            stages = [
                StageDuration(name, seconds, items)
                for (kind, name), (_, seconds, items) in self._works.items()
                if kind is SpanKind.STAGE
            ]
            packages = [Work(name, 1, seconds) for seconds, name in self._packages]
        functions = [work for (kind, _), work in works.items() if kind is SpanKind.FUNCTION]
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        git, forge = (works.get((kind, ""), Work("", 0, 0.0)) for kind in (SpanKind.GIT, SpanKind.FORGE))
        return Timings(
            time.monotonic() - self._begun,
            sum(os.times()[:4]) - self._cpu_s,
            max(own.ru_maxrss, children.ru_maxrss) * (1 if sys.platform == "darwin" else 1024),
            tuple(stages),
            tuple(sorted(packages, key=lambda work: (-work.seconds, work.name))),
            tuple(sorted(functions, key=lambda work: (-work.seconds, work.name))),
            git._replace(name="git"),
            forge._replace(name="forge"),
        )


class Measuring:
    """Measurements of one run, and the file and report that get them."""

    def __init__(self, metrics_file: Path | None, *, shows_timings: bool) -> None:
        self.metrics_file = metrics_file
        self.shows_timings = shows_timings
        self.counts: tuple[Sample, ...] = ()
        self.labels: dict[str, str] = {}
        self.recorder: Recorder | None = None

    @property
    def timings(self) -> Timings | None:
        """The durations until now; None if the report has none."""
        return self.recorder.timings() if self.recorder and self.shows_timings else None

    def count(self, planned: "PlannedRun", outcome: "Outcome | None" = None) -> None:
        """Take the numbers of a plan, and of its outcome if it was applied."""
        if self.metrics_file is None:
            return
        from reconciler.report.isolation import tell
        from reconciler.report.metrics import Sample, plan_samples

        forges = planned.inputs.forges
        inventory = planned.inputs.inventory
        samples = tell(planned.plan, lambda plan: [*plan_samples(plan, inventory, outcome)])
        for api, spent, limit in forges.budgets():
            samples += [Sample("forge_writes", spent, (api,)), Sample("forge_writes_limit", limit, (api,))]
        self.counts = tuple(samples)
        self.labels = {"reconciler": planned.names.instance, "shard": str(forges.shard)}

    def write(self, command: str, code: int) -> None:
        """Write the metrics file in one step: a collector may read it at any time.

        Raises:
            OSError: It cannot be written.
        """
        if self.metrics_file is None or self.recorder is None:
            return
        from reconciler.report.metrics import RunFacts, metrics_text, run_samples

        facts = RunFacts(__version__, code, time.time())
        samples = [*run_samples(facts, self.recorder.timings()), *self.counts]
        labels = {"command": command, **self.labels}
        text = Redactor.of_environment(os.environ).text(metrics_text(samples, labels))
        _replace(self.metrics_file, text)


def measuring_options(command: F) -> F:
    """Give a command `--metrics-file` and `--timings`; it receives them as one `measuring`."""

    @click.option(
        "--metrics-file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="RECONCILER_METRICS_FILE",
        metavar="FILE",
        help="Write counts and durations as OpenMetrics text to this file, also if the run fails.",
    )
    @click.option("--timings", is_flag=True, help="Show how long stages, packages and functions took.")
    @wraps(command)
    def with_measuring(*args: Any, metrics_file: Path | None, timings: bool, **options: Any) -> Any:
        measuring = Measuring(metrics_file, shows_timings=timings)
        name = click.get_current_context().info_name or ""
        watched: AbstractContextManager[None] = nullcontext()
        if metrics_file or timings:
            measuring.recorder = Recorder()
            watched = watching(measuring.recorder)
        try:
            with watched:
                ended = command(*args, measuring=measuring, **options)
        except Exception as error:
            code = error.exit_code if isinstance(error, ReconcilerError) else Exit.BUG
            with suppress(OSError):  # the error of the run is the one to tell
                measuring.write(name, int(code))
            raise
        measuring.write(name, int(ended))
        return ended

    return with_measuring  # type: ignore[return-value]


def _replace(path: Path, text: str) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text.encode())
    temporary = Path(file.name)
    temporary.chmod(0o644)  # the collector is another user
    temporary.replace(path)
