"""The line of progress on a terminal: drawn as work goes on, erased before anything else is printed."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock

from reconciler.base.progress import Task

DELAY_S = 1.0
"""Work that takes less is shown nothing of, unless its steps are counted: the first one may take long."""
_REFRESH_S = 0.1
_ERASE = "\r\x1b[2K"
_COLUMNS = 80


class ProgressLine:
    """Shows the innermost task in the last line of a terminal.

    `file` is the terminal, `clean` makes the text of a step safe to show.
    """

    def __init__(
        self,
        file: int,
        clean: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
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
