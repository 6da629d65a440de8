"""Apply each kept mutant to a scratch copy, and require that the tests it names fail.

`anchors.py` says what a mutant is. Arguments choose mutants by part of their name, or, after `--changed`,
those of the files that differ from a commit. One mutant a core is tried at a time, its tests in a fork of a
process that has imported the libraries. The mutant of a requirement is called by the number of its row in
`docs/contributing/requirements.md`, as R83 is.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.mutants.anchors import Mutant, changed, read_mutants

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
COPIED = ("reconciler", "tests", "tools", "templates", "fixtures", "pyproject.toml")
TIMEOUT_S = 600


class Verdict(NamedTuple):
    """What became of one mutant."""

    name: str
    caught: bool
    detail: str


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


def judge(mutant: Mutant, checkout: Checkout) -> Verdict:
    """Make one mutant in a copy, run its tests, and take it back; it is caught if they fail."""
    sources = {edit.path: (checkout.scratch / edit.path).read_text(encoding="utf-8") for edit in mutant.edits}
    mutated = dict(sources)
    try:
        for edit in mutant.edits:
            mutated[edit.path] = changed(mutated[edit.path], edit)
    except ValueError as error:
        return Verdict(mutant.name, caught=False, detail=f"does not apply: {error}")
    try:
        _write(checkout.scratch, mutated)
        code, last = checkout.run(list(mutant.tests))
    finally:
        _write(checkout.scratch, sources)
    if code < 0:
        late = f"its tests did not end in {TIMEOUT_S} s"
        ended = late if code == -signal.SIGALRM else f"its tests were ended by signal {-code}"
        return Verdict(mutant.name, caught=False, detail=ended)
    return Verdict(mutant.name, caught=code == 1 and " failed" in last, detail=last)


def _write(scratch: Path, sources: dict[str, str]) -> None:
    for path, source in sources.items():
        (scratch / path).write_text(source, encoding="utf-8")


def prepare(scratch: Path) -> None:
    """Copy the project and compile it; a module that a mutant changes is told by its hash."""
    copy_project(scratch)
    compile_all = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *COPIED[:3]]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *compile_all], cwd=scratch, env=environment, check=True)


def judge_all(mutants: list[Mutant], workers: int) -> Iterator[Verdict]:
    """Yield the verdicts in order, `workers` mutants at a time, each worker on a copy of its own."""
    checkouts: queue.SimpleQueue[Checkout] = queue.SimpleQueue()

    def judged(mutant: Mutant) -> Verdict:
        checkout = checkouts.get()
        try:
            return judge(mutant, checkout)
        finally:
            checkouts.put(checkout)

    with ExitStack() as stack:
        for _ in range(min(workers, len(mutants))):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutant-")))
            checkouts.put(stack.enter_context(Checkout(directory)))
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        yield from pool.map(judged, mutants)


def _changed_files(commit: str) -> set[str]:
    command = ["git", "diff", "--name-only", commit]
    return set(
        subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    )


def main(chosen: list[str]) -> int:
    """Judge the mutants, a line each and the survivors once more at the end; return 1 if there are any."""
    mutants = read_mutants()
    if chosen[:1] == ["--changed"]:
        files = _changed_files(chosen[1])
        wanted = [each for each in mutants if any(edit.path in files for edit in each.edits)]
        if not wanted:
            print("no file of a kept mutant was changed")
            return 0
    else:
        wanted = [each for each in mutants if not chosen or any(part in each.name for part in chosen)]
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
