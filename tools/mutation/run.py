"""Try a sample of mutants: print a score per folder and the survivors, and write JSON.

`make mutation SEED=1 N=40 FOLDERS="plan resolve"` draws functions of folders and one mutant of each,
`make mutation CHANGED=origin/main` those of the functions that differ from a base. Only the tests that enter
the mutated block run: those of up to LIMIT seconds, as many as BUDGET seconds allow. Those of the path that
TESTS names first come first; of each path the shortest of every file, then the next one of every file. A
mutant that none of them notices survives.
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

from tools.mutation.blocks import Changed, Marks, import_package
from tools.mutation.mutants import Mutant
from tools.mutation.reach import Reach, Recorder
from tools.mutation.report import find_gates, format_result, print_scores, write_json
from tools.mutation.runner import MutantRunner, MutantTests, Result, Status
from tools.mutation.sample import Sampler, find_stale, read_equivalents

TESTS = "tests/unit tests/property tests/conformance tests/contract tests/e2e"
T = TypeVar("T")
PYTEST = ["-q", "-s", "-pno:xdist", "-pno:cacheprovider", "-Wignore::pytest.PytestAssertRewriteWarning"]

settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    max_examples=50,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the sample that the arguments describe; return 1 if a score is too low."""
    options = _parse(arguments)
    equivalents = read_equivalents(options.equivalents)
    stale = find_stale(options.root, equivalents)
    for entry in stale:
        print(f"error: {entry.file} has no such mutant any more: remove it from {options.equivalents}")
        print(f"{entry.function}\n{entry.change}")
    if stale:
        return 2
    sampler = Sampler(options.root, options.package, options.seed, frozenset(e.key for e in equivalents))
    if options.again:
        mutants = sampler.list_survivors(options.again)
    elif options.changed:
        mutants = sampler.sample_changed(options.changed, options.number)
    else:
        folders = options.folders.split()
        mutants = [m for folder in folders for m in sampler.sample_folder(folder, options.number)]
    results = []
    for result in _try_mutants(options, _choose_tests(options, mutants)):
        results.append(result)
        print(format_result(result), flush=True)
    print(f"\nseed {options.seed}, tests of up to {options.limit:g} s, {options.budget:g} s per mutant")
    print(f"{len(equivalents)} equivalent mutants are left out")
    scores = print_scores(results)
    write_json(options.json, vars(options), results)
    gates = find_gates(scores, len(results), is_change=bool(options.changed))
    return int(any(score < options.minimum for score in gates))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the project")
    parser.add_argument("--package", default="reconciler", help="its package")
    parser.add_argument("--tests", default=TESTS, help="folders and files of tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=25, help="mutants per folder, or in all with --changed")
    parser.add_argument("--folders", default="", help="folders of the package (all)")
    parser.add_argument("--changed", default="", metavar="COMMIT", help="only functions that differ from it")
    parser.add_argument("--again", type=Path, metavar="JSON", help="only the survivors of an earlier result")
    parser.add_argument("--budget", type=float, default=30, help="seconds of tests per mutant")
    parser.add_argument("--limit", type=float, default=3, help="seconds of the longest test")
    parser.add_argument("--minimum", type=float, default=90, help="least score of each folder, in per cent")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--equivalents", type=Path, help="mutants that count for nothing, with reasons")
    options = parser.parse_args(arguments)
    options.root = options.root.resolve()
    package = options.root / options.package
    every = sorted({path.relative_to(package).parts[0].removesuffix(".py") for path in package.rglob("*.py")})
    options.folders = options.folders or " ".join(every)
    options.equivalents = options.equivalents or options.root / "tools/mutation/equivalents.yaml"
    options.json = options.json or options.root / ".mutation/result.json"
    return options


def _test_files(options: argparse.Namespace) -> list[Path]:
    paths = [options.root / name for name in options.tests.split()]
    return sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py")))


def _choose_tests(options: argparse.Namespace, mutants: Sequence[Mutant]) -> list[MutantTests]:
    """Choose the tests of each mutant, after a run of the tests that have no record."""
    if options.changed and not mutants:
        return []
    files = _test_files(options)
    reach = Reach(options.root, options.root / ".mutation/reach")
    if unrecorded := reach.find_unrecorded(files):
        print(f"recording what {len(unrecorded)} test files reach", flush=True)
        start = time.monotonic()
        for failed in _record(options, reach, unrecorded):
            print(f"counts for nothing, because it fails or is too slow: {failed}", flush=True)
        print(f"recorded in {time.monotonic() - start:.0f} s", flush=True)
    tests = reach.find_tests({(mutant.function, mutant.line) for mutant in mutants}, files)
    choice, places = [], options.tests.split()
    imported = reach.find_imported()
    for mutant in mutants:
        turns: Counter[str] = Counter()
        order = []
        for test in tests[mutant.function, mutant.line]:
            file = test.id.partition("::")[0]
            turns[file] += 1
            place = next(number for number, place in enumerate(places) if test.id.startswith(place))
            order.append((place, turns[file], test.seconds, test))
        reaching = [test for *_, test in sorted(order, key=lambda entry: entry[:3])]
        chosen, left = [], options.budget
        for test in reaching:
            left -= test.seconds
            if test.seconds <= options.limit and left >= 0:
                chosen.append(test)
        at_import = str(mutant.function) in imported and not mutant.function.is_of_worker
        choice.append(MutantTests(mutant, chosen, len(reaching), at_import=at_import))
    return choice


def _record(options: argparse.Namespace, reach: Reach, files: Sequence[Path]) -> Iterator[str]:
    """Record what tests reach, and yield the tests that failed."""

    def record(part: Sequence[Path], send: Callable[[str], None]) -> None:
        marks = Marks(options.root, options.package)
        marks.instrument()
        reach.write_imported(marks)
        _server(options)()
        for start in range(0, len(part), 5):
            recorder = Recorder(marks)
            chunk = part[start : start + 5]
            _run_pytest(options, [*map(str, chunk), "-m", "not slow"], recorder)
            reach.write(recorder, chunk)
            for failed in recorder.failed:
                send(failed)

    yield from _in_forks(options, files, record)


def _try_mutants(options: argparse.Namespace, subjects: Sequence[MutantTests]) -> Iterator[Result]:
    def try_part(part: Sequence[MutantTests], send: Callable[[Result], None]) -> None:
        for subject in part:
            if subject.at_import:
                _try_at_import(options, subject, send)
        import_package(options.package)
        _try_on(options, [subject for subject in part if not subject.at_import], send)

    yield from _in_forks(options, subjects, try_part)


def _try_on(
    options: argparse.Namespace,
    subjects: Sequence[MutantTests],
    send: Callable[[Result], None],
    *,
    is_imported: bool = False,
) -> None:
    files = sorted({test.id.partition("::")[0] for subject in subjects for test in subject.tests})
    runner = MutantRunner(
        options.root, options.package, subjects, send, _server(options), is_imported=is_imported
    )
    _run_pytest(options, files, runner)


def _try_at_import(options: argparse.Namespace, subject: MutantTests, send: Callable[[Result], None]) -> None:
    """Import the package with a mutant in a fork that has not imported it yet, and run the tests there."""
    child = os.fork()
    if not child:
        path = options.root / subject.mutant.function.path
        try:
            Changed(options.package, path, subject.mutant.source).install()
        except Exception:  # noqa: BLE001 # whatever it is: there is no package for any test
            send(Result(subject, Status.CAUGHT, test="the import"))
            os._exit(0)
        code = 1
        try:
            _try_on(options, [subject], send, is_imported=True)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"no test could be run on {subject.mutant.function}")


