"""Failpoints: places where a test can count the effects of a run, or end it.

Armed by the environment of a whole process, read once. `RECONCILER_FAILPOINT=<n>:kill` ends the
process with SIGKILL at point number n (from 1), `<n>:raise` raises there; every effect has a point
before it and one after it. `RECONCILER_FAILPOINT_LOG=<file>` appends one line per point passed.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.errors import UnavailableError
from reconciler.git import stopping

VARIABLE = "RECONCILER_FAILPOINT"
LOG_VARIABLE = "RECONCILER_FAILPOINT_LOG"


@dataclass(slots=True)
class Points:
    """The armed points of one process, counted from 1 in the order in which they are reached."""

    at: int = 0
    action: str = ""
    log: Path | None = None
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Points | None":
        """Return the points that an environment arms, None if it arms nothing.

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


_points = Points.of(os.environ)


def failpoint(name: str) -> None:
    """Mark one place before or after an effect; free where nothing is armed."""
    if _points is not None:
        _points.reach(name)


@contextmanager
def effect(name: str) -> Iterator[None]:
    """Mark an effect: one point before it and, if it did not raise, one after it.

    Raises: StoppedError if the process was asked to end; nothing was begun.
    """
    stopping.check()
    failpoint(f"before {name}")
    yield
    failpoint(f"after {name}")
