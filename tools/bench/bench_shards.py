"""What four shards cost beside one run: a fleet's first drafts, each shard as a process of its own.

Run as `python tools/bench/bench_shards.py [PACKAGES]`, by default 2000 in 40 Git repositories. The refs of
the shards must be those of the one run, byte for byte; branches of records are compared by their content.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.git.working_copy import NewCommit, create_bare
from tools.bench.bench_fleet import EPOCH, HEAD, PORCH, START
from tools.bench.goals import Goals
from tools.bench.process import Cost, measure

REPOSITORIES = 40
SHARDS = 4
MACHINE = "refs/heads/reconciler/"


def main(count: int) -> int:
    goals = Goals(__file__)
    base = Path(tempfile.mkdtemp(prefix="shards-"))
    try:
        # The division depends on the path: both fleets are made at the same place.
        fleet = base / "fleet"
        write_fleet(fleet, count // REPOSITORIES)
        whole = apply(fleet, "0/1")
        expected = everything(fleet)
        shutil.rmtree(fleet)
        write_fleet(fleet, count // REPOSITORIES)
        start = time.perf_counter()
        jobs = [
            subprocess.Popen(command(f"{index}/{SHARDS}"), cwd=fleet, stdout=subprocess.DEVNULL)
            for index in range(SHARDS)
        ]
        codes = [job.wait() for job in jobs]
        beside = time.perf_counter() - start
        assert codes == [0] * SHARDS, codes
        assert everything(fleet) == expected, "the refs of the shards are others"
        shutil.rmtree(fleet)
        write_fleet(fleet, count // REPOSITORIES)
        parts = [apply(fleet, f"{index}/{SHARDS}") for index in range(SHARDS)]
        assert everything(fleet) == expected, "the refs of the shards are others"
    finally:
        shutil.rmtree(base, ignore_errors=True)
    show("one run", whole)
    for index, part in enumerate(parts):
        show(f"shard {index}/{SHARDS}", part)
    print(f"{SHARDS} shards side by side: {beside:.1f} s wall")
    largest, total = max(part.cpu_s for part in parts), sum(part.cpu_s for part in parts)
    goals.at_most(f"the largest of {SHARDS} shards against one run", largest / whole.cpu_s, 0.6)
    goals.at_most(f"{SHARDS} shards together against one run", total / whole.cpu_s, 2)
    goals.at_most("memory of a shard against one run", max(p.peak_mib for p in parts) / whole.peak_mib, 1.0)
    return goals.finish()


def show(what: str, cost: Cost) -> None:
    print(f"{what:12} {cost.wall_s:6.1f} s wall {cost.cpu_s:6.1f} s CPU {cost.peak_mib:5.0f} MiB")


def command(shard: str) -> list[str]:
    line = ["apply", "--control", "control.git", "--shard", shard, "--cache-dir", f"cache-{shard[0]}"]
    return [sys.executable, "-m", "reconciler.cli.main", *line]


def apply(fleet: Path, shard: str) -> Cost:
    return measure(command(shard), fleet, times=1, warm=False)


def everything(fleet: Path) -> dict[str, str]:
    """Return every ref; of branches of records the tree, because their history is each run's own."""
    found = {}
    for path in sorted(fleet.glob("*.git")):
        show_refs = ["git", "for-each-ref", "--format=%(refname) %(objectname) %(tree)"]
        listed = subprocess.run(show_refs, cwd=path, capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            ref, oid, *tree = line.split()
            found[f"{path.name} {ref}"] = tree[0] if ref.startswith(MACHINE) and tree else oid
    return found


def write_fleet(directory: Path, packages: int) -> None:
    """Make a fleet that is not deployed yet: so many packages in each of the Git repositories."""
    directory.mkdir()
    files = {
        "web/Kptfile": HEAD.format("kpt.dev/v1", "Kptfile", "web"),
        "web/app.yaml": HEAD.format("v1", "ConfigMap", "app"),
    }
    upstream = {path: text.encode() for path, text in files.items()}
    create_bare(directory / "blueprints.git", [NewCommit("Release", upstream, EPOCH, ("web/v1",))])
    names = [f"c-{number:02}" for number in range(REPOSITORIES)]
    for name in names:
        create_bare(directory / f"{name}.git", [START])
    create_bare(directory / "control.git", [NewCommit("Describe", dict(_control(names, packages)), EPOCH)])


def _control(names: list[str], packages: int) -> Iterator[tuple[str, bytes]]:
    spec = "spec:\n  manifests:\n  - manifests\n"
    yield "reconciler.yaml", (HEAD.format("reconciler.dev/v1alpha1", "Reconciler", "fleet") + spec).encode()
    registered = [_repository(name) for name in ("blueprints", *names)]
    yield "manifests/repositories.yaml", "---\n".join(registered).encode()
    wanted = "".join(f"      - p{number}\n" for number in range(packages))
    targets = "".join(f"    - name: {name}\n      packageNames:\n{wanted}" for name in names)
    head = HEAD.format(f"{PORCH}v1alpha2", "PackageVariantSet", "web")
    source = "spec:\n  upstream:\n    repo: blueprints\n    package: web\n    revision: 1\n"
    yield "manifests/web.yaml", f"{head}{source}  targets:\n  - repositories:\n{targets}".encode()


def _repository(name: str) -> str:
    head = HEAD.format(f"{PORCH}v1alpha1", "Repository", name)
    return f"{head}spec:\n  type: git\n  git:\n    repo: ../{name}.git\n"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 2000))
