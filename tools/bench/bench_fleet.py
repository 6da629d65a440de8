"""What a fleet of real packages costs: 13 packages of Nephio on 50 clusters, each with a label of its own.

Run as `python tools/bench/bench_fleet.py`, with the packages in RECONCILER_ECOSYSTEM. Times and memory are of
the command line. Counters and ratios are of the same packages on 10 and on 50 clusters, and no load of the
machine moves them: pipelines that run, texts that are parsed, and CPU time on 50 clusters against 10.
"""

import os
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha1
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.functions import pipeline
from reconciler.functions.catalog import COPYING
from reconciler.functions.pipeline import StepEngine, find_engine
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.krm.yaml import compose
from reconciler.run.options import RunOptions
from reconciler.run.plan import plan_run
from tests.support.git import Repo
from tools.bench.goals import Goals, slowness
from tools.bench.process import PROJECT, Cost, measure

ECOSYSTEM = Path(os.environ.get("RECONCILER_ECOSYSTEM", PROJECT.parent / "shared" / "ecosystem"))
CLUSTERS = (10, 50)
EPOCH = 1_767_225_600
HEAD = "apiVersion: {0}\nkind: {1}\nmetadata:\n  name: {2}\n"
PORCH = "config.porch.kpt.dev/"
START = NewCommit("Start", {"README.md": b"# fleet\n"}, EPOCH)
REFUSED = (
    "v1alpha1",
    "nephio/",
    "config-management",
    "gcp-services",
    "set-namespace:v0.1",
)
"""Parts of Kptfiles with functions that nothing here runs."""
INJECTED = "config-injection"
"""What makes a package wait for objects of a cluster."""
TEMPLATE = """      pipeline:
        mutators:
        - image: ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0
          configMapExprs:
          - {key: cluster, valueExpr: repository.name}
"""


Packages = Mapping[str, tuple[Path, Path]]
"""The directories of two revisions of each package."""


def packages(root: Path) -> Packages:
    """Return the first two revisions of each package that has them."""
    return {name: pairs[0] for name, pairs in _pairs(root) if pairs}


def many_packages(root: Path, count: int = 40) -> Packages:
    """Return each revision with the next one as a package, and the first with the last of large packages."""
    found = dict(_pairs(root))
    every = {f"{name}-{old.name}": (old, new) for name, pairs in found.items() for old, new in pairs}
    whole = {f"{name}-all": (pairs[0][0], pairs[-1][1]) for name, pairs in found.items() if len(pairs) > 1}
    largest = sorted(whole.items(), key=lambda each: -_size(each[1][0]))
    return dict([*every.items(), *largest][:count])


def _pairs(root: Path) -> Iterator[tuple[str, list[tuple[Path, Path]]]]:
    """Yield each package with the pairs of its revisions that have functions which run here."""
    for directory in sorted((root / "nephio").iterdir()):
        revisions = [each for each in sorted(directory.iterdir()) if (each / "Kptfile").is_file()]
        texts = {each: (each / "Kptfile").read_text() for each in revisions}
        yield (
            directory.name,
            [
                pair
                for pair in pairwise(revisions)
                if not any(word in texts[each] for each in pair for word in REFUSED)
                and not any(INJECTED in path.read_text() for e in pair for path in e.rglob("*.yaml"))
            ],
        )


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


class World:
    """A fleet in a directory, with a repository for each cluster; a checkout with its `.venv` runs it."""

    def __init__(self, root: Path, clusters: int, chosen: Packages, project: Path = PROJECT) -> None:
        self.root = root
        self.project = project
        self.clusters = [f"c{number:02}" for number in range(clusters)]
        self.packages = chosen
        self.wanted = dict.fromkeys(self.packages, 1)
        releases = [
            NewCommit(
                f"Release {number}",
                {
                    f"{name}/{path.relative_to(revisions[number - 1])}": path.read_bytes()
                    for name, revisions in self.packages.items()
                    for path in revisions[number - 1].rglob("*")
                    if path.is_file()
                },
                EPOCH + number,
                tuple(f"{name}/v{number}" for name in self.packages),
            )
            for number in (1, 2)
        ]
        create_bare(root / "blueprints.git", releases)
        for name in self.clusters:
            create_bare(root / f"{name}.git", [START])
        create_bare(root / "control.git", [NewCommit("Describe the fleet", dict(self._control()), EPOCH)])
        self.control = Repo(root / "control.git")

    def ask(self, revision: int, *names: str) -> None:
        """Let the sets ask for a revision: of these packages, by default of all."""
        self.wanted |= dict.fromkeys(names or self.packages, revision)
        self.control.commit(dict(self._control()))

    def _control(self) -> Iterator[tuple[str, bytes]]:
        yield "reconciler.yaml", HEAD.format("reconciler.dev/v1alpha1", "Reconciler", "fleet").encode()
        registered = []
        for name in ("blueprints", *self.clusters):
            role = "  labels: {role: cluster}\n" if name in self.clusters else ""
            deployment = str(name in self.clusters).lower()
            spec = f"spec:\n  deployment: {deployment}\n  git:\n    repo: ../{name}.git\n    branch: main\n"
            registered.append(f"{HEAD.format(f'{PORCH}v1alpha1', 'Repository', name)}{role}{spec}")
        yield "manifests/repositories.yaml", "---\n".join(registered).encode()
        for name, revision in self.wanted.items():
            head = HEAD.format(f"{PORCH}v1alpha2", "PackageVariantSet", name)
            upstream = f"{{repo: blueprints, package: {name}, revision: {revision}}}"
            targets = "  targets:\n  - repositorySelector: {matchLabels: {role: cluster}}\n    template:\n"
            yield (
                f"manifests/{name}.yaml",
                f"{head}spec:\n  upstream: {upstream}\n{targets}{TEMPLATE}".encode(),
            )

    def run(self, *arguments: str) -> Cost:
        """Run a command of the command line."""
        where = ("--control", "control.git", "--cache-dir", "cache")
        python = sys.executable if self.project == PROJECT else str(self.project / ".venv" / "bin" / "python")
        command = (python, "-m", "reconciler.cli.main", *arguments, *where)
        return measure(command, self.root, times=1, warm=False, project=self.project)

    def count(self) -> Counter[str]:
        """Plan, and count pipelines of functions that copy values, and parsed texts."""
        counts: Counter[str] = Counter()
        texts = set[int]()
        run_steps, roots = pipeline.run_steps, compose._roots

        def counting_steps(
            files: Any, steps: Any, runtimes: Any, policy: Any, *rest: Any, **limits: Any
        ) -> Any:
            engines = [find_engine(step, (), policy) for step in steps]
            copies = all(isinstance(each, StepEngine) and each.builtin in COPYING for each in engines)
            counts["pipelines of copies" if copies else "other pipelines"] += 1
            return run_steps(files, steps, runtimes, policy, *rest, **limits)

        def counting_roots(text: str, *rest: Any, **how: Any) -> Any:
            counts["parses"] += 1
            texts.add(hash(text))
            return roots(text, *rest, **how)

        vars(pipeline)["run_steps"], vars(compose)["_roots"] = counting_steps, counting_roots
        try:
            plan_run(RunOptions(str(self.root / "control.git"), self.root / "counted"))
        finally:
            pipeline.run_steps, compose._roots = run_steps, roots
        shutil.rmtree(self.root / "counted")
        counts["texts"] = len(texts)
        return counts


