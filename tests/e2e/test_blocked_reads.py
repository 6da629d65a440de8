"""What never answers costs its own repository only, and a signal ends every wait: real pipes and signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.git import local
from tests.support.command_server import run_reconciler
from tests.support.git import Repo
from tests.support.samples import sample
from tests.support.small_world import repository, write_world
from tests.support.world import World, refs

pytestmark = pytest.mark.slow

EDGES = ("edge-1", "edge-2", "edge-3")
OBJECT = "objects/00/" + "0" * 38
PLACES = ("packed-refs", "config", OBJECT, "objects/info/alternates")
SECONDS = 20.0
"""Within which a run ends that has something to wait for; a signal ends it within five or so."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "world", EDGES)


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def has_draft(world: World, edge: str) -> bool:
    return any("drafts/web/" in ref for ref in refs(world.root / f"{edge}.git"))


@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_in_a_downstream_costs_that_repository_only(place: str, world: World) -> None:
    before = refs(world.root / "edge-2.git")
    odd = pipe(world.root / "edge-2.git" / place)

    applied = world.run("apply")

    assert applied.code == Exit.UNAVAILABLE, applied
    assert f"{odd} is a named pipe, not a file, and is not read" in applied.out + applied.err
    assert "Remove it. A repository has files and directories only." in applied.out + applied.err
    assert [has_draft(world, edge) for edge in ("edge-1", "edge-3")] == [True, True]
    odd.unlink()
    if place not in {"HEAD", "config"}:  # without them it is no repository
        assert refs(world.root / "edge-2.git") == before


