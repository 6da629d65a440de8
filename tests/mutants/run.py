"""Apply each kept mutant to a scratch copy, and require that the tests it names fail.

A mutant is a patch (`git diff` of production code) whose first lines name its tests:
`# test: tests/property/test_plan_laws.py::test_law_1`. Arguments choose mutants by part of their name.
One mutant a core is tried at a time.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
COPIED = ("reconciler", "tests", "templates", "fixtures", "pyproject.toml")
TIMEOUT_S = 600


class Verdict(NamedTuple):
    """What became of one mutant."""

    name: str
    caught: bool
    detail: str


def named_tests(patch: Path) -> list[str]:
    """Return the tests that a mutant names in its first lines."""
    lines = patch.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("# test: ").strip() for line in lines if line.startswith("# test: ")]


def copy_project(scratch: Path) -> None:
    """Copy what the tests need; caches stay behind."""
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(source, scratch / name, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, scratch / name)


def run_tests(scratch: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in the scratch copy, and nowhere else."""
    environment = {**os.environ, "PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.setdefault("RECONCILER_CONFORMANCE", str(PROJECT.parent / "shared" / "conformance"))
    quick = ["-p", "tests.mutants.quick", "--hypothesis-profile", "quick"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *quick, *tests]
    return subprocess.run(
        command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def judge(patch: Path, scratch: Path) -> Verdict:
    """Apply one mutant to a copy, run its tests, and take it back; it is caught if they fail."""
    tests = named_tests(patch)
    if not tests:
        return Verdict(patch.stem, caught=False, detail="names no test")
    applied = _git_apply(patch, scratch)
    if applied.returncode:
        return Verdict(patch.stem, caught=False, detail=f"does not apply: {applied.stderr.strip()}")
    try:
        ran = run_tests(scratch, tests)
    except subprocess.TimeoutExpired:
        return Verdict(patch.stem, caught=False, detail=f"its tests did not end in {TIMEOUT_S} s")
    finally:
        _git_apply(patch, scratch, "--reverse").check_returncode()
    last = (ran.stdout.strip().splitlines() or ["no output"])[-1]
    failed = ran.returncode == 1 and " failed" in last
    return Verdict(patch.stem, caught=failed, detail=last)


def _git_apply(patch: Path, scratch: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "apply", "--whitespace=nowarn", *more, str(patch)]
    return subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)


def prepare(scratch: Path) -> None:
    """Copy the project and compile it; a module that a mutant changes is told by its hash."""
    copy_project(scratch)
    compile_all = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "reconciler"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *compile_all], cwd=scratch, env=environment, check=True)


def judge_all(patches: list[Path], workers: int) -> Iterator[Verdict]:
    """Yield the verdicts in order, `workers` mutants at a time, each worker on a copy of its own."""
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def judged(patch: Path) -> Verdict:
        scratch = copies.get()
        try:
            return judge(patch, scratch)
        finally:
            copies.put(scratch)

    with ExitStack() as stack:
        for _ in range(workers):
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutant-")))
            prepare(scratch)
            copies.put(scratch)
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        yield from pool.map(judged, patches)


def main(chosen: list[str]) -> int:
    """Judge the mutants, print a line each, and return how many survived."""
    patches = sorted(HERE.glob("*.patch"))
    wanted = [p for p in patches if not chosen or any(part in p.stem for part in chosen)]
    survivors = 0
    for verdict in judge_all(wanted, os.cpu_count() or 1):
        survivors += not verdict.caught
        print(f"{'caught  ' if verdict.caught else 'SURVIVED'} {verdict.name}: {verdict.detail}", flush=True)
    print(f"{len(wanted) - survivors} of {len(wanted)} mutants caught")
    return min(survivors, 1) if wanted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
