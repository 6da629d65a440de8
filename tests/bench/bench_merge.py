"""Package updates: one, a fleet after an upstream bump, and ten thousand that share nothing; beside kpt.

Run as `python tests/bench/bench_merge.py [--packages N]`. kpt is measured where it is installed; it is a
process per package with two fetches each, we are one process for all: the ratio is architectural.
"""

import argparse
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from reconciler.objects import File, Files  # noqa: E402
from reconciler.policy import OnConflict  # noqa: E402
from reconciler.render.update import Memory, UpstreamRef, update_package  # noqa: E402

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
        f"            cpu: 500m\n            memory: 512Mi\n"
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
    memory = Memory()
    changed = 0
    for local in packages:
        done = update_package(
            original, upstream, local, on_conflict=OnConflict.UPSTREAM, new_upstream=NEW, memory=memory
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
    memory = Memory()
    done = 0
    for original, upstream, local in sides:
        result = update_package(original, upstream, local, memory=memory)
        done += b"app:2" in result.files["r.yaml"].data and b"replicas: 3" in result.files["r.yaml"].data
    return done, time.process_time() - began


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def measure_kpt(runs: int) -> float | None:
    """Return the median seconds of one `kpt pkg update`, None where kpt is not installed."""
    if shutil.which("kpt") is None or not ORACLE.is_file():
        return None
    sys.path.insert(0, str(ORACLE.parent))
    from kpt_oracle import Workspace

    with tempfile.TemporaryDirectory() as scratch:
        sides = write_sides(Path(scratch))
        space = Workspace(*sides, root=Path(scratch) / "space")
        times = []
        for _ in range(runs):
            space.prepare()
            times.append(space.update()["wall_s"])
    return statistics.median(times)


def measure_process(runs: int) -> float:
    """Return the median seconds of one `package update` as a process, interpreter and imports included."""
    with tempfile.TemporaryDirectory() as scratch:
        original, upstream, local = write_sides(Path(scratch))
        times = []
        for run in range(runs):
            command = [
                sys.executable,
                "-c",
                "from reconciler.cli.main import entrypoint; entrypoint()",
                "package",
                "update",
            ]
            command += ["--original", str(original), "--upstream", str(upstream), "--local", str(local)]
            command += ["--output", str(Path(scratch) / f"out{run}"), "--ref", "v2", "--commit", "2" * 40]
            wall, _, done = timed(
                lambda command=command: subprocess.run(command, cwd=PROJECT, capture_output=True, check=False)
            )
            if done.returncode:
                raise SystemExit(done.stderr.decode())
            times.append(wall)
    return statistics.median(times)


def write_sides(scratch: Path) -> tuple[Path, Path, Path]:
    edited = {**blueprint(1), "app0.yaml": deployment("app0", replicas=4) + "---\n" + service("app0")}
    for name, texts in (("original", blueprint(1)), ("upstream", blueprint(2)), ("local", edited)):
        (scratch / name).mkdir()
        for path, text in texts.items():
            (scratch / name / path).write_text(text)
    return scratch / "original", scratch / "upstream", scratch / "local"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    count = options.packages
    original, upstream = files(blueprint(1)), files(blueprint(2))
    packages = fleet(count, drifted=0.1)
    wall, cpu, changed = timed(lambda: update_all(packages, original, upstream))
    each = wall / count
    print(
        f"fleet: {count} packages, 10 % drifted, {changed} updated: {wall:.2f} s wall, {cpu:.2f} s cpu,"
        f" {each * 1e6:.0f} us each"
    )
    small = unique(0, min(count, 1000))
    wall, cpu, _ = timed(lambda: [update_package(*sides, memory=Memory()) for sides in small])
    print(
        f"unique: one process, {len(small)} merges: {wall / len(small) * 1e6:.0f} us each wall,"
        f" {cpu / len(small) * 1e6:.0f} us cpu"
    )
    halves = [(0, count // 2), (count // 2, count - count // 2)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        wall, _, parts = timed(lambda: pool.map(merge_unique, halves))
    merged, busy = sum(done for done, _ in parts), max(cpu for _, cpu in parts)
    verdict = "ok" if busy <= 15 * count / 10_000 else "MISSED"
    print(
        f"unique: two processes, {merged} merges: {wall:.2f} s wall on this machine as it is,"
        f" {busy:.2f} s cpu of the slower one (goal: 15 s per 10,000 on two free cores) {verdict}"
    )
    process = measure_process(options.runs)
    kpt = measure_kpt(options.runs)
    print(f"process: one `package update` of ten resources: {process:.3f} s")
    if kpt is None:
        print("kpt: not installed here; nothing to compare with")
        return
    verdict = "ok" if process <= kpt else "MISSED"
    print(f"kpt: one `kpt pkg update` of the same: {kpt:.3f} s (goal: ours no slower) {verdict}")
    ratio = kpt / each
    verdict = "ok" if ratio >= 600 else "MISSED"
    print(
        f"fleet against kpt: {ratio:.0f} times its throughput per package (goal: 600) {verdict};"
        " kpt is a process per package, we are one process for all"
    )


if __name__ == "__main__":
    main()
