"""The line of progress on a terminal: shown after a second, erased before anything else is printed."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, RLock, Thread

from reconciler.base.progress import Task

DELAY_S = 1.0
"""Work that takes less is shown nothing of."""
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
        self._thread: Thread | None = None
        self._stopping = Event()
        self._begun = self._ended = -DELAY_S
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
        self._start()

    def end(self, task: Task) -> None:
        """Forget a task; erase the line after the last one."""
        with self._lock:
            self._tasks = [each for each in self._tasks if each[0] is not task]
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
        """Have neither a thread nor the line meanwhile: a process is forked, or another one draws."""
        self._pauses += 1
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._thread = None
        self._erase()
        since = self._clock()
        try:
            yield
        finally:
            self._pauses -= 1
            if self._clock() - since > DELAY_S / 2:  # a person was asked: work begins only now
                self._begun = self._clock()
            if self._tasks:
                self._start()

    def refresh(self) -> None:
        """Write the line anew, unless the work began just now."""
        with self._lock:
            now = self._clock()
            if not self._tasks or not self._is_at_start or now - self._begun < DELAY_S:
                return
            task, begun = self._tasks[-1]
            text = line_of(task, now - begun, now - self._begun)
            if task.detail:
                text = f"{text}: {self._clean(task.detail)}"
            self._write(f"{_ERASE}{text[: self._columns() - 1]}")
            self._is_shown = True

    def _start(self) -> None:
        if self._thread is None and not self._pauses:
            self._stopping.clear()
            self._thread = Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(_REFRESH_S):
            self.refresh()

    def _erase(self) -> None:
        if self._is_shown:
            self._write(_ERASE)
            self._is_shown = False

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._file).columns or _COLUMNS
        except OSError:
            return _COLUMNS

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
    left = max(task.total - task.done, 0) / rate
    return f"{line}{pace}, {_duration(left)} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
