"""What `approve --all` costs on the local forge, with a pull request for every package.

Run as `python tests/bench/bench_approve.py [PACKAGES]`, by default 2000; CPU time of the process and of git.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.run.apply import apply_plan
from reconciler.run.inputs import RunOptions
from reconciler.run.plan import plan_run
from tests.bench.bench_noop import write_fleet
from tests.bench.goals import Goals
from tests.bench.process import measure


def main(count: int) -> int:
    goals = Goals(__file__)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_fleet(directory, count)
        outcome = apply_plan(plan_run(RunOptions(str(directory / "control.git"), directory / "cache")))
        assert not [effect for effect in outcome.effects if effect.error], outcome
        line = ["approve", "--all", "--control", "control.git", "--cache-dir", "cache"]
        cost = measure([sys.executable, "-m", "reconciler.cli.main", *line], directory, times=1, warm=False)
    print(
        f"approve --all of {count}: {cost.wall_s:.1f} s wall, {cost.cpu_s:.1f} s CPU, {cost.peak_mib:.0f} MiB"
    )
    goals.cpu("`approve --all` of 2,000 packages", cost.cpu_s * 2000 / count, 5)
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 2000))
