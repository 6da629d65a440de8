"""Effects of a run: none begins after a request to shut down, and tests count or fail them at failpoints.

SIGTERM requests a shutdown: the effect under way is finished, then the run ends. A signal is for the
whole process, so these flags are the only state that is kept for the whole process.

Failpoints are armed by the environment of a whole process, read once. `RECONCILER_FAILPOINT=<n>:kill` ends
the process with SIGKILL at point number n (from 1), `<n>:raise` raises there; every effect has a point
before it and one after it. `RECONCILER_FAILPOINT_LOG=<file>` appends one line per point passed.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from reconciler.errors import Exit, ReconcilerError, UnavailableError
from reconciler.values import dataclass

VARIABLE = "RECONCILER_FAILPOINT"
LOG_VARIABLE = "RECONCILER_FAILPOINT_LOG"

_CHECK_S = 0.1
"""How often a wait looks for a request to shut down."""


class Flag:
    """A flag that a signal handler may set.

    Not `threading.Event`: the thread that the signal interrupts may hold its lock, and the handler would
    wait for that lock for ever.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set it."""
        self._is_set = True

    def clear(self) -> None:
        """Clear it."""
        self._is_set = False

    def is_set(self) -> bool:
        """Tell whether it is set."""
        return self._is_set


_requested = Flag()
_recording = Flag()


class StoppedError(ReconcilerError):
    """A shutdown was requested; finished effects stay, and the next run continues from them."""

    exit_code = Exit.PARTIAL
    hint = "Run again: the next run continues where this one stopped."

    def __init__(self) -> None:
        super().__init__("The run was stopped by a signal")


def request_shutdown() -> None:
    """Ask this process to end between two effects."""
    _requested.set()


def is_shutting_down() -> bool:
    """Tell whether no effect may begin any more."""
    return _requested.is_set() and not _recording.is_set()


def check_shutdown() -> None:
    """Raise StoppedError if no effect may begin any more."""
    if is_shutting_down():
        raise StoppedError


def sleep(seconds: float) -> None:
    """Wait; a requested shutdown ends the wait with a StoppedError."""
    until = time.monotonic() + seconds
    while not is_shutting_down() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _CHECK_S))
    check_shutdown()


@contextmanager
def recording() -> Iterator[None]:
    """Permit the effects that record a run's results even after a shutdown was requested."""
    _recording.set()
    try:
        yield
    finally:
        _recording.clear()


@dataclass(slots=True)
class Failpoints:
    """The armed failpoints of one process, counted from 1 in the order in which they are reached."""

    at: int = 0
    action: str = ""
    log: Path | None = None
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Failpoints | None":
        """Return the failpoints that an environment arms, None if it arms none.

        Raises: ValueError if the variable is set and is not `<n>:kill` or `<n>:raise`.
        """
        spec, log = environment.get(VARIABLE, ""), environment.get(LOG_VARIABLE, "")
        if not spec and not log:
            return None
        number, _, action = spec.partition(":")
        if spec and (not number.isdecimal() or action not in {"kill", "raise"}):
            raise ValueError(f"{VARIABLE} must be <n>:kill or <n>:raise, not {spec!r}")
        return cls(int(number or 0), action, Path(log) if log else None)

    def reach(self, name: str) -> None:
        """Count one point; log it, and end the process or raise if it is the armed one."""
        with self.lock:
            self.count += 1
            number = self.count
            if self.log is not None:
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(f"{number} {name}\n")
        if number != self.at:
            return
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise UnavailableError(f"failpoint {number} ({name})", hint="A test armed this failure.")


_failpoints = Failpoints.of(os.environ)


@contextmanager
def effect(name: str) -> Iterator[None]:
    """Mark an effect: a failpoint before it and, if it did not raise, another after it.

    Raises: StoppedError if a shutdown was requested; the effect has not begun.
    """
    check_shutdown()
    if _failpoints is not None:
        _failpoints.reach(f"before {name}")
    yield
    if _failpoints is not None:
        _failpoints.reach(f"after {name}")
