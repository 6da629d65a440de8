"""What a large fleet of real packages costs: 40 packages of Nephio on 50 clusters, large CRDs among them.

Run as `python tools/bench/bench_fleet_large.py [--before CHECKOUT] [--clusters NUMBER]`, with the packages in
RECONCILER_ECOSYSTEM. There are not 40 public packages with two revisions: each revision and the next one is a
package of its own here. With another checkout, which has a `.venv`, both run the same steps twice in turns.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bench.bench_fleet import (
    CLUSTERS,
    ECOSYSTEM,
    Packages,
    is_missing,
    life,
    many_packages,
    show_floors,
)
from tools.bench.goals import Goals
from tools.bench.process import PROJECT

LIMITS = {
    "plan from nothing": (7.0, 280),
    "apply": (12.0, 280),
    "`approve --all`": (8.0, 280),
    "settled": (1.6, 280),
    "one package to its next revision: plan": (2.5, 280),
    "one package to its next revision: apply": (4.0, 280),
    "all packages to their next revision: plan": (20.0, 500),
    "all packages to their next revision: apply": (25.0, 500),
}
"""In seconds and MiB."""


def show_both(before: Path, clusters: int, chosen: Packages) -> None:
    """Print the least that each step took in two checkouts, which run in turns."""
    least: dict[tuple[str, Path], float] = {}
    for project in (before, PROJECT, PROJECT, before):
        with tempfile.TemporaryDirectory() as name:
            costs, _ = life(Path(name), clusters, chosen, counted=False, project=project)
        for what, cost in costs.items():
            least[what, project] = min(cost.cpu_s, least.get((what, project), cost.cpu_s))
    print(f"{len(chosen)} packages on {clusters} clusters, CPU seconds: before, now")
    for what in LIMITS:
        print(f"{what}: {least[what, before]:.1f}, {least[what, PROJECT]:.1f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--clusters", type=int, default=CLUSTERS[-1])
    options = parser.parse_args()
    goals = Goals(__file__)
    if is_missing(goals):
        return goals.finish()
    chosen = many_packages(ECOSYSTEM)
    if options.before is not None:
        show_both(options.before.resolve(), options.clusters, chosen)
        return 0
    with tempfile.TemporaryDirectory() as name:
        costs, _ = life(Path(name), CLUSTERS[-1], chosen, counted=False)
    show_floors(chosen)
    print(f"{len(chosen)} packages on {CLUSTERS[-1]} clusters")
    for what, (seconds, mib) in LIMITS.items():
        goals.cpu(what, costs[what].cpu_s, seconds)
        goals.at_most(f"memory: {what}", costs[what].peak_mib, mib, "MiB")
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
