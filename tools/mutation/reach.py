"""Record which blocks of the package each test enters and how much CPU time it takes.

The time is that of the test's process, of its children and of the commands of the command server, so that
the tests of a mutant do not depend on what else the machine does.

A record is kept per test file under the hash of its content. A function that changed since is looked up as
a whole, a new one as its module: an outdated record can hide a test from a mutant and so let it survive, but
it can catch none.
"""

import ast
import contextlib
import functools
import gzip
import hashlib
import json
import resource
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from tests.support.command_server import cpu_seconds_of_commands
from tools.mutation.blocks import Block, Marks, clear_caches, read_blocks
from tools.mutation.mutants import Function

LONGEST_S = 45
"""The time on the clock after which a test is given up: much more than the CPU time of those that count."""

ASKS = "reconciler/functions/runtimes/process.py::Worker.ask"


@dataclass(eq=False)
class Recorder:
    """A plugin of pytest that notes the blocks and the CPU seconds of each test that passes."""

    marks: Marks
    tests: dict[str, tuple[float, set[int]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _shared: dict[int, tuple[float, set[int]]] = field(default_factory=dict)
    _entered: set[int] = field(default_factory=set)
    _shared_seconds: float = 0
    _passed: bool = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        clear_caches(self.marks.package)
        self.marks.take()
        self._entered, self._shared_seconds, self._passed = set(), 0, False
        start = _cpu_seconds()
        try:
            return (yield)
        finally:
            seconds = _cpu_seconds() - start - self._shared_seconds
            entered = self._entered | self.marks.take()
            for shared in self._shared_fixtures(item):
                seconds += shared[0]
                entered |= shared[1]
            if self._passed:
                self.tests[item.nodeid] = (seconds, entered)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Give up a test that takes too long to be run on a mutant."""
        signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        """Count what a fixture of a module or session enters for every test that uses it."""
        if fixturedef.scope == "function":
            return (yield)
        before = self._entered | self.marks.take()
        self._entered = set()
        start = _cpu_seconds()
        try:
            return (yield)
        finally:
            seconds = _cpu_seconds() - start
            entered = self._entered | self.marks.take()
            self._shared[id(fixturedef)] = (seconds, entered)
            self._shared_seconds += seconds
            self._entered = before | entered

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
        report = yield
        if call.when == "call":
            self._passed = report.passed
        if report.failed:
            self.failed.append(report.nodeid)
        return report

    def _shared_fixtures(self, item: pytest.Item) -> Iterator[tuple[float, set[int]]]:
        definitions = getattr(item, "_fixtureinfo", None)
        for fixtures in definitions.name2fixturedefs.values() if definitions else ():
            for fixture in fixtures:
                if id(fixture) in self._shared:
                    yield self._shared[id(fixture)]


def _cpu_seconds() -> float:
    """Return what this process, the children that it waited for and its commands have used."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + cpu_seconds_of_commands()


def _give_up(*_: object) -> NoReturn:
    raise TimeoutError(f"the test takes longer than {LONGEST_S} s")


@dataclass(frozen=True)
class ReachingTest:
    """A test that reaches a line, and the CPU time that it takes alone."""

    seconds: float
    id: str


@dataclass(eq=False)
class Reach:
    """What the tests of a project reach, recorded in a folder."""

    root: Path
    folder: Path

    def find_unrecorded(self, files: Iterable[Path]) -> list[Path]:
        """Return the test files that have no record of their content."""
        return [file for file in files if not self._record_of(file).exists()]

    def write_imported(self, marks: Marks) -> None:
        """Keep which functions ran while the package was imported."""
        self.folder.mkdir(parents=True, exist_ok=True)
        names = {marks.names[number].partition("#")[0] for number in marks.take()}
        self._imported.write_text(json.dumps(sorted(names)), encoding="utf-8")

    def find_imported(self) -> set[str]:
        """Return the functions that run while the package is imported."""
        return set(json.loads(self._imported.read_text())) if self._imported.exists() else set()

    def write(self, recorder: Recorder, files: Collection[Path]) -> None:
        """Keep what was recorded, per test file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = {name.partition("#")[0] for name in recorder.marks.names} | self._recorded_functions()
        self._functions.write_text(json.dumps(sorted(there)), encoding="utf-8")
        for file in files:
            own = str(file.relative_to(self.root))
            tests = {id_: test for id_, test in recorder.tests.items() if id_.partition("::")[0] == own}
            numbers = sorted(set().union(*(entered for _, entered in tests.values())))
            position = {number: index for index, number in enumerate(numbers)}
            names = [recorder.marks.names[number] for number in numbers]
            functions = sorted({name.partition("#")[0] for name in names})
            record = {
                "file": own,
                "blocks": names,
                "functions": {function: self._hash(function) for function in functions},
                "tests": {
                    id_: [round(seconds, 4), sorted(position[number] for number in entered)]
                    for id_, (seconds, entered) in tests.items()
                },
            }
            with gzip.open(self._record_of(file), "wt", encoding="utf-8", compresslevel=3) as out:
                json.dump(record, out)

    def find_tests(
        self, lines: Collection[tuple[Function, int]], files: Iterable[Path]
    ) -> dict[tuple[Function, int], list[ReachingTest]]:
        """Return the tests of each line of a function, the shortest first.

        What a function does while modules are imported is there before every test: its tests are those that
        enter its folder, and those that enter nothing because they read what is there.
        """
        imported = self.find_imported()
        records = [record for file in files if (record := self._read(file))]
        recorded = self._recorded_functions()
        tests: dict[tuple[Function, int], list[ReachingTest]] = {at: [] for at in lines}
        for at in lines:
            # A worker marks nothing: its tests are those that ask one.
            block = Block(ASKS, 0, 0, 0) if at[0].is_of_worker else self._block_at(*at)
            for record in records:
                if block.function in imported:
                    tests[at] += _tests_in(record, "/".join(at[0].path.split("/")[:2]))
                    continue
                tests[at] += _tests_of(
                    record, block, self._hash(block.function), is_new=block.function not in recorded
                )
            tests[at].sort(key=lambda test: (test.seconds, test.id))
        return tests

    def _read(self, file: Path) -> dict[str, Any] | None:
        """Read a record, with the numbers of the blocks of each block's name, function and module."""
        try:
            with gzip.open(self._record_of(file), "rt") as text:
                record = cast("dict[str, Any]", json.load(text))
        except FileNotFoundError:
            return None
        record["numbers"] = numbers = dict[str, set[int]]()
        for number, name in enumerate(record["blocks"]):
            for part in {name, name.partition("#")[0], name.partition("::")[0]}:
                numbers.setdefault(part, set()).add(number)
        return record

    @property
    def _imported(self) -> Path:
        return self.folder / "imported.json"

    @property
    def _functions(self) -> Path:
        """The list of all functions that were there when tests were recorded, reached or not."""
        return self.folder / "functions.json"

    def _recorded_functions(self) -> set[str]:
        return set(json.loads(self._functions.read_text())) if self._functions.exists() else set()

    def _record_of(self, file: Path) -> Path:
        content = str(file.relative_to(self.root)).encode() + b"\0" + file.read_bytes()
        return self.folder / f"{hashlib.sha256(content).hexdigest()[:24]}.json.gz"

    def _block_at(self, function: Function, line: int) -> Block:
        blocks = [
            block
            for block in read_blocks(self.root / function.path, function.path)
            if block.function == str(function) and block.first <= line <= block.last
        ]
        whole = Block(str(function), 0, function.first, function.last)
        return min(blocks, key=lambda block: (block.last - block.first, -block.number), default=whole)

    def _hash(self, function: str) -> str:
        return hash_functions(self.root, function.partition("::")[0]).get(function, "")


@functools.cache
def hash_functions(root: Path, path: str) -> Mapping[str, str]:
    """Return a hash of the code of each function of a file, without its formatting and its place."""
    hashes: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError):
        _hash_bodies(ast.parse((root / path).read_text(encoding="utf-8")).body, f"{path}::", hashes)
    return hashes


def _hash_bodies(body: Iterable[ast.stmt], prefix: str, hashes: dict[str, str]) -> None:
    for node in body:
        if isinstance(node, ast.ClassDef):
            _hash_bodies(node.body, f"{prefix}{node.name}.", hashes)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            hashes[prefix + node.name] = hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12]


def _tests_in(record: Mapping[str, Any], folder: str) -> Iterator[ReachingTest]:
    """Yield the tests of a record that enter a folder, or nothing."""
    numbers = {n for n, name in enumerate(record["blocks"]) if name.startswith(f"{folder}/")}
    for id_, (seconds, entered) in record["tests"].items():
        if not entered or not numbers.isdisjoint(entered):
            yield ReachingTest(seconds, id_)


def _tests_of(record: Mapping[str, Any], block: Block, code: str, *, is_new: bool) -> Iterator[ReachingTest]:
    """Yield the tests of a record that enter a block, or its function or module if that changed since."""
    is_same = record["functions"].get(block.function) == code
    place = block.name if is_same else block.function.partition("::")[0] if is_new else block.function
    numbers = record["numbers"].get(place, ())
    for id_, (seconds, entered) in record["tests"].items() if numbers else ():
        if not numbers.isdisjoint(entered):
            yield ReachingTest(seconds, id_)