def _in_forks(
    options: argparse.Namespace, work: Sequence[T], do: Callable[[Sequence[T], Callable[[Any], None]], None]
) -> Iterator[Any]:
    """Do the work in as many forks as jobs, each with its part, and yield what they send."""
    log = options.root / ".mutation/log"
    log.parent.mkdir(exist_ok=True)
    fork = multiprocessing.get_context("fork")
    processes: dict[Connection, multiprocessing.process.BaseProcess] = {}
    try:
        for part in filter(None, (work[number :: options.jobs] for number in range(options.jobs))):
            receiver, sender = fork.Pipe(duplex=False)
            process = fork.Process(target=_work, args=(options, log, do, part, sender))
            process.start()
            sender.close()
            processes[receiver] = process
        running = set(processes)
        while running:
            for ready in wait(running):
                try:
                    yield ready.recv()
                except EOFError:
                    running.remove(ready)
                    processes[ready].join()
                    if processes[ready].exitcode:
                        last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-20:])
                        raise RuntimeError(f"a process failed, see {log}, which ends:\n{last}") from None
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)


def _work(options: argparse.Namespace, log: Path, do: Any, part: Sequence[T], sender: Connection) -> None:
    os.setsid()
    with log.open("a") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(options.root)
    sys.path.insert(0, str(options.root))
    do(part, sender.send)
    sys.stdout.flush()


def _run_pytest(options: argparse.Namespace, files: Iterable[str], plugin: object) -> None:
    arguments = [*files, *PYTEST, "--rootdir", str(options.root), "--hypothesis-profile", "mutation"]
    code = pytest.main(arguments, plugins=[plugin])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise RuntimeError(f"pytest ended with {code!r}")


def _server(options: argparse.Namespace) -> Callable[[], None]:
    if options.package != "reconciler":
        return lambda: None
    from tests.support.command_server import fork_server

    return fork_server


if __name__ == "__main__":
    sys.exit(main())
