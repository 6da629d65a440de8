"""What expansion costs: CPU per variant, growth with targets and objects, memory, hostile expressions.

Run as `python tools/bench/bench_expand.py [--quick]`. Every figure is CPU time of this process; the table
compares each size with the smallest one, so that it means the same on any machine.
"""

import gc
import math
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import orjson

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from reconciler.api.porch import REPOSITORY  # noqa: E402
from reconciler.cel import Environment, Failure  # noqa: E402
from reconciler.expand import expand  # noqa: E402
from reconciler.inventory.inventory import Inventory  # noqa: E402
from reconciler.krm.yaml import emit  # noqa: E402
from reconciler.plan.set_diff import diff_variants  # noqa: E402
from reconciler.policy import Limits  # noqa: E402
from tests.support.git import kptfile, make_repository  # noqa: E402
from tests.support.hostile import HOSTILE  # noqa: E402
from tests.support.sets import FIVE_EXPRESSIONS, KIND, NAMESPACE, fleet, package_set, select  # noqa: E402
from tools.bench.goals import Goals, is_quick  # noqa: E402
from tools.bench.process import Cost  # noqa: E402
from tools.bench.process import measure as measure_process  # noqa: E402

BUDGET_VARIANTS_S = 1.0
BUDGET_HOSTILE_S = 0.1
MOST_GROWTH = 1.6
"""How much dearer a variant may get when there are ten times as many."""


class Row(NamedTuple):
    """One size: objects in the snapshot, targets selected, CPU seconds, seconds per variant."""

    objects: int
    targets: int
    seconds: float
    wall_s: float
    peak_mib: float

    @property
    def each_us(self) -> float:
        return self.seconds / max(self.targets, 1) * 1e6


def measure(inventory: Inventory, objects: int, repeat: int = 3) -> Row:
    """Return the best of some runs; memory is measured in a run of its own."""
    times = []
    for _ in range(repeat):
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        expand(inventory)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    gc.collect()
    tracemalloc.start()
    desired = expand(inventory)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    assert not desired.problems, desired.problems[:3]
    seconds, wall = min(times)
    return Row(objects, len(desired.variants), seconds, wall, peak)


def growth() -> list[Row]:
    """Expand one set with five expressions per variant over growing snapshots and selections."""
    rows = []
    sizes = ((10_000, 0.1), (10_000, 1.0), (100_000, 0.1), (100_000, 1.0))
    for objects, share in sizes[:2] if is_quick() else sizes:
        rows.append(
            measure(
                fleet(objects, share=share, template=FIVE_EXPRESSIONS),
                objects,
                3 if share * objects < 100_000 else 1,
            )
        )
    return rows


def no_op() -> tuple[float, float]:
    """Return the CPU seconds of a set diff where every record equals what is desired, and of expanding."""
    inventory = fleet(10_000, share=1.0, template=FIVE_EXPRESSIONS, recorded=True)
    start = time.process_time()
    desired = expand(inventory)
    middle = time.process_time()
    diff = diff_variants(desired, inventory)
    end = time.process_time()
    assert len(diff.keep) == 10_000, len(diff.keep)
    return middle - start, end - middle


def reading(objects: int) -> float:
    """Return the CPU seconds to parse the same objects as JSON: the floor under any expansion of them."""
    data = orjson.dumps(
        [
            {"metadata": {"name": f"o{i}", "labels": {"a": "b", "n": str(i)}, "annotations": {}}}
            for i in range(objects)
        ]
    )
    start = time.process_time()
    orjson.loads(data)
    return time.process_time() - start


def one_bad() -> float:
    """Return the CPU seconds of a set of 10,000 targets of which one is bad."""
    inventory = fleet(10_000, share=1.0, template=FIVE_EXPRESSIONS, bad=7777)
    start = time.process_time()
    desired = expand(inventory)
    seconds = time.process_time() - start
    assert not desired.variants
    (problem,) = desired.problems
    print(f"one bad target of 10,000: {problem}")
    return seconds


def hostile() -> list[tuple[str, float, str]]:
    """Return every hostile expression with its CPU seconds and what was said to it."""
    expressions = Environment(Limits())
    expressions.run("'warm' + 'up'", {})
    found = []
    for name, text, inputs in HOSTILE:
        start = time.process_time()
        result = expressions.run(text, inputs)
        seconds = time.process_time() - start
        said = result.message if isinstance(result, Failure) else f"answered with {len(result)} characters"
        found.append((name, seconds, said))
    return found


def growth_exponent(fewer: Row, more: Row) -> float:
    """Return the power of the number of targets with which the time grows: 1 is linear."""
    return math.log(more.seconds / fewer.seconds) / math.log(more.targets / fewer.targets)


def expression_us() -> float:
    """Return the CPU time of an expression with another value for each variant, in microseconds."""
    two = {"downstream": FIVE_EXPRESSIONS["downstream"]}
    more = [{"key": f"k{n}", "valueExpr": f"'v{n}-' + target.name"} for n in range(5)]
    fewer = measure(fleet(10_000, share=1.0, template=two), 10_000)
    all_seven = measure(fleet(10_000, share=1.0, template={**two, "labelExprs": more}), 10_000)
    return (all_seven.each_us - fewer.each_us) / 5


