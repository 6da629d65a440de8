"""What a new upstream revision of a fleet costs, from the command line: planned, drafted and pushed.

Run as `python tests/bench/bench_bump.py [--packages N] [--repositories N ...] [--approve]`, by default 10000
packages in 1 and in 500 repositories. A tenth of the packages have local changes. Beside it in the same
run: git that imports and pushes the same drafts, and the real kpt that updates 20 packages, where it is.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.plan.changes import WriteDraft
from reconciler.run.apply import apply_plan
from reconciler.run.options import RunOptions
from reconciler.run.plan import plan_run
from tests.bench import bench_merge
from tests.bench.bench_noop import EPOCH, HEAD, PORCH
from tests.bench.goals import Goals, slowness
from tests.bench.process import Cost, measure

PER_VIEW = 10
DRIFT = 10
"""One package of so many is edited by a person."""
OF_KPT = 20
START = NewCommit("Start", {"README.md": b"# fleet\n"}, EPOCH)
SPEC = "spec:\n  manifests:\n  - manifests\n  publish:\n    tags: false\n"


class Fleet:
    """A fleet in a directory: `packages` over `repositories`, all published at version 1."""

    def __init__(self, root: Path, packages: int, repositories: int) -> None:
        self.root = root
        self.repositories = repositories
        self.views = [f"c-{number:04}" for number in range(max(packages // PER_VIEW, repositories))]
        self.packages = len(self.views) * PER_VIEW
        self.options = RunOptions(str(root / "control.git"), root / "cache")

    def repository_of(self, view: str) -> str:
        return f"clusters-{int(view[2:]) * self.repositories // len(self.views)}"

    def names(self) -> list[str]:
        return sorted({self.repository_of(view) for view in self.views})

    def make(self) -> None:
        """Write the repositories, publish version 1, edit some packages, and record all that."""
        self.release(1)
        for name in self.names():
            create_bare(self.root / f"{name}.git", [START])
        files = self.first_files()
        for name, content in files.items():
            shutil.rmtree(self.root / f"{name}.git")
            merged = NewCommit("Merge everything", content, EPOCH + 60)
            edited = NewCommit("Edit some", {**content, **dict(_edits(content))}, EPOCH + 120)
            create_bare(self.root / f"{name}.git", [START, merged, edited])
        outcome = apply_plan(plan_run(self.options))
        assert not [effect for effect in outcome.effects if effect.error], outcome

    def first_files(self) -> dict[str, dict[str, bytes]]:
        drafts = [
            (change.repository.name, write)
            for change in plan_run(self.options).plan.changes
            for write in change.writes
            if isinstance(write, WriteDraft)
        ]
        assert len(drafts) == self.packages
        files: dict[str, dict[str, bytes]] = {}
        for view, draft in drafts:
            content = files.setdefault(self.repository_of(view), {})
            content |= {f"{draft.path}/{path}": file.data for path, file in draft.files.items()}
        return files

    def release(self, version: int) -> None:
        """Publish a version of the blueprint, and let the set ask for it."""
        releases = [
            NewCommit(
                f"Release {number}",
                {f"web/{path}": text.encode() for path, text in bench_merge.blueprint(number).items()},
                EPOCH + number,
                (f"web/v{number}",),
            )
            for number in range(1, version + 1)
        ]
        control = [
            NewCommit(f"Ask for {number}", dict(self.control(number)), EPOCH + 100 * number)
            for number in range(1, version + 1)
        ]
        for name, commits in (("blueprints", releases), ("control", control)):
            shutil.rmtree(self.root / f"{name}.git", ignore_errors=True)
            create_bare(self.root / f"{name}.git", commits)

    def control(self, version: int) -> Iterator[tuple[str, bytes]]:
        head = HEAD.format("reconciler.dev/v1alpha1", "Reconciler", "fleet")
        yield "reconciler.yaml", (head + SPEC).encode()
        registered = [_registration("blueprints", "blueprints", "")]
        registered += [_registration(view, self.repository_of(view), view) for view in self.views]
        yield "manifests/repositories.yaml", "---\n".join(registered).encode()
        names = "".join(f"      - p{number}\n" for number in range(PER_VIEW))
        targets = "".join(f"    - name: {view}\n      packageNames:\n{names}" for view in self.views)
        upstream = f"spec:\n  upstream:\n    repo: blueprints\n    package: web\n    revision: {version}\n"
        head = HEAD.format(f"{PORCH}v1alpha2", "PackageVariantSet", "web")
        yield "manifests/web.yaml", f"{head}{upstream}  targets:\n  - repositories:\n{targets}".encode()

    def drafts(self) -> int:
        """Return how many drafts there are."""
        return sum(
            len(_git("for-each-ref", "refs/heads/drafts", cwd=self.root / f"{name}.git").splitlines())
            for name in self.names()
        )


def _registration(name: str, repository: str, directory: str) -> str:
    git = f"  git:\n    repo: ../{repository}.git\n    branch: main\n    directory: {directory!r}\n"
    flag = str(name != repository).lower()
    return f"{HEAD.format(f'{PORCH}v1alpha1', 'Repository', name)}spec:\n  deployment: {flag}\n{git}"


def _edits(content: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the edits of people: in a tenth of the packages one of five."""
    for number, path in enumerate(sorted(path for path in content if path.endswith("/app0.yaml"))):
        if number % DRIFT == 0:
            replicas = b"replicas: %d" % (2 + number // DRIFT % 5)
            yield path, content[path].replace(b"replicas: 1", replicas)


def _git(*arguments: str, cwd: Path) -> bytes:
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, check=True).stdout