def test_a_file_system_that_does_not_answer_costs_one_deadline(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONCILER_LIMITS_READ_SECONDS", "1")
    dead = pipe(tmp_path / "dead")
    look = local._check_repository

    def looking(path: Path) -> None:
        if path.name == "edge-2.git":
            dead.open()  # as the file of a dead mount: it is never opened
        look(path)

    monkeypatch.setattr(local, "_check_repository", looking)
    begun = time.monotonic()
    applied = world.run("apply")

    assert applied.code == Exit.UNAVAILABLE, applied
    assert "edge-2.git: no answer within 1 s" in applied.out + applied.err
    assert "limits.readSeconds" in applied.out + applied.err
    assert [has_draft(world, edge) for edge in EDGES] == [True, False, True]
    assert time.monotonic() - begun < SECONDS


def run(arguments: Sequence[str], cwd: Path) -> tuple[int, str]:
    done = run_reconciler(arguments, cwd=cwd, env=environment(cwd))
    return done.returncode, done.stdout + done.stderr


def environment(cwd: Path) -> dict[str, str]:
    given = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI_", "RECONCILER_"))}
    return {**given, "XDG_CACHE_HOME": str(cwd.parent / "xdg")}


_MAIN = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background inherit that it is ignored
from reconciler.cli.main import entrypoint
entrypoint()
"""
_BLIND = """\
from reconciler.git import local, repository, working_copy
def opens(path, *_):
    with open("opened", "a") as log:
        print(path, file=log)
for module in (local, repository, working_copy):
    for name in ("check_repository", "check_around"):
        setattr(module, name, opens)
"""
"""As if every pipe had come after it was looked for: libgit2 waits, and no other thread runs."""


@contextmanager
def running(
    arguments: Sequence[str], cwd: Path, *, stdin: int = subprocess.DEVNULL, before: str = ""
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", f"{before}{_MAIN}", *arguments],
        cwd=cwd,
        env=environment(cwd),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SIGNALS = [signal.SIGTERM, signal.SIGINT]


def stopped(process: subprocess.Popen[str], number: int, ready: Callable[[], bool]) -> str:
    """Send a signal once the process waits, and return what it said; it must end in time, and for ever."""
    until = time.monotonic() + SECONDS
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.5)
    workers = children(process.pid)
    process.send_signal(number)
    begun = time.monotonic()
    said, _ = process.communicate(timeout=SECONDS)
    assert time.monotonic() - begun < 10
    assert process.returncode == Exit.PARTIAL, said
    assert said.count("The run was stopped by a signal") == 1, said
    assert not any(map(is_alive, workers))
    return said


def is_opened(path: Path) -> bool:
    """Return whether the process that is blind opens the repository, and so waits for the pipe in it."""
    log = path.parent / "opened"
    return log.exists() and str(path) in log.read_text().split()


def holds(process: subprocess.Popen[str], path: Path) -> bool:
    """Return whether a child holds the file open, as one does that waits for its lock."""
    return any(
        os.path.realpath(link) == str(path.resolve())
        for child in children(process.pid)
        for link in Path(f"/proc/{child}/fd").iterdir()
    )


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("place", ["packed-refs", "objects/info/alternates"])
def test_a_signal_ends_a_wait_inside_of_libgit2(number: int, place: str, world: World) -> None:
    pipe(world.root / "edge-2.git" / place)
    before = {path.name: refs(path) for path in world.root.glob("*.git") if path.name != "edge-2.git"}

    with running(["apply", "--control", "control.git"], world.root, before=_BLIND) as process:
        stopped(process, number, lambda: is_opened(world.root / "edge-2.git"))

    assert {name: refs(world.root / name) for name in before} == before
    (world.root / "edge-2.git" / place).unlink()
    assert run(["apply", "--control", "control.git"], world.root)[0] == Exit.DONE
    assert all(has_draft(world, edge) for edge in EDGES)


PIPED = [
    ["snapshot", "import", "PIPE", "--cluster", "c", "--out-dir", "out"],
    ["validate", "PIPE"],
    ["apply", "PIPE"],
    ["package", "render", ".", "--config", "PIPE"],
]


@pytest.mark.parametrize("arguments", sample(PIPED, 4))
def test_a_signal_ends_the_wait_for_a_named_pipe(arguments: list[str], world: World) -> None:
    odd = pipe(world.root / "pipe")
    package = world.root / "package"
    package.mkdir()
    (package / "Kptfile").write_text("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: a\n")
    words = [str(odd) if word == "PIPE" else word for word in arguments]
    with running(words, package) as process:
        stopped(process, signal.SIGTERM, lambda: bool(children(process.pid)))


def test_a_signal_ends_the_wait_for_a_lock_that_another_process_holds(world: World) -> None:
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=1)"
    serving = repository("far").replace("../far.git", "http://127.0.0.1:9/far.git")
    Repo(world.root / "control.git").commit({"manifests/far.yaml": serving})
    assert run(["apply", "--control", "control.git"], world.root)[0] == Exit.UNAVAILABLE
    (lock,) = (world.root.parent / "xdg" / "reconciler").glob("far*.flock")
    with subprocess.Popen(
        [sys.executable, "-c", f"{hold}; time.sleep(99)", str(lock)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            with running(["apply", "--control", "control.git"], world.root) as process:
                stopped(process, signal.SIGTERM, lambda: holds(process, lock))
        finally:
            holder.kill()


STARLARK = """\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web
pipeline:
  mutators:
  - image: gcr.io/kpt-fn/starlark:v0.4
    configPath: fn.yaml
"""
SCRIPT = """\
apiVersion: fn.kpt.dev/v1alpha1
kind: StarlarkRun
metadata:
  name: slow
source: |
  [('a' * 10000000).count('b') for _ in range(100000)]
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_function_and_the_processes_that_it_runs_in(number: int, tmp_path: Path) -> None:
    (tmp_path / "Kptfile").write_text(STARLARK)
    (tmp_path / "fn.yaml").write_text(SCRIPT)
    with running(["package", "render"], tmp_path) as process:

        def workers() -> list[int]:
            return [worker for child in children(process.pid) for worker in children(child)]

        until = time.monotonic() + SECONDS
        while not workers() and time.monotonic() < until:
            time.sleep(0.05)
        inner = workers()
        stopped(process, number, lambda: bool(inner))
    time.sleep(0.2)
    assert inner
    assert not any(map(is_alive, inner))


def test_a_second_signal_kills_at_once(world: World) -> None:
    pipe(world.root / "edge-2.git" / "packed-refs")
    with running(["apply", "--control", "control.git"], world.root, before=_BLIND) as process:
        until = time.monotonic() + SECONDS
        while not is_opened(world.root / "edge-2.git"):
            assert time.monotonic() < until
            time.sleep(0.05)
        workers = children(process.pid)
        process.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=2)

    time.sleep(0.2)
    assert process.returncode == -signal.SIGTERM
    assert not any(map(is_alive, workers))


@pytest.mark.parametrize("place", ["HEAD", "packed-refs", "config"])
@pytest.mark.parametrize("form", ["bare", "copy"])
def test_a_pipe_in_the_control_repository_is_named(
    place: str, form: str, world: World, tmp_path: Path
) -> None:
    control = world.root / "control.git"
    if form == "copy":
        control = tmp_path / "copy"
        subprocess.run(["git", "clone", "-q", str(world.root / "control.git"), str(control)], check=True)
    odd = pipe(control / (".git" if form == "copy" else "") / place)

    for command in ("apply", "check"):
        code, said = run([command, "--control", str(control)], world.root)
        assert code == Exit.UNAVAILABLE, (command, said)
        assert f"{odd} is a named pipe" in said
    assert run(["doctor", "--control", str(control)], world.root)[0] == Exit.INVALID_INPUT
