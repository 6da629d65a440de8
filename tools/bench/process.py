"""What a command costs as a process: wall and CPU time of it and its children, and its peak memory."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
_RUN = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""A small process between: the memory of a process starts as its parent's."""


class Cost(NamedTuple):
    """What a process and its children took."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def measure(
    command: Sequence[str],
    directory: Path,
    *,
    times: int = 3,
    warm: bool = True,
    code: int = 0,
    project: Path = PROJECT,
) -> Cost:
    """Run a command of a project some times, after one that warms the caches; return the cheapest.

    Raises:
        RuntimeError: It does not exit with the code.
    """
    costs = [_once(command, directory, code, project) for _ in range(times + warm)][warm:]
    return min(costs, key=lambda cost: cost.cpu_s)


def _once(command: Sequence[str], directory: Path, code: int, project: Path) -> Cost:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(project)
    start = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, *command],
        cwd=directory,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - start
    if ended.returncode != code:
        raise RuntimeError(f"{command[0]} failed: {ended.stderr[-2000:]}")
    cpu, peak = ended.stderr.split()[-2:]
    return Cost(wall, float(cpu), int(peak) / 1024)
