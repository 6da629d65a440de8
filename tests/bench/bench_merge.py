"""Package updates: one, a fleet after an upstream bump, and ten thousand that share nothing; beside kpt.

Run as `python tests/bench/bench_merge.py [--packages N]`. kpt is measured where it is
installed. It is a process per package with two fetches each, we are one process for all: the ratio is
architectural.
"""

import argparse
import hashlib
import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from reconciler.names.objects import File, Files  # noqa: E402
from reconciler.policy import OnConflict  # noqa: E402
from reconciler.render.update import MergeCache, UpstreamRef, update_package  # noqa: E402
from tests.bench.goals import Goals, slowness  # noqa: E402

ORACLE = PROJECT.parent / "shared" / "tools" / "kpt_oracle.py"
KPTFILE = (
    "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\ninfo:\n  description: a package\n"
)
FOLLOWS = (
    "upstream:\n  type: git\n  git:\n    repo: https://example.com/up\n    directory: /pkg\n    ref: v1\n"
    "  updateStrategy: resource-merge\n"
    "upstreamLock:\n  type: git\n  git:\n    repo: https://example.com/up\n    directory: /pkg\n    ref: v1\n"
    f"    commit: {'1' * 40}\n"
)
NEW = UpstreamRef("https://example.com/up", "/pkg", "v2", "2" * 40)


def deployment(name: str, *, image: str = "app:1", replicas: int = 1, extra: str = "") -> str:
    """Return a Deployment of about two kilobytes."""
    env = "".join(f"        - name: VARIABLE_{n}\n          value: value number {n}\n" for n in range(14))
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n"
        f"  labels:\n    app: {name}\n{extra}spec:\n  replicas: {replicas} # kpt-set: ${{replicas}}\n"
        f"  selector:\n    matchLabels:\n      app: {name}\n"
        f"  template:\n    metadata:\n      labels:\n        app: {name}\n    spec:\n      containers:\n"
        f"      - name: app\n        image: {image}\n        ports:\n        - containerPort: 8080\n"
        f"          protocol: TCP\n        env:\n{env}        resources:\n          limits:\n"
        f"            cpu: 500m\n            cache: 512Mi\n"
        "      volumes:\n      - name: data\n        emptyDir: {}\n"
    )


def service(name: str, port: int = 80) -> str:
    return (
        f"apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  selector:\n    app: {name}\n"
        f"  ports:\n  - port: {port}\n    targetPort: 8080\n    protocol: TCP\n"
    )


def files(texts: dict[str, str]) -> dict[str, File]:
    return {path: File.of(text.encode()) for path, text in texts.items()}


def blueprint(version: int) -> dict[str, str]:
    """Return ten resources in five files and a Kptfile; a new version touches two of the files."""
    texts = {"Kptfile": KPTFILE.format(name="pkg")}
    for n in range(5):
        changed = version > 1 and n < 2
        text = deployment(f"app{n}", image=f"app:{version if changed else 1}")
        texts[f"app{n}.yaml"] = text + "---\n" + service(f"app{n}", 81 if changed else 80)
    return texts


def fleet(count: int, drifted: float, variants: int = 5) -> list[Files]:
    """Return `count` downstream packages; a share of them has one of a few local edits."""
    base = blueprint(1)
    plain = files({name: text for name, text in base.items() if name != "Kptfile"})
    edited = []
    for variant in range(variants):
        texts = {"app0.yaml": deployment("app0", replicas=2 + variant) + "---\n" + service("app0")}
        edited.append({**plain, **files(texts)})
    every = round(1 / drifted)
    packages: list[Files] = []
    for n in range(count):
        content = edited[n // every % variants] if n % every == 0 else plain
        kptfile = File.of((KPTFILE.format(name=f"pkg-{n}") + FOLLOWS).encode())
        packages.append({**content, "Kptfile": kptfile})
    return packages


def update_all(packages: list[Files], original: Files, upstream: Files) -> int:
    cache = MergeCache()
    changed = 0
    for local in packages:
        done = update_package(
            original, upstream, local, on_conflict=OnConflict.UPSTREAM, new_upstream=NEW, cache=cache
        )
        changed += done.files != local
    return changed


def unique(start: int, end: int) -> list[tuple[Files, Files, Files]]:
    """Return the sides of packages that share no file at all: nothing can be remembered."""
    sides = []
    for n in range(start, end):
        texts = [
            deployment(f"app{n}"),
            deployment(f"app{n}", image="app:2"),
            deployment(f"app{n}", replicas=3, extra=f"  annotations:\n    note: mine {n}\n"),
        ]
        sides.append(tuple(files({"r.yaml": text}) for text in texts))
    return sides  # type: ignore[return-value]


def merge_unique(part: tuple[int, int]) -> tuple[int, float]:
    """Merge a share of the unique packages, in a process of its own; return how many, and its CPU seconds."""
    start, count = part
    sides = unique(start, start + count)
    began = time.process_time()
    cache = MergeCache()
    done = 0
    for original, upstream, local in sides:
        result = update_package(original, upstream, local, cache=cache)
        done += b"app:2" in result.files["r.yaml"].data and b"replicas: 3" in result.files["r.yaml"].data
    return done, time.process_time() - began


class Kpt:
    """One package update by the real kpt, again and again; a process with two fetches each."""

    def __init__(self, scratch: Path) -> None:
        sys.path.insert(0, str(ORACLE.parent))
        from kpt_oracle import Workspace

        (scratch / "sides").mkdir()
        self.space = Workspace(*write_sides(scratch / "sides"), root=scratch / "space")

    def prepare(self) -> None:
        self.space.prepare()

    def run(self) -> Any:
        return self.space.update()


def update_in_a_process(sides: tuple[Path, ...], output: Path) -> None:
    """Run one `package update` as a process, interpreter and imports included."""
    shutil.rmtree(output, ignore_errors=True)
    command = [
        sys.executable,
        "-c",
        "from reconciler.cli.main import entrypoint; entrypoint()",
        "package",
        "update",
    ]
    for name, side in zip(("original", "upstream", "local"), sides, strict=True):
        command += [f"--{name}", str(side)]
    command += ["--out-dir", str(output), "--ref", "v2", "--commit", "2a" * 20]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode())


