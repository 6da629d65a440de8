"""Progress on a terminal: shown where work takes over a second, erased at the end, and nowhere else."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler.base.progress import Display, Task, show_on
from reconciler.cli.main import invoke
from reconciler.workdir.starter import SEPARATE, write_demo

pytestmark = pytest.mark.slow

SLOW_GIT = '#!/bin/sh\nsleep {0}\nPATH="${{PATH#*:}}" exec git "$@"\n'
ERASE = "\r\x1b[2K"


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("demo"), 1.3)


def demo(directory: Path, seconds: float = 0.7) -> Path:
    """Write a fleet with a git beside it that takes so long, and return the control repository."""
    write_demo(directory, SEPARATE, clusters=2)
    (directory / "bin").mkdir()
    (directory / "bin/git").write_text(SLOW_GIT.format(seconds))
    (directory / "bin/git").chmod(0o755)
    return directory / "control"


def run(control: Path, *line: str, terminal: bool = True, **variables: str) -> str:
    """Run a command with a slow git, and return what it writes: to a terminal, or to a pipe."""
    path = f"{control.parent / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TERM": "xterm", "NO_COLOR": "1", **variables}
    command = [sys.executable, "-m", "reconciler.cli.main", *line]
    reader, writer = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(
        command, cwd=control, env=environment, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
    ):
        os.close(writer)
        written = b""
        while got := _read(reader):
            written += got
    os.close(reader)
    return written.decode().replace("\r\n", "\n")


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 1 << 16)
    except OSError:  # the other end of a terminal is closed, or there is nothing yet
        return b""


def test_slow_command_shows_progress_and_leaves_clean_screen(control: Path) -> None:
    shown = run(control, "doctor")

    *drawn, left = shown.split(ERASE)
    assert any(line.startswith("fetching repositories: 0 of 3, ") for line in drawn), drawn
    assert "\n" not in "".join(drawn)
    assert left.split() == run(control, "doctor", terminal=False).split()
    assert left.startswith("ok       git: git version 2")  # a terminal without a size wraps as one of 80


def test_apply_shows_its_steps(tmp_path: Path) -> None:
    shown = run(demo(tmp_path), "apply")

    *drawn, left = shown.split(ERASE)
    assert any(line.startswith("applying: ") and " of 8" in line for line in drawn), drawn
    assert "8 effects done, 0 failed.\n" in left


@pytest.mark.parametrize(("options", "variables"), [(("--quiet",), {}), ((), {"TERM": "dumb"})])
def test_progress_is_left_out(control: Path, options: tuple[str, ...], variables: dict[str, str]) -> None:
    shown = run(control, "doctor", *options, **variables)

    assert shown.split() == run(control, "doctor", terminal=False).split()
    assert "\r" not in shown
    assert "\x1b" not in shown


def test_question_is_not_drawn_over(tmp_path: Path) -> None:
    person, terminal = pty.openpty()
    command = [sys.executable, "-m", "reconciler.cli.main", "init", "fleet"]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ):
        os.close(terminal)
        asked = _read(person)
        time.sleep(1.5)
        os.set_blocking(person, False)
        asked += _read(person)
        os.set_blocking(person, True)
        os.write(person, b"\r\r\r")
        written = b""
        while got := _read(person):
            written += got
    os.close(person)

    assert asked == b"Name of the instance, which owns packages and never changes [fleet]: "
    assert b"wrote fleet/reconciler.yaml" in written


class Recorder(Display):
    """Keeps every task."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def begin(self, task: Task) -> None:
        """Keep a task."""
        self.tasks.append(task)


def test_loops_over_repositories_packages_and_pull_requests_are_counted(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(control)
    counted: dict[str, set[tuple[str, int, int]]] = {}
    for line in (("plan",), ("apply",), ("approve", "--all"), ("doctor",)):
        recorder = Recorder()
        show_on(recorder)
        try:
            assert invoke([*line, "--cache-dir", str(tmp_path)]) in {0, 7}
        finally:
            show_on(Display())
        counted[line[0]] = {(task.name, task.done, task.total) for task in recorder.tasks}

    reading = {
        ("working", 0, 0),
        ("reading", 0, 0),
        ("fetching repositories", 3, 3),
        ("reading repositories", 3, 3),
        ("listing pull requests", 3, 3),
    }
    planning = {(name, 0, 0) for name in ("expanding sets", "resolving", "fetching packages", "planning")}
    rendering = ("rendering packages", 3, 3)
    assert counted["plan"] >= {*reading, *planning, rendering}
    assert ("applying", 8, 8) in counted["apply"]
    assert counted["approve"] >= {*reading, ("checking pull requests", 3, 3), ("approving", 2, 2)}
    assert counted["doctor"] >= {*reading, ("checking repositories", 3, 3)}
