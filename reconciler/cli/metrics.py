"""`--metrics-file`: the numbers of a run for collectors, as OpenMetrics text."""

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import click

from reconciler import __version__
from reconciler.admission.judgement import AdmissionVerdict
from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.progress import begin_stages, stage_seconds
from reconciler.base.reasons import Phase
from reconciler.base.redact import Redactor
from reconciler.inventory.inventory import Inventory
from reconciler.plan.changes import Op, Outcome, Plan
from reconciler.plan.status import PackageStatus, current_statuses
from reconciler.report.build import tell
from reconciler.resolve.rollout_model import MemberPhase
from reconciler.run.plan import PlannedRun

PREFIX = "reconciler_"


class Metric(NamedTuple):
    """A metric: its unit is the end of its name, its labels are those besides the common ones."""

    about: str
    unit: str = ""
    labels: tuple[str, ...] = ()


METRICS = {
    "run_info": Metric("1, with the version of the program", labels=("version",)),
    "run_timestamp_seconds": Metric("Time of the end of the run, in seconds since 1970", "seconds"),
    "run_duration_seconds": Metric("Duration of the run", "seconds"),
    "run_cpu_seconds": Metric("CPU time of the run and of its processes", "seconds"),
    "run_peak_memory_bytes": Metric("Largest memory of the run", "bytes"),
    "run_exit_code": Metric("Exit code of the run"),
    "stage_duration_seconds": Metric("Duration of a stage", "seconds", ("stage",)),
    "forge_writes": Metric("Writes to a forge in the last hour that count in its budget", labels=("api",)),
    "forge_writes_limit": Metric("Writes an hour that the configuration permits", labels=("api",)),
    "repositories": Metric("Repositories by state", labels=("state",)),
    "packages": Metric("Packages by state", labels=("state",)),
    "packages_oldest_timestamp_seconds": Metric(
        "Time since when the oldest package is in a state, in seconds since 1970", "seconds", ("state",)
    ),
    "packages_waiting": Metric("Packages that wait for a person"),
    "changes": Metric("Packages by the operation that the plan has for them", labels=("op",)),
    "changes_pending": Metric("Packages of which something is still to be done"),
    "conflicts": Metric("Conflicts that a person must answer"),
    "problems": Metric("Problems by reason", labels=("reason",)),
    "refusals": Metric("Reasons why the plan is not applied", labels=("reason",)),
    "judgements": Metric("New answers of clusters to what is proposed, by verdict", labels=("verdict",)),
    "rollout_phase": Metric("1 for the phase of the rollout of a set", labels=("set", "phase")),
    "wave_phase": Metric("1 for the phase of a wave", labels=("set", "wave", "phase")),
    "wave_packages": Metric("Packages of a wave by state", labels=("set", "wave", "state")),
    "snapshot_timestamp_seconds": Metric(
        "Time of the oldest complete list of a snapshot, in seconds since 1970", "seconds", ("cluster",)
    ),
    "effects": Metric("Effects of apply", labels=("result",)),
}
"""Every metric by its name without the prefix, in the order of the file."""


class Sample(NamedTuple):
    """A number of one metric; `values` are those of its labels."""

    metric: str
    value: float
    values: tuple[str, ...] = ()


def plan_samples(plan: Plan, inventory: Inventory, outcome: Outcome | None = None) -> Iterator[Sample]:
    """Yield the numbers of a plan: as it is before the plan is applied, or after with its outcome.

    Pure: equal inputs give equal numbers.
    """
    unread = sum(view.problem is not None for view in inventory.repositories.values())
    yield Sample("repositories", len(inventory.repositories) - unread, ("read",))
    yield Sample("repositories", unread, ("unread",))
    yield from _state_samples(current_statuses(plan, outcome))
    yield Sample("packages_waiting", sum(change.waits for change in plan.changes))
    ops = Counter(change.op for change in plan.changes)
    yield from (Sample("changes", ops[op], (op,)) for op in Op)
    pending = {change.package for change in plan.changes if change.pending}
    yield Sample("changes_pending", len(pending & outcome.unfinished.keys() if outcome else pending))
    yield Sample("conflicts", sum(len(change.conflicts) for change in plan.changes))
    for name, reasons in (("problems", plan.problems), ("refusals", plan.refusals)):
        counted = Counter(str(reason.reason) for reason in reasons)
        yield from (Sample(name, count, (reason,)) for reason, count in counted.items())
    judgements = (j for change in plan.changes for j in change.verdicts)
    verdicts = Counter(j.verdict for j in (*judgements, *plan.unjudged) if not j.is_old)
    yield from (Sample("judgements", verdicts[verdict], (verdict,)) for verdict in AdmissionVerdict)
    for rollout in plan.rollouts:
        name = str(rollout.key)
        yield Sample("rollout_phase", 1, (name, rollout.phase))
        for wave in rollout.waves:
            yield Sample("wave_phase", 1, (name, wave.name, wave.phase))
            counts = Counter(member.phase for member in wave.members)
            for phase in MemberPhase:
                yield Sample("wave_packages", counts[phase], (name, wave.name, phase))
    for cluster, snapshot in {
        inventory.snapshot.cluster: inventory.snapshot,
        **inventory.snapshot.clusters,
    }.items():
        if snapshot.taken is not None:
            yield Sample("snapshot_timestamp_seconds", snapshot.taken, (cluster,))
    if outcome is not None:
        results = Counter(
            "left" if effect.is_left else "failed" if effect.error else "done" for effect in outcome.effects
        )
        yield from (Sample("effects", results[result], (result,)) for result in ("done", "failed", "left"))


