"""What starting costs: the version, and the plan of the demo; each a process with its imports.

Run as `python tools/bench/bench_start.py`; CPU time, the best of nine runs that take turns.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bench.goals import Goals
from tools.bench.process import measure

COMMAND = [sys.executable, "-m", "reconciler.cli.main"]


def main() -> int:
    goals = Goals(__file__)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        subprocess.run([*COMMAND, "demo", str(directory / "demo")], check=True, stdout=subprocess.DEVNULL)
        bare = measure([sys.executable, "-c", ""], directory, times=9)
        version = measure([*COMMAND, "--version"], directory, times=9)
        plan = measure(
            [*COMMAND, "plan", "--control", "demo/control", "--cache-dir", "cache"], directory, times=9
        )
    for what, cost in (("the bare interpreter", bare), ("--version", version), ("plan of the demo", plan)):
        print(f"{what:24} {cost.wall_s:6.3f} s wall {cost.cpu_s:6.3f} s CPU {cost.peak_mib:5.0f} MiB")
    goals.cpu("`--version`", version.cpu_s, 0.08)
    goals.cpu("plan of the demo", plan.cpu_s, 0.25)
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
