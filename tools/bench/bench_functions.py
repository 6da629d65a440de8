"""What functions cost: each builtin on a package of ten resources, fleets of packages, and kpt beside them.

Run it: `python tools/bench/bench_functions.py [--quick]`.

*Steps* are the least of 21 turns, in CPU time, without what reading and writing the package takes.

*Fleets* are compared with `kpt fn render` on one such package, whose three functions are `/bin/cat`:
they copy their input, and what real ones would take is not counted. Both are wall time, in turns of
about a second in the same run, with nothing kept from run to run; the best turn of each counts, as
whatever else the machine does only takes time away. Three kinds, told apart because they share unlike much:
all different (no file occurs twice), variants of one blueprint (all but the Kptfile occur in every
package, as where a set makes them; each gets its own namespace, label and annotation), and variants
that are rendered already, which are only shown.
"""

import gc
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.resources import read_resources, write_resources
from reconciler.functions.runtimes.pipelines import open_pipelines
from reconciler.functions.runtimes.starlark import StarlarkRuntime
from reconciler.krm.yaml import emit
from reconciler.names.objects import File, Files
from reconciler.policy import FunctionPolicy
from tools.bench.goals import QUIET_MS, Goals, is_quick

POLICY = FunctionPolicy()
GOAL_MS = 4.0
"""Each edited document is parsed again as a proof; edits in place, which were faster, went for their size."""
STARLARK_GOAL_MS = 5.0
FLEET = 1000
RATIO_GOAL = 10
"""In one process, each package by itself: sharing and pools of processes gave the rest of 100."""
ROUNDS = 21
TURNS = 4
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


def package(number: int, *images: str, name: str = "web") -> Files:
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
    texts = {f"{name}-{n}.yaml": DEPLOYMENT.format(n=n).replace("web-", f"{name}-") for n in range(10)}
    files = {path: File.of(text.encode()) for path, text in texts.items()}
    return files | {"Kptfile": File.of((emit(kptfile) + "\n").encode())}


def read_by_pyyaml(_: int) -> None:
    for number in range(10):
        yaml.load(DEPLOYMENT.format(n=number), Loader=yaml.CSafeLoader)


def without_a_step(number: int) -> None:
    """Read and write the ten resources, and run nothing: what a step is measured against."""
    contents = read_resources(package(number, name=f"w{number}"))
    write_resources(contents, [item for found in contents.resources.values() for item in found])


def least_ms(works: dict[str, Callable[[int], None]]) -> dict[str, float]:
    """Return the CPU time of each work in ms, taken in turns, so that all meet the same machine."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 2):
        for name, work in works.items():
            gc.collect()
            begin = time.process_time()
            work(number)
            took[name].append((time.process_time() - begin) * 1000)
    return {name: min(each[2:]) for name, each in took.items()}


def each_builtin(goals: Goals) -> None:
    """Print what every step takes, and judge the slowest."""
    with StarlarkRuntime(POLICY) as runtime:

        def renders(image: str) -> Callable[[int], None]:
            def work(number: int) -> None:
                own = f"web{number}-{image.partition(':')[0]}"  # no file occurs twice: nothing is shared
                result = run_pipeline(package(number, image, name=own), [runtime], POLICY)
                assert result.ok, result.error

            return work

        found = least_ms(
            {
                "pyyaml": read_by_pyyaml,
                "nothing": without_a_step,
                **{image: renders(image) for image in STEPS},
            }
        )
    print(f"PyYAML's C loader, the ten resources      {found['pyyaml']:6.2f} ms")
    print(f"ten resources read and written, no step   {found['nothing']:6.2f} ms")
    print(f"{'function':30} {'package':>10} {'the step':>10}")
    steps = {image: found[image] - found["nothing"] for image in STEPS}
    for image, step in steps.items():
        print(f"{image:30} {found[image]:7.2f} ms {step:7.2f} ms")
    starlark = {image for image in STEPS if image.startswith("starlark")}
    slowest = max(STEPS.keys() - starlark, key=steps.__getitem__)
    slow = max(1.0, found["pyyaml"] / QUIET_MS)
    goals.cpu("a builtin on ten resources, the slowest", steps[slowest], GOAL_MS, "ms", slowest, slow=slow)
    judged = max(steps[image] for image in starlark)
    goals.cpu("starlark on ten resources", judged, STARLARK_GOAL_MS, "ms", slow=slow)


THREE = ("set-namespace:v0.4", "set-labels:v0.2", "set-annotations:v0.1")


class Fleet(NamedTuple):
    """A fleet and how many packages a second it was rendered at, each time."""

    what: str
    packages: list[Files]
    rates: list[float]
    is_judged: bool = False


def fleets() -> list[Fleet]:
    variants = [package(number, *THREE) for number in range(FLEET)]
    different = [package(number, *THREE, name=f"w{number}") for number in range(FLEET)]
    rendered = [run_pipeline(files, (), POLICY).files for files in variants]
    return [
        Fleet("packages that share nothing", different, []),
        Fleet("variants of one blueprint", variants, [], is_judged=True),
        Fleet("variants, rendered already", list(rendered), []),
    ]


def rate(packages: list[Files]) -> float:
    """Return packages a second; opening and ending processes counts."""
    gc.collect()
    begin = time.perf_counter()
    with open_pipelines(POLICY) as run:
        results = run(packages)
    took = time.perf_counter() - begin
    assert all(result.ok for result in results)
    return len(packages) / took


def kpt_rate(kpt: str, directory: str) -> float:
    """Return packages a second by kpt, with three executables that copy their input."""
    runs = 6
    begin = time.perf_counter()
    for _ in range(runs):
        subprocess.run([kpt, "fn", "render", directory, "--allow-exec"], check=True, capture_output=True)
    return runs / (time.perf_counter() - begin)


def write_for_kpt(root: Path) -> None:
    for path, file in package(1, *THREE).items():
        (root / path).write_bytes(file.data)
    text = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\npipeline:\n  mutators:\n"
    (root / "Kptfile").write_text(text + "  - exec: /bin/cat\n" * 3)


def compare(kpt: str | None, goals: Goals) -> None:
    """Print how fast fleets are rendered, alone and against kpt, and judge the ratios."""
    listed = fleets()
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        write_for_kpt(Path(name))
        for _ in range(TURNS):
            theirs += [kpt_rate(kpt, name)] if kpt else []
            for fleet in listed:
                fleet.rates.append(rate(fleet.packages))
    print(f"\n{FLEET} packages x 3 steps{'':28} packages/s   times kpt")
    why = "" if theirs else "the command `kpt` is not in PATH"
    for fleet in listed:
        ratio = max(fleet.rates) / max(theirs) if theirs else None
        shown = "--" if ratio is None else f"{ratio:.0f}"
        print(f"{fleet.what:45} {max(fleet.rates):12.0f} {shown:>8}")
        if fleet.is_judged:
            goals.at_least(f"{fleet.what} against kpt fn render", ratio, RATIO_GOAL, "x", why)
    if theirs:
        print(f"{'kpt fn render, executables that only copy':45} {max(theirs):12.1f}")


def main() -> int:
    goals = Goals(__file__)
    each_builtin(goals)
    if not is_quick():
        compare(shutil.which("kpt"), goals)
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
