"""Effects of a run: none begins after a request to shut down, and tests count or fail them at failpoints.

SIGTERM or SIGINT requests a shutdown: the effect under way is finished, then the run ends. A signal is for
the whole process, so these flags are the only state that is kept for the whole process.

Failpoints are armed by the environment of a whole process, read once. `RECONCILER_FAILPOINT=<n>:kill` ends
the process with SIGKILL at point number n (from 1), `<n>:raise` raises there; every effect has a point
before it and one after it. `RECONCILER_FAILPOINT_LOG=<file>` appends one line per point passed.
"""

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from reconciler.base.errors import Exit, ReconcilerError, UnavailableError

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


requested = Flag()
_recording = Flag()
_interruptible = Flag()
_applying = Flag()


class _UnderWay:
    """The number of effects under way, in memory that the watching process shares."""

    def __init__(self) -> None:
        self.shared: mmap.mmap | None = None
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Add to the number of effects."""
        with self._lock:
            self.count += number
            if self.shared is not None:
                self.shared[0] = min(self.count, 255)


_under_way = _UnderWay()


def share_progress() -> Callable[[], bool]:
    """Return a function that tells, also in the parent of a fork, whether an effect is under way."""
    shared = _under_way.shared = mmap.mmap(-1, 1)
    return lambda: shared[0] > 0


class StoppedError(ReconcilerError):
    """A shutdown was requested; finished effects stay, and the next run continues from them."""

    exit_code = Exit.PARTIAL
    hint = "Run again: the next run continues where this one stopped."

    def __init__(self) -> None:
        super().__init__("The run was stopped by a signal")


def request_shutdown() -> bool:
    """Ask this process to end between two effects; tell whether this is the first request."""
    is_first = not requested.is_set()
    requested.set()
    return is_first


def keep_progress() -> None:
    """Share nothing: there is no watching process."""
    _under_way.shared = None


def is_watched() -> bool:
    """Tell whether another process ends this one where it does not end by itself."""
    return _under_way.shared is not None


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a request to shut down end what the main thread does at once, with a StoppedError.

    For what waits and writes nothing: functions of packages, and input that a person types.
    """
    check_shutdown()
    _interruptible.set()
    try:
        yield
    finally:
        _interruptible.clear()


@contextmanager
def applying() -> Iterator[None]:
    """Let Ctrl-C, too, end what the main thread does only between two effects, so that they are recorded."""
    _applying.set()
    try:
        yield
    finally:
        _applying.clear()


def is_interruptible(number: int) -> bool:
    """Tell whether the handler of this signal shall raise StoppedError."""
    return _interruptible.is_set() or (
        number == signal.SIGINT and not _applying.is_set() and not _under_way.count
    )


def is_shutting_down() -> bool:
    """Tell whether no effect may begin any more."""
    return requested.is_set() and not _recording.is_set()


def check_shutdown() -> None:
    """Raise StoppedError if no effect may begin any more."""
    if is_shutting_down():
        raise StoppedError


def sleep(seconds: float) -> None:
    """Wait; a requested shutdown ends the wait with a StoppedError."""
    until = time.monotonic() + seconds
    while not is_shutting_down() and (remaining := until - time.monotonic()) > 0:
        time.sleep(min(remaining, _CHECK_S))
    check_shutdown()


@contextmanager
def recording() -> Iterator[None]:
    """Permit the effects that record a run's results even after a shutdown was requested."""
    _recording.set()
    _under_way.add(1)
    try:
        yield
    finally:
        _under_way.add(-1)
        _recording.clear()


class Failpoints(Struct):
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
        spec, log = environment.get(VARIABLE, ""), environment.get(LOG_VARIABLE)
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


failpoints = Failpoints.of(os.environ)


@contextmanager
def effect(name: str, *, finishes: bool = True) -> Iterator[None]:
    """Mark an effect: a failpoint before it and, if it did not raise, another after it.

    One that `finishes` is waited for after a request to shut down; a read from a server is not.

    Raises: StoppedError if a shutdown was requested; the effect has not begun.
    """
    check_shutdown()
    if failpoints is not None:
        failpoints.reach(f"before {name}")
    if finishes:
        _under_way.add(1)
    try:
        yield
    finally:
        if finishes:
            _under_way.add(-1)
    if failpoints is not None:
        failpoints.reach(f"after {name}")
