"""A process that runs commands in forks of itself: a run costs its work, not its imports.

One JSON request per line on standard input, `{"line": [...], "point": "3:kill", "log": "file", "env": {}}`;
the answer is `{"code": ..., "out": ...}`, a negative code being the signal that ended the run. `point` is the
number of a failpoint and one of `FAULTS`; `clock` says by how many seconds the run's clock is off, or `now`
what it says.
"""

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reconciler.base import effects
from reconciler.cli import apply, approve, main, plan, pull_requests  # noqa: F401 - imported once, before forking
from tests.faults.world import BALLAST
from tests.support.world import runs_at

ONE_AT_A_TIME = {"RECONCILER_LIMITS_REPOSITORIES_AT_ONCE": "1"}
"""The n-th point must be the same effect in every run."""
_FEW = 8
_PATIENCE = 500
"""Milliseconds after which a signal counts as lost."""


def kill(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def terminate(_: Path) -> None:
    """Send SIGTERM and wait until its handler, which only the main thread runs, has run.

    A signal that comes just before that thread waits for this one does not wake it: then it is sent again.
    """
    while not effects.requested.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(_PATIENCE):
            if effects.requested.is_set():
                break
            time.sleep(0.001)


def fill_disk(world: Path) -> None:
    """Write a file beside the world until the file system has no free space."""
    step = 1 << 20
    with (world.parent / BALLAST).open("wb", buffering=0) as ballast:
        while step:
            try:
                ballast.write(b"\0" * step)
            except OSError:
                step //= 2


def limit_files(_: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def take_descriptors(_: Path) -> None:
    _leave_descriptors(0)


def leave_few_descriptors(_: Path) -> None:
    _leave_descriptors(_FEW)


def _leave_descriptors(count: int) -> None:
    free = os.dup(0)
    os.close(free)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, hard))


FAULTS: dict[str, Callable[[Path], None]] = {
    "kill": kill,
    "term": terminate,
    "disk": fill_disk,
    "size": limit_files,
    "descriptors": take_descriptors,
    "few-descriptors": leave_few_descriptors,
}


class Armed:
    """In place of the failpoints of a run: they are logged, and at one of them a fault begins."""

    def __init__(self, point: str, log: str, world: Path) -> None:
        number, _, self.fault = point.partition(":")
        self.at = int(number or 0)
        self.world = world
        self.count = 0
        self.lock = threading.Lock()
        # Opened before any fault: a run without descriptors could not open it.
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def reach(self, name: str) -> None:
        with self.lock:
            self.count += 1
            number = self.count
        if number == self.at:
            FAULTS[self.fault](self.world)
        with suppress(OSError):
            os.write(self.log, f"{number} {name}\n".encode())


def run_in_fork(
    line: list[str],
    out: int,
    points: Any,
    environment: Mapping[str, str],
    clock: Callable[[], float] = time.time,
) -> int:
    """Run a command in a fork whose output goes to `out`, by another clock; return the process id."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.clear()
        os.environ.update({**environment, **ONE_AT_A_TIME})
        signal.signal(signal.SIGTERM, main._stop)
        effects.failpoints = points
        time.time = clock
        with runs_at(clock):
            code = main.invoke(line)
        sys.stdout.flush()
    finally:
        os._exit(code)


def _clock(request: Mapping[str, Any]) -> Callable[[], float]:
    clock, off_s, now = time.time, request.get("clock", 0.0), request.get("now")
    if now is not None:
        return lambda: now
    return (lambda: clock() + off_s) if off_s else clock


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    line = request["line"]
    world = Path(line[line.index("--cache-dir") + 1]).parent
    read, write = os.pipe()  # not a file: a limit of file sizes would hold for that too
    points = Armed(request["point"], request["log"], world)
    child = run_in_fork(line, write, points, request["env"], _clock(request))
    os.close(write)
    os.close(points.log)
    with os.fdopen(read, "rb") as reader:
        out = reader.read().decode()
    _, status = os.waitpid(child, 0)
    return {"code": os.waitstatus_to_exitcode(status), "out": out}


def _serve() -> None:
    for request in sys.stdin:
        print(json.dumps(_answer(json.loads(request))), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    _serve()
