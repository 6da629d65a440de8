"""Progress of long work: open tasks with their steps for a display, seconds of stages and of calls.

Who watches only watches: nothing that a run computes or writes may depend on it (law 5).
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import TypeVar

T = TypeVar("T")


class Task:
    """Work under way: `done` of `total` steps, 0 for an unknown number. Safe for several threads.

    `detail` names the last step.
    """

    def __init__(self, name: str, total: int = 0, shown_by: "Display | None" = None) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self.detail = ""
        self._display = shown_by
        self._lock = Lock()

    def advance(self, detail: str = "") -> None:
        """Count one more step."""
        with self._lock:
            self.done += 1
            self.detail = detail
        if self._display is not None:
            self._display.refresh()


class Display:
    """Shows open tasks to a person; this one shows nothing."""

    def begin(self, task: Task) -> None:
        """Show a task, which may be inside of another one."""

    def end(self, task: Task) -> None:
        """Forget a task."""

    def refresh(self) -> None:
        """Show what changed in a task."""

    def printing(self, _text: str) -> AbstractContextManager[None]:
        """Make room for a text that is printed meanwhile."""
        return nullcontext()

    def paused(self) -> AbstractContextManager[None]:
        """Draw nothing meanwhile: a person or a pager has the terminal, or a process is forked."""
        return nullcontext()


_displays: list[Display] = [Display()]
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
    display = current_display()
    task = Task(name, total, display)
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


_TASKS = {
    "read": "reading",
    "expand": "expanding sets",
    "resolve": "resolving",
    "fetch": "fetching packages",
    "render": "rendering",
    "plan": "planning",
}
"""Stages as a display names them; `apply` shows its effects."""
_stages: dict[str, float] = {}


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Show and measure a stage of a run, also if it fails; no stage is within another."""
    begun = time.monotonic()
    try:
        with open_task(_TASKS[name]) if name in _TASKS else nullcontext():
            yield
    finally:
        _stages[name] = _stages.get(name, 0.0) + time.monotonic() - begun


def begin_stages() -> None:
    """Forget the seconds of all stages: a run begins."""
    _stages.clear()


def stage_seconds() -> dict[str, float]:
    """Return the seconds of each stage since the run began, in their order."""
    return dict(_stages)


_listeners: list[Callable[[str, float], None]] = []


@contextmanager
def listening(listener: Callable[[str, float], None]) -> Iterator[None]:
    """Call `listener` with the name and the seconds of each call that ends meanwhile; in its thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def call(name: str) -> Iterator[None]:
    """Measure a Git command or a request to a forge, also if it fails."""
    begun = time.monotonic()
    try:
        yield
    finally:
        for listener in _listeners:
            listener(name, time.monotonic() - begun)
