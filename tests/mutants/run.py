"""Apply each kept mutant to a scratch copy, and require that the tests it names fail.

A mutant is a patch (`git diff` of production code) whose first lines name its tests:
`# test: tests/property/test_plan_laws.py::test_law_1`. Arguments choose mutants by part of their name.
One mutant a core is tried at a time, its tests in a fork of a process that has imported the libraries.
The mutant of a requirement is called by the number of its row in `docs/requirements.md`, as in `R83.patch`.
"""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

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


class Checkout:
    """A copy of the project, and the process that runs tests in it and nowhere else."""

    def __init__(self, directory: Path) -> None:
        self.scratch = directory / "project"
        self.scratch.mkdir()
        prepare(self.scratch)
        environment = {**os.environ, "PYTHONPATH": str(self.scratch), "PYTHONDONTWRITEBYTECODE": "1"}
        beside = PROJECT.parent / "shared" / "conformance"
        if beside.is_dir():
            environment.setdefault("RECONCILER_CONFORMANCE", str(beside))
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "warm.py"), str(TIMEOUT_S), str(directory / "tests")],
            cwd=self.scratch,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def run(self, tests: list[str]) -> tuple[int, str]:
        """Return the exit code of the tests and the last line that they printed."""
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError  # both are pipes
        print(json.dumps(tests), file=self._process.stdin, flush=True)
        code, last = json.loads(self._process.stdout.readline())
        return code, last


def judge(patch: Path, checkout: Checkout) -> Verdict:
    """Apply one mutant to a copy, run its tests, and take it back; it is caught if they fail."""
    tests = named_tests(patch)
    if not tests:
        return Verdict(patch.stem, caught=False, detail="names no test")
    applied = _git_apply(patch, checkout.scratch)
    if applied.returncode:
        return Verdict(patch.stem, caught=False, detail=f"does not apply: {applied.stderr.strip()}")
    try:
        code, last = checkout.run(tests)
    finally:
        _git_apply(patch, checkout.scratch, "--reverse").check_returncode()
    if code < 0:
        late = f"its tests did not end in {TIMEOUT_S} s"
        ended = late if code == -signal.SIGALRM else f"its tests were ended by signal {-code}"
        return Verdict(patch.stem, caught=False, detail=ended)
    return Verdict(patch.stem, caught=code == 1 and " failed" in last, detail=last)


def _git_apply(patch: Path, scratch: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "apply", "--whitespace=nowarn", *more, str(patch)]
    return subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)


def prepare(scratch: Path) -> None:
    """Copy the project and compile it; a module that a mutant changes is told by its hash."""
    copy_project(scratch)
    compile_all = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "reconciler", "tests"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *compile_all], cwd=scratch, env=environment, check=True)


def judge_all(patches: list[Path], workers: int) -> Iterator[Verdict]:
    """Yield the verdicts in order, `workers` mutants at a time, each worker on a copy of its own."""
    checkouts: queue.SimpleQueue[Checkout] = queue.SimpleQueue()

    def judged(patch: Path) -> Verdict:
        checkout = checkouts.get()
        try:
            return judge(patch, checkout)
        finally:
            checkouts.put(checkout)

    with ExitStack() as stack:
        for _ in range(min(workers, len(patches))):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutant-")))
            checkouts.put(stack.enter_context(Checkout(directory)))
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        yield from pool.map(judged, patches)


def main(chosen: list[str]) -> int:
    """Judge the mutants, print a line each and the survivors once more at the end; return 1 if there are any."""
    patches = sorted(HERE.glob("*.patch"))
    wanted = [p for p in patches if not chosen or any(part in p.stem for part in chosen)]
    survivors = []
    for verdict in judge_all(wanted, os.cpu_count() or 1):
        line = f"{'caught  ' if verdict.caught else 'SURVIVED'} {verdict.name}: {verdict.detail}"
        print(line, flush=True)
        if not verdict.caught:
            survivors.append(line)
    print(*survivors, f"{len(wanted) - len(survivors)} of {len(wanted)} mutants caught", sep="\n")
    return 1 if survivors or not wanted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
