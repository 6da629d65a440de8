"""Many packages at once: the same results in the same order, however they were made."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.runtimes.pipelines import open_pipelines
from reconciler.functions.runtimes.result_cache import PackageCache
from reconciler.functions.step import PipelineResult
from reconciler.names.objects import File, Files
from reconciler.policy import FunctionPolicy, Limits
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


def test_results_have_the_order_of_the_packages() -> None:
    alone = [run_pipeline(files) for files in FLEET]

    assert run(FLEET) == alone
    assert any(result.error for result in alone)
    assert any(result.results for result in alone)


def test_no_packages_have_no_results() -> None:
    assert run([]) == []


def executable(directory: Path, script: str) -> FunctionPolicy:
    """Return a policy with an executable `f`, of which two run at a time."""
    function = directory / "function"
    function.write_text(f"#!/bin/sh\n{script}\n")
    function.chmod(0o755)
    return replace(POLICY, exec={"f": str(function)})


def test_executables_run_side_by_side(tmp_path: Path) -> None:
    """Each waits until another one has started."""
    wait = f"touch {tmp_path}/$$\nwhile [ $(ls {tmp_path} | wc -l) -lt 3 ]; do sleep 0.02; done\ncat"
    packages = [package(n, NAMESPACE, *(["  - exec: f\n"] if n % 2 else [])) for n in range(4)]

    results = run(packages, executable(tmp_path, wait))

    assert [result.error for result in results] == [""] * 4
    assert b"namespace: n3" in results[3].files["s.yaml"].data


def test_functions_side_by_side_end_when_the_time_of_the_run_is_over(tmp_path: Path) -> None:
    policy = replace(executable(tmp_path, f"echo $$ >{tmp_path}/$$\nexec sleep 600"), run_timeout_s=1)
    begun = time.monotonic()

    results = run([package(n, "  - exec: f\n") for n in range(3)], policy)

    assert time.monotonic() - begun < 10
    assert all(result.is_postponed for result in results)
    assert sorted(result.is_late for result in results) == [False, True, True]
    for function_id in started(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(function_id, 0)


def test_functions_side_by_side_end_with_a_run_that_is_stopped(tmp_path: Path) -> None:
    policy = executable(tmp_path, f"echo $$ >{tmp_path}/$$\nexec sleep 600")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, stop)
    killer = subprocess.Popen(
        ["sh", "-c", f"while [ $(ls {tmp_path} | wc -l) -lt 3 ]; do sleep 0.02; done; kill -USR1 $PPID"]
    )
    try:
        with pytest.raises(KeyboardInterrupt):
            run([package(n, "  - exec: f\n") for n in range(4)], policy)
    finally:
        signal.signal(signal.SIGUSR1, before)
        killer.wait()

    assert len(started(tmp_path)) == 2
    for function_id in started(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(function_id, 0)


def is_running(function_id: int) -> bool:
    try:
        return Path(f"/proc/{function_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def started(directory: Path) -> list[int]:
    return [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]


KILLED = """\
import sys
from tests.support.values import replace
from tests.unit.functions.test_pipelines import NAMESPACE, POLICY, package, run

packages = [package(n, NAMESPACE, "  - exec: f\\n") for n in range(2)]
run(packages, replace(POLICY, exec={"f": sys.argv[1]}))
"""


def test_processes_end_with_the_run_that_is_killed(tmp_path: Path) -> None:
    """They hold its output open, and would wait for work for ever."""
    policy = executable(tmp_path, f"echo $$ >{tmp_path}/$$\nexec sleep 600")
    command = [sys.executable, "-c", KILLED, policy.exec["f"]]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as killed:
        while len(started(tmp_path)) < 2:
            assert killed.poll() is None
            time.sleep(0.02)
        killed.kill()
        out, _ = killed.communicate(timeout=60)

    assert out == b""
    until = time.monotonic() + 10
    while any(map(is_running, started(tmp_path))) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(is_running, started(tmp_path)))


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


def test_other_definitions_and_limits_miss_the_cache(tmp_path: Path) -> None:
    files = package(1, NAMESPACE)
    run([files], cache=tmp_path)

    definitions = [{"kind": "CustomResourceDefinition"}]

    assert PackageCache(tmp_path / "packages", POLICY, definitions).find(files) is None
    for limits in (Limits(package_files=9), Limits(package_bytes=9), Limits(yaml_documents=9)):
        assert PackageCache(tmp_path / "packages", POLICY, limits=limits).find(files) is None


def test_failure_of_a_builtin_is_cached(tmp_path: Path) -> None:
    files = package(1, NAMESPACE, FAILING)
    (failed,) = run([files], cache=tmp_path)

    assert failed.error
    assert PackageCache(tmp_path / "packages", POLICY).find(files) == failed


def test_failure_of_starlark_is_not_cached(tmp_path: Path) -> None:
    """Its time may be over, or its process be killed, without a fault of the package."""
    files = package(1, "  - image: starlark:v0.5\n    configMap: {{source: fail()}}\n")
    (failed,) = run([files], cache=tmp_path)

    assert failed.error
    assert failed.steps
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
