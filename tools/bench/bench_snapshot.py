"""Reading a snapshot of 100,000 objects, against orjson that only parses it.

Run as `python tools/bench/bench_snapshot.py [OBJECTS] [--quick]`; CPU time, and peak memory of a
process of its own.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.git.repository import Mirrors
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.policy import Policy
from reconciler.read.snapshot import read_snapshot
from tools.bench.goals import Goals, is_quick

LIMIT = 0.8
"""Reading may cost at most this share of what orjson needs to build every object."""


def objects(count: int) -> list[dict[str, object]]:
    return [
        {
            "apiVersion": "infra.example.com/v1",
            "kind": "Cluster",
            "metadata": {
                "name": f"cluster-{n:06}",
                "namespace": "default",
                "uid": f"6f0f5f4e-0000-4000-8000-{n:012}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"region": f"r{n % 7}", "tier": "edge", "site": f"s{n}"},
                "annotations": {"example.com/owner": f"team-{n % 13}"},
            },
            "spec": {"nodes": [{"size": 1, "zone": "a"}] * 3, "network": {"cidr": "10.0.0.0/8"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        for n in range(count)
    ]


def create(directory: Path, count: int) -> None:
    value = {"apiVersion": "v1", "items": objects(count), "kind": "List"}
    data = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    create_bare(
        directory / "control.git", [NewCommit("objects", {"snapshot/clusters.json": data}, 1_700_000_000)]
    )


def measure(what: str, directory: Path) -> None:
    mirror = Mirrors(directory / "cache").open(str(directory / "control.git"))
    commit = mirror.refs()["refs/heads/main"]
    before = peak_kib()
    start = time.process_time()
    if what == "orjson":
        blob = mirror.blob_at(commit, "snapshot/clusters.json")
        assert blob
        found = len(orjson.loads(mirror.blob(blob, 1 << 30))["items"])
    elif what == "snapshot":
        found = len(read_snapshot(mirror, commit, Policy()).of_kind("infra.example.com/v1", "Cluster"))
    else:
        found = 0
    cpu = time.process_time() - start
    sys.stdout.write(json.dumps({"cpu": cpu, "mib": (peak_kib() - before) / 1024, "objects": found}))


def peak_kib() -> int:
    """Return the peak memory of this process alone; getrusage would count the parent's before the exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        create(directory, count)
        rows = {}
        for what in ("nothing", "orjson", "snapshot"):
            command = [sys.executable, __file__, "--measure", what, name]
            runs = [json.loads(subprocess.check_output(command)) for _ in range(3)]
            rows[what] = min(runs, key=lambda r: r["cpu"])
        print(f"{'':10} {'CPU s':>8} {'MiB':>6} {'objects':>9}")
        for what, row in rows.items():
            print(f"{what:10} {row['cpu']:8.3f} {row['mib']:6.0f} {row['objects']:9}")
        ratio = rows["snapshot"]["cpu"] / rows["orjson"]["cpu"]
    goals = Goals(__file__)
    goals.at_most("reading a snapshot, against orjson that parses it", ratio, LIMIT, "x")
    if not is_quick():
        goals.at_most("memory of 100,000 objects", rows["snapshot"]["mib"] * 100_000 / count, 256, "MiB")
    return goals.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        counts = [int(argument) for argument in sys.argv[1:] if argument != "--quick"]
        sys.exit(main(counts[0] if counts else 30_000 if is_quick() else 100_000))