def main() -> int:
    """Print the tables, then the goals; 1 unless all are met."""
    goals = Goals(__file__)
    print(f"{'objects':>9} {'targets':>9} {'CPU s':>8} {'wall s':>8} {'us/variant':>11} {'peak MiB':>9}")
    rows = growth()
    for row in rows:
        print(
            f"{row.objects:>9} {row.targets:>9} {row.seconds:>8.3f} {row.wall_s:>8.3f}"
            f" {row.each_us:>11.1f} {row.peak_mib:>9.1f}"
        )
    goals.at_most("cost of a variant, ten times as many", rows[1].each_us / rows[0].each_us, MOST_GROWTH)
    if not is_quick():
        goals.at_most("growth exponent of expansion to 10,000 targets", growth_exponent(*rows[:2]), 1.05)
        goals.at_most("the same to 100,000 targets", growth_exponent(rows[1], rows[3]), 1.05)
        goals.cpu("10,000 variants with five expressions", rows[1].seconds, BUDGET_VARIANTS_S)
        goals.cpu("one CEL expression of a template", expression_us(), 12.0, "us")
    expansion, difference = no_op()
    print(f"no-op of 10,000: expand {expansion:.3f} s, diff {difference:.3f} s, CPU")
    print(f"reading the same 10,000 objects as JSON, the floor: {reading(10_000):.3f} s CPU")
    print(f"  {one_bad():.3f} s CPU")
    print("hostile expressions:")
    slowest = 0.0
    for name, seconds, said in hostile():
        print(f"  {name:<34} {seconds * 1e3:>7.1f} ms  {said[:70]}")
        slowest = max(slowest, seconds)
    goals.cpu("the slowest hostile expression", slowest, BUDGET_HOSTILE_S)
    if not is_quick():
        print(f"{'the whole command':<34} {'wall s':>8} {'CPU s':>8} {'peak MiB':>9}")
        costs = whole_command()
        for what, cost in costs.items():
            print(f"{what:<34} {cost.wall_s:>8.2f} {cost.cpu_s:>8.2f} {cost.peak_mib:>9.0f}")
        *_, expanded, planned = costs.values()
        goals.cpu("10,000 variants out of 100,000 objects, expanded", expanded.cpu_s, 3.0)
        goals.cpu("the same, planned from nothing", planned.cpu_s, 3.0)
        goals.at_most("memory of that plan", planned.peak_mib, 256, "MiB")
    return goals.finish()


def whole_command() -> dict[str, Cost]:
    """Run `reconciler expand` on real repositories: nothing to expand, then 10,000 of each snapshot."""
    line = [sys.executable, "-m", "reconciler.cli.main", "expand", "-o", "json"]
    costs, root = {}, Path()
    with tempfile.TemporaryDirectory() as scratch:
        for objects, targets in ((10_000, 0), (10_000, 10_000), (100_000, 0), (100_000, 10_000)):
            root = Path(scratch) / f"{objects}-{targets}"
            write_fleet(root, objects, targets)
            command = [*line, "--control", str(root / "control.git"), "--cache-dir", str(root / "cache")]
            costs[f"{objects} objects, {targets} targets"] = measure_process(command, root, times=1)
        plan = [
            sys.executable,
            "-m",
            "reconciler.cli.main",
            "plan",
            "-q",
            "--control",
            str(root / "control.git"),
        ]
        costs["the last one, planned from nothing"] = measure_process(
            [*plan, "--cache-dir", str(root / "new-cache")], root, times=1, warm=False
        )
    return costs


def write_fleet(root: Path, objects: int, targets: int) -> None:
    """Make a control repository with one set and a JSON snapshot, an upstream and a downstream."""
    make_repository(root / "blueprints.git", {"app/Kptfile": kptfile("app")}).tag("app/v1")
    make_repository(root / "edge.git", {"README.md": "edge\n"})
    spec = package_set(targets=[select(FIVE_EXPRESSIONS, selected="yes")]).manifest.model_dump(
        exclude_none=True
    )
    items = [
        {
            "apiVersion": KIND[0],
            "kind": KIND[1],
            "metadata": {
                "name": f"cluster-{n:06}",
                "namespace": NAMESPACE,
                "labels": {"region": f"r{n % 7}", "selected": "yes" if n < targets else "no"},
            },
        }
        for n in range(objects)
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    header = {
        "apiVersion": "reconciler.dev/v1alpha1",
        "kind": "Snapshot",
        "metadata": {"name": "bench"},
        "spec": {
            "lists": [
                {
                    "group": "example.dev",
                    "kind": "Cluster",
                    "namespace": NAMESPACE,
                    "count": objects,
                    "complete": True,
                }
            ]
        },
    }
    config = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Reconciler", "metadata": {"name": "bench"}}
    config["spec"] = {"manifests": ["manifests"], "snapshot": {"path": "snapshot"}}
    files = {
        "reconciler.yaml": emit(config),
        "manifests/set.yaml": emit(spec),
        "snapshot/snapshot.yaml": emit(header),
        "snapshot/clusters.json": orjson.dumps(listed).decode(),
    }
    for name in ("blueprints", "edge"):
        git = {"repo": f"../{name}.git", "branch": "main"}
        view = {
            "apiVersion": REPOSITORY,
            "kind": "Repository",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        files[f"manifests/{name}.yaml"] = emit({**view, "spec": {"type": "git", "git": git}})
    make_repository(root / "control.git", files)


if __name__ == "__main__":
    sys.exit(main())
