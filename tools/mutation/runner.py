"""Run the tests of each mutant in a fork of a process that has imported the package and the tests.

A mutant is installed by replacing the code of its function, wherever that function is referred to. The
commands of end-to-end tests run in forks of the same process (`tests.support.command_server`). A test catches
a mutant if it fails twice with it, the second time alone, and passes alone without it.
"""

import contextlib
import enum
import gc
import importlib
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from tools.mutation.blocks import clear_caches
from tools.mutation.mutants import Mutant
from tools.mutation.reach import ReachingTest

MEMORY = 6 << 30
SLOWER = 10
PATIENCE_S = 10


class Status(enum.StrEnum):
    """What the tests made of a mutant."""

    CAUGHT = "caught"
    TIMEOUT = "timeout"
    SURVIVED = "survived"
    UNREACHED = "unreached"
    INVALID = "invalid"


@dataclass(frozen=True)
class MutantTests:
    """A mutant and the tests to run on it, in order."""

    mutant: Mutant
    tests: Sequence[ReachingTest]
    reaching: int
    """How many tests reach it, also those for which the budget is too small."""
    at_import: bool = False
    """Whether its function runs while the package is imported."""


@dataclass(frozen=True)
class Result:
    """The status of a mutant, the test that caught it, and how many tests ran."""

    subject: MutantTests
    status: Status
    ran: int = 0
    test: str = ""
    seconds: float = 0


@dataclass(eq=False)
class MutantRunner:
    """A plugin of pytest that runs tests on mutants instead of once."""

    root: Path
    package: str
    subjects: Sequence[MutantTests]
    report: Callable[[Result], None]
    fork_server: Callable[[], None]
    is_imported: bool = False
    """Whether the package was imported with the mutant, of which there is one."""
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _functions: dict[tuple[str, str, int], list[FunctionType]] = field(default_factory=dict)
    _sound: dict[str, bool] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _index_functions()
        clear_caches(self.package)
        gc.collect()
        gc.freeze()
        for subject in self.subjects:
            self.report(self._try(subject))
        return True

    def _try(self, subject: MutantTests) -> Result:
        start = time.perf_counter()
        tests = [test for test in subject.tests if test.id in self._items]
        if not (self.is_imported or self._fits(subject.mutant)):
            return Result(subject, Status.INVALID)
        if not tests:
            return Result(subject, Status.UNREACHED)
        ran = 0
        while ran < len(tests):
            failed = self._run(subject.mutant, tests[ran:])
            if failed is None:
                ran = len(tests)
                break
            ran += failed.number + 1
            test = tests[ran - 1]
            if self._is_sound(test) and self._run(subject.mutant, [test]):
                status = Status.TIMEOUT if failed.late else Status.CAUGHT
                return Result(subject, status, ran, test.id, time.perf_counter() - start)
        return Result(subject, Status.SURVIVED, ran, seconds=time.perf_counter() - start)

    def _is_sound(self, test: ReachingTest) -> bool:
        """Tell whether a test passes alone without a mutant."""
        if test.id not in self._sound:
            self._sound[test.id] = self.is_imported or self._run(None, [test]) is None
        return self._sound[test.id]

    def _run(self, mutant: Mutant | None, tests: Sequence[ReachingTest]) -> "Failure | None":
        """Run tests in a fork until one fails; return its number."""
        with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as scratch:
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                self._become_test_run(mutant, tests, Path(scratch), writer)
            os.close(writer)
            try:
                return _follow(reader, tests)
            finally:
                os.close(reader)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    def _become_test_run(
        self, mutant: Mutant | None, tests: Sequence[ReachingTest], scratch: Path, progress: int
    ) -> None:
        """Run tests in this fork; write a byte before each and a last one if none failed."""
        with contextlib.suppress(BaseException):
            os.setsid()
            _isolate(scratch)
            if mutant and mutant.function.is_of_worker:
                self._give_to_workers(mutant, scratch / "root")
            elif mutant and not self.is_imported:
                self._install(mutant)
            self.fork_server()
            items = [self._items[test.id] for test in tests]
            items[0].config._tmp_path_factory._basetemp = scratch / "tests"  # pytest has no public way
            (scratch / "tests").mkdir()
            for item, following in zip(items, [*items[1:], None], strict=True):
                os.write(progress, STARTED)
                reports = runtestprotocol(item, log=False, nextitem=following)
                if any(report.failed for report in reports):
                    os.write(progress, FAILED)
                    os._exit(1)
            os.write(progress, PASSED)
        os._exit(0)

    def _install(self, mutant: Mutant) -> None:
        for function, code in self._replacements(mutant):
            function.__code__ = code

    def _give_to_workers(self, mutant: Mutant, root: Path) -> None:
        """Let workers import a copy of the package that has the mutant."""
        shutil.copytree(self.root / self.package, root / self.package)  # with what is compiled already
        (root / mutant.function.path).write_text(mutant.source, encoding="utf-8")
        importlib.import_module(f"{self.package}.functions.runtimes.process")._ROOT = str(root)

    def _fits(self, mutant: Mutant) -> bool:
        """Tell whether the mutated code can replace some function: it closes over the same variables."""
        if mutant.function.is_of_worker:
            return True
        replacements = list(self._replacements(mutant))
        fits = (new.co_freevars == old.__code__.co_freevars for old, new in replacements)
        return bool(replacements) and all(fits)

    def _replacements(self, mutant: Mutant) -> Iterator[tuple[FunctionType, CodeType]]:
        path = str(self.root / mutant.function.path)
        for key, code in _codes(compile(mutant.source, path, "exec", dont_inherit=True)):
            if code.co_qualname == mutant.function.name:
                for function in self._functions.get(key, ()):
                    yield function, code


STARTED, FAILED, PASSED = b"s", b"f", b"p"


@dataclass(frozen=True)
class Failure:
    """The test that failed, or that did not end in time."""

    number: int
    late: bool


def _follow(progress: int, tests: Sequence[ReachingTest]) -> Failure | None:
    """Wait for the end of a test run; a test that takes ten times its time, and ten seconds, fails."""
    running = -1
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ready, _, _ = select.select([progress], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return Failure(max(running, 0), late=True)
        news = os.read(progress, 1)
        if news == PASSED:
            return None
        if news != STARTED:  # it failed, or its process died
            if running < 0:
                raise RuntimeError("the tests could not be started")
            return Failure(running, late=False)
        running += 1
        deadline = time.monotonic() + PATIENCE_S + SLOWER * tests[running].seconds


def _isolate(scratch: Path) -> None:
    """Keep what tests print, and what they write outside of their folders, away from everybody."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for name in ("home", "tmp"):
        (scratch / name).mkdir()
    os.environ |= {"HOME": str(scratch / "home"), "TMPDIR": str(scratch / "tmp")}
    tempfile.tempdir = str(scratch / "tmp")


def _index_functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """Find every function of the process by file, name and line."""
    gc.unfreeze()  # what the tests froze is not listed
    functions: dict[tuple[str, str, int], list[FunctionType]] = {}
    for function in gc.get_objects():
        if isinstance(function, FunctionType):
            functions.setdefault(_key(function.__code__), []).append(function)
    return functions


def _key(code: CodeType) -> tuple[str, str, int]:
    return (code.co_filename, code.co_qualname, code.co_firstlineno)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, str, int], CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield _key(constant), constant
            yield from _codes(constant)
