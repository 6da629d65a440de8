"""`--metrics-file` and `--timings`: measure a run; without them nothing is measured."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reconciler import __version__
from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.redact import Redactor

if TYPE_CHECKING:
    from reconciler.plan.changes import Outcome
    from reconciler.report.timings import Timings
    from reconciler.run.measuring import Recorder
    from reconciler.run.plan import PlannedRun
    from reconciler.run.report_cache import Counts, Report

F = TypeVar("F", bound=Callable[..., Any])


class Measuring:
    """Measurements of one run, and the file and report that get them."""

    def __init__(self, metrics_file: Path | None, *, shows_timings: bool) -> None:
        self.metrics_file = metrics_file
        self.shows_timings = shows_timings
        self.repeated = False
        self.counts: Counts | None = None
        self.recorder: Recorder | None = None

    @property
    def timings(self) -> "Timings | None":
        """The durations until now; None if the report has none."""
        return self.recorder.timings() if self.recorder and self.shows_timings else None

    def count(self, planned: "PlannedRun", outcome: "Outcome | None" = None) -> "Counts":
        """Take the numbers of a plan, and of its outcome if it was applied; return them."""
        from reconciler.run.report_cache import Counts

        if self.metrics_file is None:
            return Counts()
        from reconciler.report.metrics import plan_samples
        from reconciler.run.measuring import forge_samples

        shard = planned.inputs.forges.shard
        samples = (*plan_samples(planned.plan, planned.inputs.inventory, outcome), *forge_samples(planned))
        self.counts = Counts(samples, planned.names.instance, str(shard))
        return self.counts

    def repeat(self, report: "Report") -> None:
        """Take the numbers of an earlier run: nothing changed since."""
        self.repeated, self.counts = True, report.counts

    def write(self, command: str, code: int) -> None:
        """Write the metrics file in one step: a collector may read it at any time.

        Raises:
            OSError: It cannot be written.
        """
        if self.metrics_file is None or self.recorder is None:
            return
        from reconciler.report.metrics import RunFacts, Sample, metrics_text, run_samples

        facts = RunFacts(__version__, code, time.time(), repeated=self.repeated)
        counted = self.counts.samples if self.counts else ()
        samples = [*run_samples(facts, self.recorder.timings()), *(Sample(*sample) for sample in counted)]
        common = {"command": command}
        if self.counts:
            common |= {"reconciler": self.counts.instance, "shard": self.counts.shard}
        text = Redactor.of_environment(os.environ).text(metrics_text(samples, common))
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
        try:
            with _recorded(measuring):
                ended = command(*args, measuring=measuring, **options)
        except Exception as error:
            code = error.exit_code if isinstance(error, ReconcilerError) else Exit.BUG
            with suppress(OSError):  # the error of the run is the one to tell
                measuring.write(name, int(code))
            raise
        measuring.write(name, int(ended))
        return ended

    return with_measuring  # type: ignore[return-value]


@contextmanager
def _recorded(measuring: Measuring) -> Iterator[None]:
    """Record the spans of a run if they are wanted, and send them as a trace if there is a collector."""
    from reconciler.run import traces

    traced = traces.is_wanted(os.environ)
    if not (traced or measuring.metrics_file or measuring.shows_timings):
        yield
        return
    from reconciler.base.timing import watching
    from reconciler.run.measuring import Recorder

    measuring.recorder = recorder = Recorder(keeps_spans=traced)
    with ExitStack() as stack:
        stack.enter_context(watching(recorder))
        if traced:
            redact = Redactor.of_environment(os.environ).text
            stack.callback(traces.export, recorder, redact, click.get_current_context().info_name or "")
        yield


def _replace(path: Path, text: str) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text.encode())
    temporary = Path(file.name)
    temporary.chmod(0o644)  # the collector is another user
    temporary.replace(path)