def metrics_text(samples: Iterable[Sample], common: Mapping[str, str]) -> str:
    """Return samples as OpenMetrics text, in the order of `METRICS`; every sample has the common labels.

    A common label without a value is left out.
    """
    # Its import takes 50 ms: only a run that writes metrics pays for it.
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.openmetrics.exposition import generate_latest

    shared = {name: value for name, value in common.items() if value}
    families = {
        name: GaugeMetricFamily(
            PREFIX + name, metric.about, labels=[*shared, *metric.labels], unit=metric.unit
        )
        for name, metric in METRICS.items()
    }
    for sample in sorted(samples, key=lambda sample: sample.values):
        families[sample.metric].add_metric([*shared.values(), *sample.values], sample.value)
    measured = [family for family in families.values() if family.samples]
    text: bytes = generate_latest(SimpleNamespace(collect=lambda: measured))  # type: ignore[no-untyped-call]
    return text.decode()


def _state_samples(statuses: Iterable[PackageStatus]) -> Iterator[Sample]:
    counts: Counter[Phase] = Counter()
    oldest: dict[Phase, int] = {}
    for status in statuses:
        counts[status.phase] += 1
        if status.since:
            oldest[status.phase] = min(status.since, oldest.get(status.phase, status.since))
    yield from (Sample("packages", counts[phase], (phase,)) for phase in Phase)
    for phase, since in oldest.items():
        yield Sample("packages_oldest_timestamp_seconds", since, (phase,))


F = TypeVar("F", bound=Callable[..., Any])


class Measuring:
    """Measurements of one run, and the file that gets them."""

    def __init__(self, metrics_file: Path | None) -> None:
        self.metrics_file = metrics_file
        self._begun = time.monotonic()
        self._cpu_s = sum(os.times()[:4])
        self.counts: tuple[Sample, ...] = ()
        self.labels: dict[str, str] = {}

    def count(self, planned: PlannedRun, outcome: Outcome | None = None) -> None:
        """Take the numbers of a plan, and of its outcome if it was applied."""
        if self.metrics_file is None:
            return
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
        if self.metrics_file is None:
            return
        process, children = (
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        peak = max(process.ru_maxrss, children.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
        samples = [
            Sample("run_info", 1, (__version__,)),
            Sample("run_timestamp_seconds", round(time.time(), 3)),
            Sample("run_duration_seconds", time.monotonic() - self._begun),
            Sample("run_cpu_seconds", sum(os.times()[:4]) - self._cpu_s),
            Sample("run_peak_memory_bytes", peak),
            Sample("run_exit_code", code),
            *(Sample("stage_duration_seconds", taken, (stage,)) for stage, taken in stage_seconds().items()),
            *self.counts,
        ]
        labels = {"command": command, **self.labels}
        text = Redactor.of_environment(os.environ).text(metrics_text(samples, labels))
        _replace(self.metrics_file, text)


def measuring_options(command: F) -> F:
    """Give a command `--metrics-file`; it receives it as `measuring`."""

    @click.option(
        "--metrics-file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="RECONCILER_METRICS_FILE",
        metavar="FILE",
        help="Write counts and durations as OpenMetrics text to this file, also if the run fails.",
    )
    @wraps(command)
    def with_measuring(*args: Any, metrics_file: Path | None, **options: Any) -> Any:
        measuring = Measuring(metrics_file)
        begin_stages()
        name = click.get_current_context().info_name or ""
        try:
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
