"""Durations of stages, Git commands, requests to forges, packages and functions, as spans that watchers get.

Only the edge has a clock. Nothing that a run computes or writes to Git may depend on a duration (law 5).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import NamedTuple

from reconciler.base.progress import open_task


class SpanKind(StrEnum):
    """Kind of work that a span measures."""

    STAGE = "stage"
    GIT = "git"
    FORGE = "forge"
    PACKAGE = "package"
    FUNCTION = "function"


_SHOWN = {
    "read": "reading",
    "expand": "expanding sets",
    "resolve": "resolving",
    "fetch": "fetching packages",
    "render": "rendering",
    "plan": "planning",
}
"""Stages as a display of progress names them; `apply` shows its effects."""


class TimeSpan(NamedTuple):
    """Something that took time: `start` in seconds since the epoch, `items` as counted at its end.

    `where` is the repository or the API.
    """

    kind: SpanKind
    name: str
    start: float
    seconds: float
    items: int = 0
    where: str = ""


Watcher = Callable[[TimeSpan], None]
_watchers: list[Watcher] = []


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with every span of this process that ends meanwhile; from the thread that ends it."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def is_watched() -> bool:
    """Tell whether there is a watcher: names that are costly to find are needed only then."""
    return bool(_watchers)


def emit(span: TimeSpan) -> None:
    """Pass a span to all watchers: one of this process, or of another that sent it."""
    for watcher in _watchers:
        watcher(span)


class OpenSpan:
    """A span under way: the number of its results, and whether it is worth telling."""

    def __init__(self) -> None:
        self.items = 0
        self.is_kept = True


@contextmanager
def timed(kind: SpanKind, name: str, where: str = "") -> Iterator[OpenSpan]:
    """Measure a span, also if it fails."""
    opened = OpenSpan()
    shown = _SHOWN.get(name) if kind is SpanKind.STAGE else None
    start, begun = time.time(), time.monotonic()
    try:
        with open_task(shown) if shown else nullcontext():
            yield opened
    finally:
        if _watchers and opened.is_kept:
            emit(TimeSpan(kind, name, start, time.monotonic() - begun, opened.items, where))
