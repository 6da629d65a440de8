"""What a run costs where nothing changed, beside git that only lists refs and trees.

Run as `python tests/bench/bench_noop.py [PACKAGES ...]`, by default 100 and 10000. Each line is a
process of its own, imports included: CPU seconds and wall seconds.
"""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.plan.changes import WriteDraft
from reconciler.run.apply import apply_plan
from reconciler.run.inputs import RunOptions
from reconciler.run.plan import plan_run
from tests.bench.goals import Goals
from tests.bench.process import Cost, measure

PER_REPOSITORY = 10
REVIEWS = (500, 2000)
"""Packages with open pull requests in one repository."""
EPOCH = 1_767_225_600
HEAD = "apiVersion: {0}\nkind: {1}\nmetadata:\n  name: {2}\n"
PORCH = "config.porch.kpt.dev/"
START = NewCommit("Start", {"README.md": b"# fleet\n"}, EPOCH)


def main(counts: Sequence[int]) -> int:
    goals = Goals(__file__)
    print(f"{'packages':>8}  {'':22}  {'wall s':>7}  {'CPU s':>7}  {'of git':>6}  {'memory':>8}")
    runs: dict[int, Cost] = {}
    repeated: dict[int, Cost] = {}
    applied: dict[int, Cost] = {}
    for count in sorted(counts or (100, 10_000)):
        with TemporaryDirectory(prefix="noop-") as path:
            settle(Path(path), count)
            runs[count], repeated[count], applied[count] = show(count, Path(path))
    least, most = min(runs), max(runs)
    goals.cpu("a run where no repository changed", repeated[most].cpu_s, 0.2, note=f"{most} packages,")
    goals.at_most(
        "its memory against one of few packages", repeated[most].peak_mib / repeated[least].peak_mib, 1.1
    )
    if 10_000 in runs:
        goals.cpu("no-op of 10,000 packages", runs[10_000].cpu_s, 0.5)
        goals.at_most("its memory", runs[10_000].peak_mib, 256, "MiB")
        goals.at_most("the memory of apply with nothing to do", applied[10_000].peak_mib, 256, "MiB")
        exponent = math.log(runs[most].cpu_s / runs[least].cpu_s) / math.log(most / least)
        goals.at_most("growth exponent of a no-op", exponent, 1.05, note=f"from {least} to {most} packages")
    reviews = {count: show_reviews(count) for count in REVIEWS}
    few, many = REVIEWS
    exponent = math.log(reviews[many].cpu_s / reviews[few].cpu_s) / math.log(many / few)
    goals.at_most(
        "growth exponent of a plan with open pull requests", exponent, 1.05, note=f"from {few} to {many},"
    )
    return goals.finish()


def show(count: int, directory: Path) -> tuple[Cost, Cost, Cost]:
    """Print a line each for git, for an interpreter that imports a run, and for several kinds of runs.

    Returns the cost of a plan that computes everything, of one that repeats the report of the last, and of
    an apply that computes everything.
    """
    python = [sys.executable, "-c"]
    git = measure(["sh", "-c", _GIT], directory)
    imports = measure([*python, "import reconciler.run.apply"], directory)
    run = measure([*python, _PLAN, "--full"], directory)
    repeated = measure([*python, _PLAN], directory)
    applied = measure(
        [*python, _PLAN.replace('"plan", "--detailed-exitcode"', '"apply"'), "--full"], directory
    )
    costs = {
        "git for-each-ref, ls-tree": git,
        "imports": imports,
        "reconciler plan --full": run,
        "reconciler plan": repeated,
        "reconciler apply --full": applied,
        "plan, a package changed": _after(_edit_package, directory),
        "plan, a manifest changed": _after(_edit_manifest, directory),
    }
    for what, cost in costs.items():
        ratio = cost.cpu_s / git.cpu_s
        print(_line(count, what, cost, f"{ratio:6.1f}"))
    return run, repeated, applied


def show_reviews(count: int) -> Cost:
    """Print and return the cost of a plan of one repository with so many open pull requests."""
    with TemporaryDirectory(prefix="noop-") as path:
        directory = Path(path)
        write_fleet(directory, count)
        apply_plan(plan_run(RunOptions(str(directory / "control.git"), directory / "cache")))
        cost = measure([sys.executable, "-c", _PLAN, "--full"], directory)
    print(_line(count, "plan, all in review", cost))
    return cost


def _line(count: int, what: str, cost: Cost, ratio: str = "") -> str:
    return (
        f"{count:8}  {what:25.25}  {cost.wall_s:4.2f}  {cost.cpu_s:7.2f}  {ratio:6}  {cost.peak_mib:4.0f} MiB"
    )


def _after(edit: Callable[[Path, int], None], directory: Path) -> Cost:
    """Return the cost of the run after an edit. The run after that may repeat its report."""
    costs = []
    for number in range(2):
        edit(directory, number)
        costs.append(measure([sys.executable, "-c", _PLAN], directory, times=1, warm=False))
    return min(costs, key=lambda cost: cost.cpu_s)