def write_sides(scratch: Path) -> tuple[Path, Path, Path]:
    edited = {**blueprint(1), "app0.yaml": deployment("app0", replicas=4) + "---\n" + service("app0")}
    for name, texts in (("original", blueprint(1)), ("upstream", blueprint(2)), ("local", edited)):
        (scratch / name).mkdir()
        for path, text in texts.items():
            (scratch / name / path).write_text(text)
    return scratch / "original", scratch / "upstream", scratch / "local"


def busy() -> float:
    """Return the CPU seconds of this process and of all that it waited for."""
    return sum(
        u.ru_utime + u.ru_stime
        for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def measure(work: Callable[[], Any], share: int = 1) -> tuple[float, float]:
    """Return wall and CPU seconds of `work`, each divided by `share`."""
    wall, cpu = time.perf_counter(), busy()
    work()
    return (time.perf_counter() - wall) / share, (busy() - cpu) / share


def compare(count: int, rounds: int, scratch: Path, *, with_kpt: bool) -> dict[str, tuple[float, float]]:
    """Measure fleet, process and kpt in turns, so that a busy machine is busy for all; return medians."""
    original, upstream = files(blueprint(1)), files(blueprint(2))
    chunk = max(count // rounds, 1)
    packages = fleet(chunk * rounds, drifted=0.1)
    sides = write_sides(scratch)
    kpt = None
    if with_kpt:
        (scratch / "kpt").mkdir()
        kpt = Kpt(scratch / "kpt")
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(rounds):
        part = packages[turn * chunk : (turn + 1) * chunk]
        found.setdefault("fleet", []).append(
            measure(lambda part=part: update_all(part, original, upstream), chunk)
        )
        found.setdefault("floor", []).append((floor_us(), slowness()))
        found.setdefault("process", []).append(measure(lambda: update_in_a_process(sides, scratch / "out")))
        if kpt is not None:
            kpt.prepare()
            found.setdefault("kpt", []).append(measure(kpt.run))
    return {name: (median(t[0] for t in times), median(t[1] for t in times)) for name, times in found.items()}


def unique_cpu_s(count: int) -> float:
    """Return the CPU seconds of the slower of two processes that merge packages that share nothing."""
    halves = [(0, count // 2), (count // 2, count - count // 2)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        parts = pool.map(merge_unique, halves)
    assert sum(done for done, _ in parts) == count
    return max(cpu for _, cpu in parts)


def floor_us(packages: int = 200) -> float:
    """Return the CPU time that hashing, packing and reading the objects of one bump takes, at least.

    A bump reads two objects of a package and writes five: two files, the package's tree and its parent's,
    and a commit.
    """
    data = deployment("app", image="app:2").encode()
    packed = zlib.compress(data, 1)
    start = time.process_time()
    for _ in range(packages):
        for _ in range(2):
            zlib.decompress(packed)
        for _ in range(5):
            hashlib.sha1(data, usedforsecurity=False).digest()
            zlib.compress(data, 1)
    return (time.process_time() - start) / packages * 1e6


def why_without_kpt() -> str:
    """Return why kpt cannot be measured, empty if it can."""
    if shutil.which("kpt") is None:
        return "the command `kpt` is not in PATH"
    return "" if ORACLE.is_file() else f"{ORACLE} is not there: it runs kpt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    count, why = options.packages, why_without_kpt()
    with tempfile.TemporaryDirectory() as scratch:
        medians = compare(count, options.rounds, Path(scratch), with_kpt=not why)
    names = {
        "fleet": f"one package of a fleet of {count}, 10 % drifted, after a bump",
        "process": "one `reconciler package update` of ten resources, as a process",
        "kpt": "one `kpt pkg update` of the same, always a process with two fetches",
    }
    print(f"{'medians of turns':66} {'wall':>10} {'cpu':>10}")
    for name, label in names.items():
        wall, cpu = medians.get(name, (0.0, 0.0))
        print(f"{label:66} {wall * 1e6:7.0f} us {cpu * 1e6:7.0f} us")
    goals = Goals(__file__)
    floor, slow = medians["floor"]
    fleet_us = medians["fleet"][1] * 1e6
    goals.at_most("one package after a bump, against the floor of its objects", fleet_us / floor, 5, "x")
    goals.cpu("10,000 merges that share nothing, of two processes the slower",
              unique_cpu_s(count) * 10_000 / count, 15.0)  # fmt: skip
    goals.cpu("one package of a fleet after a bump", fleet_us, 150, "us", slow=slow)
    ratios = (
        [medians["kpt"][0] / medians[name][0] for name in ("fleet", "process")] if not why else [None] * 2
    )
    goals.at_least("one package of a fleet, against kpt pkg update", ratios[0], 1500, "x", why)
    goals.at_least("one `package update` as a process, against kpt", ratios[1], 1, "x", why)
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
