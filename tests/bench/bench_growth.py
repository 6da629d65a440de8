"""What runs cost against the size of the fleet, as a table, growth exponents and a picture.

Run as `python tests/bench/bench_growth.py [--picture FILE] [PACKAGES ...]`, by default
1,000, 10,000 and 100,000, of which the last takes some minutes.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.bench_noop import _GIT, _PLAN, settle, write_fleet
from tests.bench.chart import growth_svg
from tests.bench.goals import Goals, slowness
from tests.bench.process import Cost, measure

SIZES = (1_000, 10_000, 100_000)
QUICK_SIZES = (100, 1_000)
FULL = "reconciler plan --full, settled"
PYTHON = [sys.executable, "-c"]
_ANY = _PLAN.replace('"--detailed-exitcode", ', "")
"""A plan that ends with 0 also where something would change."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("sizes", nargs="*", type=int)
    options = parser.parse_args(arguments)
    sizes = sorted(options.sizes or (QUICK_SIZES if options.quick else SIZES))
    goals = Goals(__file__)
    series: dict[str, list[tuple[float, float]]] = {}
    for size in sizes:
        slow, measured = costs(size)
        for name, cost in measured.items():
            series.setdefault(name, []).append((size, cost.cpu_s / slow))
            print(f"{size:9,}  {name:32} {cost.cpu_s / slow:8.3f} s CPU {cost.peak_mib:6.0f} MiB")
        if size == SIZES[-1]:
            goals.cpu("no-op of 100,000 packages", measured[FULL].cpu_s, 1.0, slow=slow)
            goals.at_most("its memory", measured[FULL].peak_mib, 512, "MiB")
    for name, points in series.items():
        (small, first), (large, last) = points[0], points[-1]
        exponent = math.log(last / first) / math.log(large / small)
        if name.startswith("reconciler"):
            goals.at_most(f"growth exponent: {name}", exponent, 1.05, note=f"from {small:,} to {large:,}")
    if options.picture:
        title = "CPU time of runs by the size of the fleet"
        options.picture.write_text(growth_svg(series, title), encoding="utf-8")
    return goals.finish()


def costs(size: int) -> tuple[float, dict[str, Cost]]:
    """Return how slow the machine was, and what runs over a fleet of a size cost."""
    found = {}
    with TemporaryDirectory(prefix="growth-") as name:
        directory = Path(name)
        write_fleet(directory, size)
        found["reconciler plan, all new"] = measure([*PYTHON, _ANY], directory, times=1)
    with TemporaryDirectory(prefix="growth-") as name:
        directory = Path(name)
        settle(directory, size)
        slow = slowness()
        found[FULL] = measure([*PYTHON, _PLAN, "--full"], directory)
        found["reconciler plan, nothing changed"] = measure([*PYTHON, _PLAN], directory)
        found["git for-each-ref, ls-tree"] = measure(["sh", "-c", _GIT], directory)
    return slow, found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