def show_floors(chosen: Packages) -> None:
    """Print what no fleet can do without: each file parsed once, and all of them hashed and deflated."""
    files = [path.read_bytes() for each in chosen.values() for path in each[0].rglob("*.yaml")]
    works: dict[str, Callable[[bytes], object]] = {
        "parsed by PyYAML's C loader, once": lambda data: list(yaml.load_all(data, yaml.CSafeLoader)),
        f"sha1, {CLUSTERS[-1]} times": lambda data: [sha1(data) for _ in range(CLUSTERS[-1])],
        f"deflated, {CLUSTERS[-1]} times": lambda data: [zlib.compress(data, 1) for _ in range(CLUSTERS[-1])],
    }
    slow = slowness()
    for what, work in works.items():
        start = time.process_time()
        for data in files:
            work(data)
        print(f"floor of {sum(map(len, files)):,} bytes {what}: {(time.process_time() - start) / slow:.2f} s")


def life(
    root: Path, clusters: int, chosen: Packages, *, counted: bool = True, project: Path = PROJECT
) -> tuple[dict[str, Cost], dict[str, Counter[str]]]:
    """Return what each step of a fleet costs: new, settled, one and all packages at their next revision."""
    world = World(root, clusters, chosen, project)
    costs, counts = {}, {"new": world.count()} if counted else {}
    costs["plan from nothing"] = world.run("plan")
    costs["apply"] = world.run("apply")
    costs["`approve --all`"] = world.run("approve", "--all")
    costs["settled"] = world.run("plan")
    world.ask(2, next(iter(chosen)))
    costs["one package to its next revision: plan"] = world.run("plan")
    costs["one package to its next revision: apply"] = world.run("apply")
    world.run("approve", "--all")
    world.ask(2)
    if counted:
        counts["next revision"] = world.count()
    costs["all packages to their next revision: plan"] = world.run("plan")
    costs["all packages to their next revision: apply"] = world.run("apply")
    return costs, counts


LIMITS = {
    "plan from nothing": 2.0,
    "apply": 3.0,
    "`approve --all`": 3.0,
    "settled": 0.45,
    "one package to its next revision: plan": 0.6,
    "one package to its next revision: apply": 1.2,
    "all packages to their next revision: plan": 4.0,
    "all packages to their next revision: apply": 5.0,
}
"""In seconds, of 50 clusters."""


def is_missing(goals: Goals) -> bool:
    """Tell whether there are no real packages; the goals then have a line that says so."""
    if (ECOSYSTEM / "nephio").is_dir():
        return False
    why = f"skipped: there are no packages in {ECOSYSTEM} (RECONCILER_ECOSYSTEM)"
    goals.at_most("a fleet of real packages", None, 0, note=why)
    return True


def main() -> int:
    goals = Goals(__file__)
    if is_missing(goals):
        return goals.finish()
    lives = {}
    for clusters in CLUSTERS:
        with tempfile.TemporaryDirectory() as name:
            lives[clusters] = life(Path(name), clusters, packages(ECOSYSTEM))
    show_floors(packages(ECOSYSTEM))
    few, many = (lives[clusters] for clusters in CLUSTERS)
    for what, limit in LIMITS.items():
        goals.cpu(what, many[0][what].cpu_s, limit)
    goals.at_most("memory, the most of these", max(cost.peak_mib for cost in many[0].values()), 200, "MiB")
    for what in ("plan from nothing", "all packages to their next revision: plan"):
        ratio = many[0][what].cpu_s / few[0][what].cpu_s
        goals.at_most(f"50 clusters against 10, {what}", ratio, 1.5, "x")
    for what, counts in many[1].items():
        before = few[1][what]
        copies = counts["pipelines of copies"] / before["pipelines of copies"]
        goals.at_most(f"pipelines that only copy values, 50 clusters against 10, {what}", copies, 1, "x")
        goals.at_most(f"parses of each distinct text, {what}", counts["parses"] / counts["texts"], 2)
        print(what, dict(before), dict(counts))
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
