"""How the cost of runs grows with the clusters of a fleet of real packages, beside git that only lists refs.

Run as `python tools/bench/bench_growth.py [--picture FILE] [CLUSTERS ...]`, by default 10, 50 and 250
clusters with the packages of `bench_fleet`. CPU time is divided by the slowness of the machine meanwhile.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bench.bench_fleet import ECOSYSTEM, World, is_missing, packages
from tools.bench.chart import growth_svg
from tools.bench.goals import Goals, slowness
from tools.bench.process import Cost, measure

CLUSTERS = (10, 50, 250)
GIT = "for r in *.git; do git -C $r for-each-ref; git -C $r ls-tree -r -t main; done >/dev/null"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("clusters", nargs="*", type=int)
    options = parser.parse_args(arguments)
    goals = Goals(__file__)
    if is_missing(goals):
        return goals.finish()
    series: dict[str, list[tuple[float, float]]] = {}
    memory: dict[str, list[float]] = {}
    for clusters in sorted(options.clusters or CLUSTERS):
        for variants, name, cost in costs(clusters):
            seconds = cost.cpu_s / slowness()
            series.setdefault(name, []).append((variants, seconds))
            memory.setdefault(name, []).append(cost.peak_mib)
            print(f"{variants:9,}  {name:32} {seconds:8.3f} s CPU {cost.peak_mib:6.0f} MiB", flush=True)
    for name, points in series.items():
        if name == "git" or len(points) == 1:
            continue
        (small, first), (large, last) = points[0], points[-1]
        exponent = math.log(last / first) / math.log(large / small)
        goals.at_most(f"growth exponent: {name}", exponent, 1.05, note=f"from {small:,} to {large:,}")
        each = (memory[name][-1] - memory[name][0]) * 1024 / (large - small)
        goals.at_most(f"memory for each variant: {name}", each, 30, "KiB")
    if options.picture:
        title = "CPU time of runs by the size of the fleet"
        options.picture.write_text(growth_svg(series, title), encoding="utf-8")
    return goals.finish()


def costs(clusters: int) -> Iterator[tuple[int, str, Cost]]:
    """Yield how many variants a fleet has, and what each kind of run over it costs."""
    with TemporaryDirectory(prefix="growth-") as name:
        world = World(Path(name), clusters, packages(ECOSYSTEM))
        variants = clusters * len(world.packages)
        yield variants, "plan, all new", world.run("plan")
        world.run("apply")
        yield variants, "plan, all in review", world.run("plan")
        world.run("approve", "--all")
        world.run("apply")
        yield variants, "plan, settled", world.run("plan")
        yield variants, "git", measure(["sh", "-c", GIT], world.root)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
