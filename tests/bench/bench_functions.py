"""What functions cost: each builtin on a package of ten resources, a fleet of packages, and kpt beside it.

Run it: `python tests/bench/bench_functions.py`. Ratios count; times are this machine's.
"""

import gc
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.functions.pipeline import run_pipeline
from reconciler.krm.yaml import emit
from reconciler.objects import File, Files
from reconciler.policy import FunctionPolicy
from reconciler.runtime.starlark import StarlarkRuntime

POLICY = FunctionPolicy()
GOAL_MS = 2.0
STARLARK_GOAL_MS = 5.0
FLEET = 1000
RATIO_GOAL = 100
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-{n}
  namespace: default
  labels:
    app: web-{n}
spec:
  replicas: 3 # kpt-set: ${{replicas}}
  selector:
    matchLabels:
      app: web-{n}
  template:
    metadata:
      labels:
        app: web-{n}
    spec:
      containers:
      - name: web
        image: nginx:1.25 # kpt-set: nginx:${{tag}}
        ports:
        - containerPort: 80
"""
SETTERS = {"replicas": "{n}", "tag": "1.{n}"}
STEPS: dict[str, dict[str, Any]] = {
    "apply-setters:v0.2": SETTERS,
    "set-namespace:v0.4": {"namespace": "space-{n}"},
    "set-labels:v0.2": {"team": "team-{n}"},
    "set-annotations:v0.1": {"owner": "owner-{n}"},
    "set-image:v0.1": {"name": "nginx", "newTag": "1.{n}"},
    "search-replace:v0.2": {"by-path": "spec.replicas", "put-value": "{n}"},
    "ensure-name-substring:v0.2": {"prepend": "p{n}-"},
    "create-setters:v0.1": {"web": "web"},
    "list-setters:v0.1": {},
    "starlark:v0.5": {
        "source": "for r in ctx.resource_list['items']:\n  r['metadata']['generateName'] = 'a{n}'\n"
    },
}


def package(number: int, *images: str) -> Files:
    steps = [
        {"image": image, "configMap": {key: text.format(n=number) for key, text in STEPS[image].items()}}
        for image in images
    ]
    kptfile = {
        "apiVersion": "kpt.dev/v1",
        "kind": "Kptfile",
        "metadata": {"name": "p", "annotations": {"config.kubernetes.io/local-config": "true"}},
        "pipeline": {"mutators": steps},
    }
    files = {f"web-{n}.yaml": File.of(DEPLOYMENT.format(n=n).encode()) for n in range(10)}
    return files | {"Kptfile": File.of((emit(kptfile) + "\n").encode())}


def median_ms(work: Callable[[int], None], runs: int = 15) -> float:
    took = []
    for number in range(runs + 2):
        gc.collect()
        begin = time.process_time()
        work(number)
        took.append((time.process_time() - begin) * 1000)
    return statistics.median(took[2:])


def without_a_step(number: int) -> None:
    """Read and write the ten resources, and run nothing: what a step is measured against."""
    from reconciler.functions.package_files import read_contents, write_contents

    contents = read_contents(package(number))
    write_contents(contents, [item for found in contents.resources.values() for item in found])


def each_builtin(runtime: StarlarkRuntime) -> bool:
    base = median_ms(without_a_step)
    print(f"ten resources read and written, no step  {base:6.2f} ms")
    print(f"{'function':30} {'package':>10} {'the step':>10}  goal")
    good = True
    for image in STEPS:

        def work(number: int, image: str = image) -> None:
            result = run_pipeline(package(number, image), [runtime], POLICY)
            assert result.ok, result.error

        whole = median_ms(work)
        goal = STARLARK_GOAL_MS if image.startswith("starlark") else GOAL_MS
        step = whole - base
        good = good and step <= goal
        print(f"{image:30} {whole:7.2f} ms {step:7.2f} ms  {goal:g} ms {'' if step <= goal else 'MISSED'}")
    return good


THREE = ("set-namespace:v0.4", "set-labels:v0.2", "set-annotations:v0.1")


def fleet(packages: list[Files], what: str) -> float:
    """Return packages a second, for packages with three steps."""
    begin = time.perf_counter()
    for files in packages:
        assert run_pipeline(files, (), POLICY).ok
    took = time.perf_counter() - begin
    print(
        f"{FLEET} packages x 3 steps, {what}: {took:.2f} s, {FLEET / took:.0f} packages a second, one process"
    )
    return FLEET / took


def kpt_rate() -> float | None:
    """Return packages a second by kpt, with three executables that copy their input."""
    kpt = shutil.which("kpt")
    if kpt is None:
        print("kpt is not installed: nothing to compare with")
        return None
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path, file in package(1, *THREE).items():
            (root / path).write_bytes(file.data)
        text = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\npipeline:\n  mutators:\n"
        (root / "Kptfile").write_text(text + "  - exec: /bin/cat\n" * 3)
        runs = 10
        begin = time.perf_counter()
        for _ in range(runs):
            subprocess.run([kpt, "fn", "render", name, "--allow-exec"], check=True, capture_output=True)
        took = (time.perf_counter() - begin) / runs
    print(
        f"kpt fn render, 3 executables that only copy: {took * 1000:.0f} ms, {1 / took:.1f} packages a second"
    )
    return 1 / took


def main() -> int:
    with StarlarkRuntime(POLICY) as runtime:
        good = each_builtin(runtime)
    fresh = [package(number, *THREE) for number in range(FLEET)]
    changing = fleet(fresh, "every resource changes")
    rendered = [run_pipeline(files, (), POLICY).files for files in fresh]
    settled = fleet(list(rendered), "nothing changes any more")
    theirs = kpt_rate()
    if theirs is not None:
        print(f"times kpt's throughput, whose functions only copy: {settled / theirs:.0f}, goal {RATIO_GOAL}")
        print(f"times kpt's throughput, where every resource changes: {changing / theirs:.0f}")
    print("every step within its goal" if good else "a step misses its goal of CPU time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
