"""`--metrics-file`: the numbers of a run for collectors."""

import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

import click

from reconciler import __version__
from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.progress import begin_stages, stage_seconds
from reconciler.base.redact import Redactor
from reconciler.plan.changes import Outcome
from reconciler.report.isolation import tell
from reconciler.report.metrics import RunFacts, Sample, metrics_text, plan_samples, run_samples
from reconciler.run.plan import PlannedRun

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
        facts = RunFacts(
            __version__,
            code,
            time.time(),
            time.monotonic() - self._begun,
            sum(os.times()[:4]) - self._cpu_s,
            max(process.ru_maxrss, children.ru_maxrss) * (1 if sys.platform == "darwin" else 1024),
            stage_seconds(),
        )
        samples = [*run_samples(facts), *self.counts]
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
