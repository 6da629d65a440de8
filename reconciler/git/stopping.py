"""A request to end soon, as SIGTERM makes it: no effect begins after it, the one under way is finished.

A signal is for the whole process, so this is the one thing that is kept for the whole process.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.errors import Exit, ReconcilerError

_requested = threading.Event()
_recording = threading.Event()


class StoppedError(ReconcilerError):
    """The process was asked to end; what was done stays done, and the next run does the rest."""

    exit_code = Exit.PARTIAL
    hint = "Run again: it goes on where this run ended."

    def __init__(self) -> None:
        super().__init__("The run was asked to end")


def request() -> None:
    """Ask this process to end between two effects."""
    _requested.set()


def requested() -> bool:
    """Tell whether no effect may begin any more."""
    return _requested.is_set() and not _recording.is_set()


def check() -> None:
    """Let an effect begin.

    Raises:
        StoppedError: None may begin any more.
    """
    if requested():
        raise StoppedError


def sleep(seconds: float) -> None:
    """Wait, unless the process is asked to end meanwhile.

    Raises:
        StoppedError: It is.
    """
    if _requested.wait(seconds):
        check()


@contextmanager
def recording() -> Iterator[None]:
    """Let what was done be recorded all the same; nothing else is under way then."""
    _recording.set()
    try:
        yield
    finally:
        _recording.clear()
