"""Progress of long work: open tasks with their steps, for a display. By default nothing is displayed.

A display only watches: nothing that a run computes or writes may depend on it (law 5).
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import Protocol, TypeVar

T = TypeVar("T")


class Task:
    """Work under way: `done` of `total` steps, 0 for an unknown number. Safe for several threads.

    `detail` names the last step.
    """

    def __init__(self, name: str, total: int = 0) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self.detail = ""
        self._lock = Lock()

    def advance(self, detail: str = "") -> None:
        """Count one more step."""
        with self._lock:
            self.done += 1
            self.detail = detail


class Display(Protocol):
    """Shows open tasks to a person."""

    def begin(self, task: Task) -> None:
        """Show a task, which may be inside of another one."""

    def end(self, task: Task) -> None:
        """Forget a task."""

    def printing(self, text: str) -> AbstractContextManager[None]:
        """Make room for a text that is printed meanwhile."""

    def paused(self) -> AbstractContextManager[None]:
        """Have no thread meanwhile, and draw nothing.

        A lock that another thread holds stays locked in a fork; a pager has the terminal to itself.
        """


class NoDisplay:
    """Shows nothing."""

    def begin(self, task: Task) -> None:
        """Do nothing."""

    def end(self, task: Task) -> None:
        """Do nothing."""

    def printing(self, _text: str) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def paused(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()


_displays: list[Display] = [NoDisplay()]
"""The one display of this process."""


def show_on(display: Display) -> None:
    """Show the progress of this process on a display from now on."""
    _displays[0] = display


def current_display() -> Display:
    """Return the display of this process."""
    return _displays[0]


@contextmanager
def open_task(name: str, total: int = 0) -> Iterator[Task]:
    """Show a task until it ends, also if it fails."""
    display, task = current_display(), Task(name, total)
    display.begin(task)
    try:
        yield task
    finally:
        display.end(task)


def track(items: Collection[T], name: str) -> Iterator[T]:
    """Yield items as the steps of a task; each is done when the next one is asked for."""
    with open_task(name, len(items)) as task:
        for item in items:
            yield item
            task.advance()
