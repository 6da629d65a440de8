"""What expansion costs: CPU per variant, growth with targets and objects, memory, hostile expressions.

Run as `python tests/bench/bench_expand.py`. Every figure is CPU time of this process; the table
compares each size with the smallest one, so that it means the same on any machine.
"""

import gc
import subprocess
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
from reconciler.inventory import Inventory  # noqa: E402
from reconciler.krm.yaml import emit  # noqa: E402
from reconciler.plan.deletion_diff import diff_variants  # noqa: E402
from reconciler.policy import Limits  # noqa: E402
from tests.support.git import kptfile, make_repository  # noqa: E402
from tests.support.hostile import HOSTILE  # noqa: E402
from tests.support.sets import FIVE_EXPRESSIONS, KIND, NAMESPACE, fleet, package_set, select  # noqa: E402

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
        desired = expand(inventory)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    assert not desired.problems, desired.problems[:3]
    gc.collect()
    tracemalloc.start()
    expand(inventory)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    seconds, wall = min(times)
    return Row(objects, len(desired.variants), seconds, wall, peak)


def growth() -> list[Row]:
    """Expand one set with five expressions per variant over growing snapshots and selections."""
    rows = []
    for objects, share in ((10_000, 0.1), (10_000, 1.0), (100_000, 0.1)):
        rows.append(measure(fleet(objects, share=share, template=FIVE_EXPRESSIONS), objects))
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


def main() -> int:
    """Print the tables; 1 if a budget is broken."""
    failed = []
    print(f"{'objects':>9} {'targets':>9} {'CPU s':>8} {'wall s':>8} {'us/variant':>11} {'peak MiB':>9}")
    rows = growth()
    for row in rows:
        print(
            f"{row.objects:>9} {row.targets:>9} {row.seconds:>8.3f} {row.wall_s:>8.3f}"
            f" {row.each_us:>11.1f} {row.peak_mib:>9.1f}"
        )
    per_variant = [row.each_us for row in rows]
    check(failed, "cost per variant, ten times the targets", per_variant[1] / per_variant[0], MOST_GROWTH)
    check(failed, "10,000 variants with five expressions, CPU s", rows[1].seconds, BUDGET_VARIANTS_S)
    expansion, difference = no_op()
    print(f"no-op of 10,000: expand {expansion:.3f} s, diff {difference:.3f} s, CPU")
    print(f"reading the same 10,000 objects as JSON, the floor: {reading(10_000):.3f} s CPU")
    print(f"  {one_bad():.3f} s CPU")
    print(f"{'the whole command':<34} {'wall s':>8} {'CPU s':>8} {'peak MiB':>9}")
    for command in whole_command():
        print(f"{command.what:<34} {command.wall_s:>8.2f} {command.cpu_s:>8.2f} {command.peak_mib:>9}")
    print("hostile expressions:")
    for name, seconds, said in hostile():
        print(f"  {name:<34} {seconds * 1e3:>7.1f} ms  {said[:70]}")
        check(failed, f"hostile {name}, s", seconds, BUDGET_HOSTILE_S, quiet=True)
    for line in failed:
        print(f"OVER BUDGET: {line}")
    return 1 if failed else 0


class Command(NamedTuple):
    """One run of the command as a process."""

    what: str
    wall_s: float
    cpu_s: float
    peak_mib: int


def whole_command() -> list[Command]:
    """Run `reconciler expand` on real repositories: nothing to expand, then 10,000 of each snapshot."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for objects, targets in ((10_000, 0), (10_000, 10_000), (100_000, 0), (100_000, 10_000)):
            root = Path(scratch) / f"{objects}-{targets}"
            write_fleet(root, objects, targets)
            rows.append(run_command(f"{objects} objects, {targets} targets", root))
    return rows


def write_fleet(root: Path, objects: int, targets: int) -> None:
    """Make a control repository with one set and a JSON snapshot, an upstream and a downstream."""
    make_repository(root / "blueprints.git", {"app/Kptfile": kptfile("app")}).tag("app/v1")
    make_repository(root / "edge.git", {"README.md": "edge\n"})
    spec = package_set(targets=[select(FIVE_EXPRESSIONS, selected="yes")]).manifest.model_dump(
        by_alias=True, exclude_none=True
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


def run_command(what: str, root: Path) -> Command:
    """Run the command twice, the second time with its mirrors at hand; measure the second."""
    line = [sys.executable, "-m", "reconciler.cli.main", "expand", "-o", "json"]
    line += ["--control", str(root / "control.git"), "--cache-dir", str(root / "cache")]
    measured = [sys.executable, "-c", _MEASURE, *line]
    for _ in range(2):
        start = time.perf_counter()
        done = subprocess.run(measured, cwd=PROJECT, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    cpu, peak = done.stderr.split()[-2:]
    return Command(what, wall, float(cpu), int(peak) // 1024)


_MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def check(failed: list[str], what: str, value: float, most: float, *, quiet: bool = False) -> None:
    """Compare one figure with its budget."""
    if not quiet:
        print(f"{what}: {value:.3f} (at most {most})")
    if value > most:
        failed.append(f"{what}: {value:.3f} is over {most}")


if __name__ == "__main__":
    sys.exit(main())