class Bump(NamedTuple):
    """What the steps of one bump cost; `plain_s` is what git alone takes to import and push the drafts."""

    plan: Cost
    apply: Cost
    plain_s: float
    approve: Cost | None


def bump(root: Path, packages: int, repositories: int, *, approves: bool) -> Bump:
    """Publish version 2, plan and apply as processes, and let git do the same writing."""
    fleet = Fleet(root, packages, repositories)
    fleet.make()
    fleet.release(2)
    options = ["--control", "control.git", "--cache-dir", "cache"]
    command = [sys.executable, "-m", "reconciler.cli.main"]
    plan = measure([*command, "plan", *options], root, times=1, warm=False)
    (root / "before").mkdir()
    for name in fleet.names():
        shutil.copytree(root / f"{name}.git", root / "before" / f"{name}.git")
    apply = measure([*command, "apply", *options], root, times=1, warm=False)
    assert fleet.drafts() == fleet.packages, fleet.drafts()
    plain = sum(plain_git_s(root / f"{name}.git", root / "before" / f"{name}.git") for name in fleet.names())
    _git("fsck", "--strict", cwd=root / f"{fleet.names()[0]}.git")
    approve = None
    if approves:
        approve = measure([*command, "approve", "--all", *options], root, times=1, warm=False)
        assert fleet.drafts() == 0
    return Bump(plan, apply, plain, approve)


def plain_git_s(after: Path, before: Path) -> float:
    """Return the seconds in which git imports the drafts of a repository, and pushes them with a wildcard."""
    stream = _git("fast-export", "--branches=drafts/*", "main", cwd=after)
    work = before.with_suffix(".work")
    shutil.copytree(before, work)
    start = time.perf_counter()
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=work, input=stream, check=True)
    spec = "refs/heads/drafts/*:refs/heads/drafts/*"
    subprocess.run(["git", "push", "--quiet", "--atomic", str(before), spec], cwd=work, check=True)
    return time.perf_counter() - start


def kpt_s(scratch: Path) -> float | None:
    """Return the wall seconds of 20 updates by the real kpt, None where it is not installed."""
    if bench_merge.why_without_kpt():
        return None
    kpt = bench_merge.Kpt(scratch)
    total = 0.0
    for _ in range(OF_KPT):
        kpt.prepare()
        start = time.perf_counter()
        kpt.run()
        total += time.perf_counter() - start
    return total


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=int, default=10_000)
    parser.add_argument("--repositories", type=int, nargs="+", default=[1, 500])
    parser.add_argument("--approve", action="store_true")
    options = parser.parse_args(arguments)
    goals = Goals(__file__)
    with tempfile.TemporaryDirectory() as name:
        of_kpt = kpt_s(Path(name))
    print(
        f"{'packages':>8} {'repositories':>12}  {'':14} {'wall s':>7} {'CPU s':>7} {'MiB':>5} {'of git':>6}"
    )
    for repositories in options.repositories:
        slow = slowness()
        with tempfile.TemporaryDirectory() as name:
            costs = bump(Path(name), options.packages, repositories, approves=options.approve)
        for what, cost in (("plan", costs.plan), ("apply", costs.apply), ("approve --all", costs.approve)):
            if cost is not None:
                print(
                    f"{options.packages:8} {repositories:12}  {what:14} {cost.wall_s:7.1f} {cost.cpu_s:7.1f} "
                    f"{cost.peak_mib:5.0f} {cost.wall_s / costs.plain_s:6.2f}"
                )
        print(f"{'':23}git fast-import and push: {costs.plain_s:.1f} s")
        per = 10_000 / options.packages
        limit = 12 if repositories == 1 else 30
        where = "one repository" if repositories == 1 else f"{repositories} repositories"
        goals.cpu(f"10,000 packages drafted and pushed, {where}", costs.apply.cpu_s * per, limit, slow=slow)
        if costs.approve is not None:
            goals.cpu("`approve --all` of 2,000 after a bump", costs.approve.cpu_s * per / 5, 5, slow=slow)
        why = bench_merge.why_without_kpt()
        ratio = of_kpt / (costs.apply.wall_s * per) if of_kpt else None
        goals.at_least(f"20 updates of kpt, against 10,000 in {where}", ratio, 1, "x", why)
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
