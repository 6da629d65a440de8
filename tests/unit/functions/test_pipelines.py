"""Many packages at once: the same results in the same order, however they were made."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.progress import NoDisplay, open_task, show_on
from reconciler.base.timing import SpanKind, TimeSpan, is_watched, watching
from reconciler.cli.progress_line import ProgressLine
from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.runtimes.pipelines import _Pool, open_pipelines
from reconciler.functions.runtimes.result_cache import PackageCache
from reconciler.functions.step import PipelineResult
from reconciler.names.objects import File, Files
from reconciler.policy import FunctionPolicy
from tests.support.command_server import PROJECT
from tests.support.values import replace

POLICY = FunctionPolicy()
KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p{n}\npipeline:\n  mutators:\n{steps}"
NAMESPACE = "  - image: set-namespace:v0.4\n    configMap: {{namespace: n{n}}}\n"
WARNING = "  - image: apply-setters:v0.2\n    configMap: {{one: x-y}}\n"
FAILING = "  - image: set-image:v0.1\n"
SERVICE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  x: a-a # kpt-set: ${two}-${one}\n"


def package(n: int, *steps: str) -> Files:
    kptfile = KPTFILE.format(n=n, steps="".join(step.format(n=n) for step in steps))
    return {"Kptfile": File.of(kptfile.encode()), "s.yaml": File.of(SERVICE.encode())}


def run(packages: Sequence[Files], policy: FunctionPolicy = POLICY, **how: object) -> list[PipelineResult]:
    with open_pipelines(policy, **how) as run_all:  # type: ignore[arg-type]
        return list(run_all(packages))


FLEET = [package(n, *([FAILING] if n % 7 == 3 else [WARNING, NAMESPACE][: n % 3])) for n in range(80)]


def test_results_do_not_depend_on_number_of_processes() -> None:
    alone = [run_pipeline(files) for files in FLEET]

    assert run(FLEET, processes=2) == alone
    assert run(FLEET, processes=1) == alone
    assert any(result.error for result in alone)
    assert any(result.results for result in alone)


def test_no_packages_have_no_results() -> None:
    assert run([]) == []


def test_work_of_killed_process_is_done_here(tmp_path: Path) -> None:
    function = tmp_path / "function"
    function.write_text(f'#!/bin/sh\n[ "$PPID" = {os.getpid()} ] || kill -9 "$PPID"\ncat\n')
    function.chmod(0o755)
    steps = NAMESPACE, "  - exec: f\n"

    results = run(
        [package(n, *steps) for n in range(3)],
        replace(POLICY, exec={"f": str(function)}),
        processes=2,
    )

    assert [result.error for result in results] == ["", "", ""]
    assert b"namespace: n2" in results[2].files["s.yaml"].data


def test_other_processes_end_with_a_killed_one_and_end_their_functions(tmp_path: Path) -> None:
    """What a signal does in this process, it does not do in its forks."""
    signals = tmp_path / "signals"
    function = tmp_path / "function"
    function.write_text(
        f"""#!/bin/sh
[ "$PPID" = {os.getpid()} ] && exec cat
if mkdir {tmp_path}/one 2>/dev/null; then
    while ! test -e {tmp_path}/busy; do sleep 0.02; done
    kill -9 "$PPID"
else
    echo $$ >{tmp_path}/busy
    exec sleep 600
fi
"""
    )
    function.chmod(0o755)
    before = signal.signal(signal.SIGTERM, lambda *_: signals.touch())
    try:
        results = run(
            [package(n, NAMESPACE, "  - exec: f\n") for n in range(4)],
            replace(POLICY, exec={"f": str(function)}),
            processes=2,
        )
    finally:
        signal.signal(signal.SIGTERM, before)

    assert [result.error for result in results] == [""] * 4
    assert not signals.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "busy").read_text()), 0)


KILLED = """\
import sys
from tests.support.values import replace
from tests.unit.functions.test_pipelines import NAMESPACE, POLICY, package, run