def _edit_package(directory: Path, number: int) -> None:
    """Commit a file that people wrote into one package."""
    _commit(directory / "clusters.git", f"c-0000/p{number}/NOTES.md", "Ours.\n")


def _edit_manifest(directory: Path, number: int) -> None:
    """Commit another registration, which no set names."""
    manifest = _repository(f"unused-{number}", "blueprints", "unused", deployment=False)
    _commit(directory / "control.git", f"manifests/unused-{number}.yaml", manifest)


def _commit(repository: Path, path: str, text: str) -> None:
    """Commit one file on main."""
    git = ["git", "-C", str(repository), "-c", "user.name=Kim", "-c", "user.email=kim@example.com"]

    def run(*arguments: str, data: str = "") -> str:
        index = {**os.environ, "GIT_INDEX_FILE": str(repository / "edit")}
        ran = subprocess.run(
            [*git, *arguments], input=data, env=index, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    run("read-tree", "main")
    blob = run("hash-object", "-w", "--stdin", data=text)
    run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
    run("update-ref", "refs/heads/main", run("commit-tree", "-p", "main", "-m", "Edit", run("write-tree")))


_GIT = "for r in *.git; do git -C $r for-each-ref; git -C $r ls-tree -r -t main; done >/dev/null"
_PLAN = """
import os, sys
from reconciler.cli.main import entrypoint
sys.stdout = open(os.devnull, "w")
options = ["--control", "control.git", "--cache-dir", "cache"]
sys.argv = ["reconciler", "plan", "--detailed-exitcode", *options, *sys.argv[1:]]
try:
    entrypoint()
except SystemExit as end:
    sys.exit(0 if end.code == 10 else end.code)
"""


def write_fleet(directory: Path, count: int) -> int:
    """Make a fleet of `count` packages that is not deployed yet; return how many there are."""
    names = [f"c-{number:04}" for number in range(max(1, count // PER_REPOSITORY))]
    blueprint = {
        "Kptfile": HEAD.format("kpt.dev/v1", "Kptfile", "web"),
        "app.yaml": HEAD.format("v1", "ConfigMap", "app"),
    }
    upstream = {f"web/{path}": text.encode() for path, text in blueprint.items()}
    create_bare(directory / "blueprints.git", [NewCommit("Release", upstream, EPOCH, ("web/v1",))])
    create_bare(directory / "clusters.git", [START])
    create_bare(directory / "control.git", [NewCommit("Describe", dict(_control(names)), EPOCH)])
    return len(names) * PER_REPOSITORY


def settle(directory: Path, count: int) -> None:
    """Make a fleet of `count` published packages of which everything is recorded."""
    packages = write_fleet(directory, count)
    settings = RunOptions(str(directory / "control.git"), directory / "cache")
    planned = plan_run(settings)
    drafts = [
        write for change in planned.plan.changes for write in change.writes if isinstance(write, WriteDraft)
    ]
    assert len(drafts) == packages, planned.plan.problems
    files = {f"{d.path}/{path}": file.data for d in drafts for path, file in d.files.items()}
    shutil.rmtree(directory / "clusters.git")
    create_bare(directory / "clusters.git", [START, NewCommit("Merge everything", files, EPOCH + 60)])
    outcome = apply_plan(plan_run(settings))
    assert not [e for e in outcome.effects if e.error], outcome


def _control(names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    yield "reconciler.yaml", (HEAD.format("reconciler.dev/v1alpha1", "Reconciler", "fleet") + _SPEC).encode()
    registered = [_repository("blueprints", "blueprints", "", deployment=False)]
    registered += [_repository(name, "clusters", name, deployment=True) for name in names]
    yield "manifests/repositories.yaml", "---\n".join(registered).encode()
    packages = "".join(f"      - p{number}\n" for number in range(PER_REPOSITORY))
    targets = "".join(f"    - name: {name}\n      packageNames:\n{packages}" for name in names)
    head = HEAD.format(f"{PORCH}v1alpha2", "PackageVariantSet", "web")
    yield "manifests/web.yaml", f"{head}{_UPSTREAM}  targets:\n  - repositories:\n{targets}".encode()


_SPEC = """\
spec:
  manifests:
  - manifests
  publish:
    tags: false
  limits:
    manifestBytes: 16777216
    yamlDocuments: 100000
"""
_UPSTREAM = "spec:\n  upstream:\n    repo: blueprints\n    package: web\n    revision: 1\n"


def _repository(name: str, repository: str, directory: str, *, deployment: bool) -> str:
    git = f"  git:\n    repo: ../{repository}.git\n    branch: main\n    directory: {directory!r}\n"
    flag = str(deployment).lower()
    return f"{HEAD.format(f'{PORCH}v1alpha1', 'Repository', name)}spec:\n  deployment: {flag}\n{git}"


if __name__ == "__main__":
    sys.exit(main([int(argument) for argument in sys.argv[1:]]))
