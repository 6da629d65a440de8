"""Standard error: events, bugs with what to report, and the line of progress on a terminal."""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import NamedTuple, Self

import click

from reconciler.base.defects import LOGGER, DefectError
from reconciler.base.progress import Display, Task
from reconciler.base.redact import Redactor
from reconciler.base.text import inert
from reconciler.report.console import folded

_OF_DEFECTS = (
    "This is a bug in reconciler: what it broke stays as it is, the rest is done, the next run tries again.",
    "Please report it with the traceback above and these versions:",
)
_OF_A_BUG = (
    "This is a bug in reconciler; nothing is half done: a plain `apply` completes it.",
    "Please report it with everything above and these versions:",
)


class Event(NamedTuple):
    """An event: its text and its kind, such as `note`; "" for lines of a report.

    The `hint` is the next step.
    """

    kind: str
    text: str
    hint: str = ""


def rendered(event: Event, redactor: Redactor, width: int | None = None) -> str:
    """Return an event as whole lines that are not wider than a terminal."""
    text = f"{event.kind}: {event.text}" if event.kind else event.text
    # A hint below a problem is indented, as in reports.
    hint = f"\n{'' if event.kind == 'error' else '  '}hint: {event.hint}" if event.hint else ""
    # Masked first: a secret may have spaces.
    return inert("\n".join(folded([redactor.text(text + hint)], width))) + "\n"


def show(event: Event, redactor: Redactor, width: int | None = None) -> None:
    """Print an event to standard error."""
    click.echo(rendered(event, redactor, width), err=True, nl=False)


def bug_lines(error: BaseException, redactor: Redactor) -> str:
    """Return the lines about an unforeseen error: its traceback, and the versions to report."""
    import traceback

    text = redactor.text("".join(traceback.format_exception(error)))
    return "\n".join([text, *_OF_A_BUG, *_versions(), ""])


class DefectLog(logging.Handler):
    """Prints the traceback of each defect, once for all units that have it, and at the end what to report."""

    def __init__(self, redactor: Redactor) -> None:
        """Print to standard error, masked."""
        super().__init__()
        self._redactor = redactor
        self.counts = Counter[str]()

    def __enter__(self) -> Self:
        """Take what guards log."""
        logging.getLogger(LOGGER).addHandler(self)
        logging.getLogger(LOGGER).propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the log as it was."""
        logging.getLogger(LOGGER).removeHandler(self)
        logging.getLogger(LOGGER).propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        """Print a defect with its traceback, unless another unit had it before."""
        if not record.exc_info or record.exc_info[1] is None:
            return
        cause = DefectError(record.exc_info[1]).cause
        self.counts[cause] += 1
        if self.counts[cause] > 1:
            return
        text, traceback = record.getMessage(), logging.Formatter().formatException(record.exc_info)
        click.echo(inert(self._redactor.text(f"{text}\n{traceback}\n")), err=True, nl=False)

    def summary(self) -> str:
        """Return how often defects of a run were met, and the versions to report; "" if there were none."""
        if not self.counts:
            return ""
        counts = (f"{count - 1} more: {cause}" for cause, count in self.counts.items() if count > 1)
        return "\n".join([*counts, *_OF_DEFECTS, *_versions(), ""])


def _versions() -> Iterator[str]:
    import platform
    from importlib import metadata

    from reconciler import __version__

    yield from (f"  reconciler {__version__}", f"  python {platform.python_version()}")
    yield f"  platform {platform.platform()}"
    for name in ("pygit2", "pydantic", "PyYAML", "ruamel.yaml", "cel-expr-python", "python-sat", "click"):
        try:
            yield f"  {name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"  {name} not installed"


DELAY_S = 1.0
"""Work that takes less is shown nothing of, unless its steps are counted: the first one may take long."""
_REFRESH_S = 0.1
_ERASE = "\r\x1b[2K"
_COLUMNS = 80


class ProgressLine(Display):
    """Shows the innermost task in the last line of a terminal.

    `file` is the terminal, `clean` makes the text of a step safe to show.
    """

    def __init__(
        self, file: int, clean: Callable[[str], str] = str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._clean = clean
        self._clock = clock
        self._tasks: list[tuple[Task, float]] = []
        self._lock = RLock()
        self._begun = self._ended = self._drawn = -DELAY_S
        self._is_shown = False
        self._is_at_start = True
        self._pauses = 0

    def begin(self, task: Task) -> None:
        """Show a task, which may be inside of another one, once work has taken a second."""
        with self._lock:
            now = self._clock()
            if not self._tasks and now - self._ended > DELAY_S / 2:
                self._begun = now
            self._tasks.append((task, now))
            self._drawn = -DELAY_S
            self.refresh()

    def end(self, task: Task) -> None:
        """Forget a task; erase the line after the last one."""
        with self._lock:
            self._tasks = [entry for entry in self._tasks if entry[0] is not task]
            self.refresh()
            if not self._tasks:
                self._ended = self._clock()
                self._erase()

    @contextmanager
    def printing(self, text: str) -> Iterator[None]:
        """Erase the line while a text is printed; an unfinished line, as of a question, stays."""
        with self._lock:
            self._erase()
            yield
            self._is_at_start = not text or text.endswith("\n")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Draw nothing meanwhile; the time is none of work."""
        self._pauses += 1
        self._erase()
        since = self._clock()
        try:
            yield
        finally:
            self._pauses -= 1
            if self._clock() - since > DELAY_S / 2:  # a person was asked: work begins only now
                self._begun = self._clock()

    def refresh(self) -> None:
        """Write the line anew, unless the work or the line began just now."""
        with self._lock:
            now = self._clock()
            if not self._tasks or not self._is_at_start or self._pauses or now - self._drawn < _REFRESH_S:
                return
            task, begun = self._tasks[-1]
            if now - self._begun < DELAY_S and not task.total:
                return
            self._drawn = now
            text = line_of(task, now - begun, now - self._begun)
            if task.detail:
                text = f"{text}: {self._clean(task.detail)}"
            columns = _COLUMNS
            with suppress(OSError):
                columns = os.get_terminal_size(self._file).columns or _COLUMNS
            self._write(f"{_ERASE}{text[: columns - 1]}")
            self._is_shown = True

    def _erase(self) -> None:
        if self._is_shown:
            self._write(_ERASE)
            self._is_shown = False

    def _write(self, text: str) -> None:
        # Past the buffers of the stream, which belong to the main thread. A terminal may be gone.
        with suppress(OSError):
            os.write(self._file, text.encode())


def line_of(task: Task, seconds: float, since: float) -> str:
    """Return a task as a line: its steps, their rate and the time left, or the time since work began."""
    if not task.total:
        return f"{task.name}, {_duration(since)}"
    line = f"{task.name}: {task.done} of {task.total}"
    if not task.done or seconds <= 0:
        return f"{line}, {_duration(since)}"
    rate = task.done / seconds
    pace = f", {rate:.0f}/s" if rate >= 1 else ""
    remaining_s = max(task.total - task.done, 0) / rate
    return f"{line}{pace}, {_duration(remaining_s)} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