packages = [package(n, NAMESPACE, "  - exec: f\\n") for n in range(2)]
run(packages, replace(POLICY, exec={"f": sys.argv[1]}), processes=2)
"""


def test_processes_end_with_the_run_that_is_killed(tmp_path: Path) -> None:
    """They hold its output open, and would wait for work for ever."""
    function = tmp_path / "function"
    function.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/$$\nexec sleep 600\n")
    function.chmod(0o755)
    command = [sys.executable, "-c", KILLED, str(function)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as killed:
        while len(functions := [path.name for path in tmp_path.iterdir() if path.name.isdecimal()]) < 2:
            assert killed.poll() is None
            time.sleep(0.02)
        killed.kill()
        out, _ = killed.communicate(timeout=60)

    assert out == b""
    for function_id in map(int, functions):
        with pytest.raises(ProcessLookupError):
            os.kill(function_id, 0)


def test_result_is_cached(tmp_path: Path) -> None:
    files = package(1, WARNING, NAMESPACE)
    (made,) = run([files], cache=tmp_path)

    cached = PackageCache(tmp_path / "packages", POLICY).find(files)

    assert cached == made
    assert cached is not None
    assert cached.results[0].severity == "warning"
    assert run([files], cache=tmp_path) == [made]


OTHERS = [
    ("another package", package(2, NAMESPACE), POLICY),
    ("another configuration", package(1, NAMESPACE.replace("n{n}", "other")), POLICY),
    ("the faults of upstream", package(1, NAMESPACE), FunctionPolicy(compatible=True)),
    ("floating tags", package(1, NAMESPACE), FunctionPolicy(claim_floating=False)),
    ("a pinned image", package(1, NAMESPACE), FunctionPolicy(images={"a:v1": "sha256:0"})),
    ("executables that may change", package(1, NAMESPACE), FunctionPolicy(exec={"a": "/bin/cat"})),
    ("the network", package(1, NAMESPACE), FunctionPolicy(network=("a",))),
]


@pytest.mark.parametrize(("reason", "files", "policy"), OTHERS, ids=[case[0] for case in OTHERS])
def test_other_inputs_miss_the_cache(
    tmp_path: Path, reason: str, files: Files, policy: FunctionPolicy
) -> None:
    run([package(1, NAMESPACE)], cache=tmp_path)

    assert PackageCache(tmp_path / "packages", policy).find(files) is None, reason


def test_other_definitions_miss_the_cache(tmp_path: Path) -> None:
    files = package(1, NAMESPACE)
    run([files], cache=tmp_path)

    definitions = [{"kind": "CustomResourceDefinition"}]

    assert PackageCache(tmp_path / "packages", POLICY, definitions).find(files) is None


def test_failed_pipeline_is_not_cached(tmp_path: Path) -> None:
    files = package(1, FAILING)
    (failed,) = run([files], cache=tmp_path)

    assert failed.error
    assert PackageCache(tmp_path / "packages", POLICY).find(files) is None


def test_damaged_result_is_ignored(tmp_path: Path) -> None:
    files = package(1, NAMESPACE)
    (made,) = run([files], cache=tmp_path)
    (kept,) = (tmp_path / "packages").iterdir()

    for damage in (b"", b"{}\n", b"nonsense", kept.read_bytes()[:-1]):
        kept.write_bytes(damage)
        assert run([files], cache=tmp_path) == [made]


def test_oldest_results_are_pruned(tmp_path: Path) -> None:
    rendered = PackageCache(tmp_path, POLICY)
    for n in range(4):
        rendered.keep(package(n, NAMESPACE), run_pipeline(package(n, NAMESPACE)))
        os.utime(max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns), (n, n))

    rendered.prune(most_bytes=2 * max(path.stat().st_size for path in tmp_path.iterdir()))

    assert [rendered.find(package(n, NAMESPACE)) is None for n in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("processes", [1, 2])
def test_packages_and_functions_are_measured_in_every_process(processes: int) -> None:
    spans: list[TimeSpan] = []
    located = [with_location(n, NAMESPACE, WARNING) for n in range(65)]

    with watching(spans.append):
        run([*located, package(99)], processes=processes)

    packages = [span.name for span in spans if span.kind is SpanKind.PACKAGE]
    functions = [span.name for span in spans if span.kind is SpanKind.FUNCTION]
    assert sorted(packages) == sorted(f"edge-{n}/web" for n in range(65))  # the last one has no functions
    assert {name: functions.count(name) for name in functions} == {
        "set-namespace:v0.4": 65,
        "apply-setters:v0.2": 65,
    }
    assert all(span.seconds >= 0 for span in spans)


def test_progress_is_counted_and_its_thread_prevents_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[int] = []
    run_forked = _Pool._run_forked

    def note_fork(pool: _Pool, packages: Sequence[Files]) -> Iterator[Any]:
        forked.append(len(packages))
        return run_forked(pool, packages)

    monkeypatch.setattr(_Pool, "_run_forked", note_fork)
    line = ProgressLine(os.open(os.devnull, os.O_WRONLY))
    show_on(line)
    try:
        with open_task("working"):
            results = run(FLEET, processes=2)
        threads = threading.active_count()
        with line.paused():
            assert threading.active_count() == threads - 1
    finally:
        show_on(NoDisplay())

    assert forked == [len(FLEET)]
    assert results == [run_pipeline(files) for files in FLEET]


def with_location(n: int, *steps: str) -> Files:
    files = package(n, *steps)
    annotations = f"  name: p{n}\n  annotations:\n    reconciler.dev/location: edge-{n}/web\n".encode()
    kptfile = files["Kptfile"].data.replace(f"  name: p{n}\n".encode(), annotations)
    return {**files, "Kptfile": File.of(kptfile)}


def test_nobody_watches_so_nothing_is_measured() -> None:
    spans: list[TimeSpan] = []

    run([with_location(n, NAMESPACE) for n in range(2)])

    assert spans == []
    assert not is_watched()
