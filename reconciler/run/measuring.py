"""Measure one run: collect its spans and resources into the timings that reports and metrics have."""

import heapq
import os
import resource
import sys
import threading
import time

from reconciler.base.timing import SpanKind, TimeSpan
from reconciler.report.metrics import Sample
from reconciler.report.timings import SLOWEST, StageDuration, Timings, Work
from reconciler.run.plan import PlannedRun

_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


class Recorder:
    """Collects the spans of a run; safe for several threads. All spans are kept only for a trace."""

    def __init__(self, *, keeps_spans: bool = False) -> None:
        self.start = time.time()
        self.spans: list[TimeSpan] = []
        self._begun = time.monotonic()
        self._cpu_s = _cpu_s()
        self._keeps_spans = keeps_spans
        self._lock = threading.Lock()
        self._stages: dict[str, tuple[float, int]] = {}
        self._packages: list[tuple[float, str]] = []
        self._functions: dict[str, tuple[int, float]] = {}
        self._totals: dict[SpanKind, tuple[int, float]] = {}

    def __call__(self, span: TimeSpan) -> None:
        """Count one span."""
        with self._lock:
            if self._keeps_spans:
                self.spans.append(span)
            count, seconds = self._totals.get(span.kind, (0, 0.0))
            self._totals[span.kind] = count + 1, seconds + span.seconds
            match span.kind:
                case SpanKind.STAGE:
                    seconds, items = self._stages.get(span.name, (0.0, 0))
                    self._stages[span.name] = seconds + span.seconds, items + span.items
                case SpanKind.FUNCTION:
                    count, seconds = self._functions.get(span.name, (0, 0.0))
                    self._functions[span.name] = count + 1, seconds + span.seconds
                case SpanKind.PACKAGE:
                    push = heapq.heappush if len(self._packages) < SLOWEST else heapq.heappushpop
                    push(self._packages, (span.seconds, span.name))
                case _:
                    return

    def timings(self) -> Timings:
        """Return the durations until now."""
        with self._lock:
            functions = [Work(name, *total) for name, total in self._functions.items()]
            packages = [Work(name, 1, seconds) for seconds, name in self._packages]
            return Timings(
                time.monotonic() - self._begun,
                _cpu_s() - self._cpu_s,
                _peak_bytes(),
                tuple(StageDuration(name, *total) for name, total in self._stages.items()),
                tuple(sorted(packages, key=_slowest_first)),
                tuple(sorted(functions, key=_slowest_first)),
                Work("git", *self._totals.get(SpanKind.GIT, (0, 0.0))),
                Work("forge", *self._totals.get(SpanKind.FORGE, (0, 0.0))),
            )


def forge_samples(planned: PlannedRun) -> list[Sample]:
    """Return the budgets of writes of a run."""
    samples = []
    for api, spent, limit in planned.inputs.forges.budgets():
        samples += [Sample("forge_writes", spent, (api,)), Sample("forge_writes_limit", limit, (api,))]
    return samples


def _slowest_first(work: Work) -> tuple[float, str]:
    return -work.seconds, work.name


def _cpu_s() -> float:
    """Return the CPU time of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _peak_bytes() -> int:
    """Return the largest memory of this process, or of one that it waited for."""
    unit = 1 if sys.platform == "darwin" else 1024
    return max(resource.getrusage(who).ru_maxrss for who in _WHO) * unit
