"""The line of progress: nothing of short work, an erased line after long work."""

import os
from collections.abc import Iterator

import pytest

from reconciler.base.progress import (
    Display,
    Task,
    begin_stages,
    open_task,
    show_on,
    stage,
    stage_seconds,
    track,
)
from reconciler.cli.stderr import ProgressLine, line_of

ERASE = "\r\x1b[2K"


class Terminal:
    """A pipe for a terminal, and a clock that a test moves."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.now = 100.0
        self.line = ProgressLine(writer, lambda text: text.replace("secret", "***"), lambda: self.now)

    def text(self) -> str:
        try:
            return os.read(self.reader, 1 << 16).decode()
        except BlockingIOError:
            return ""

    def after(self, seconds: float) -> str:
        self.text()
        self.now += seconds
        self.line.refresh()
        return self.text()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    show_on(terminal.line)
    yield terminal
    show_on(Display())


def test_short_work_shows_nothing(terminal: Terminal) -> None:
    with open_task("reading"):
        assert terminal.after(0.9) == ""
    assert terminal.text() == ""


def test_long_work_shows_innermost_task_and_leaves_nothing(terminal: Terminal) -> None:
    with open_task("reading"):
        assert terminal.after(1.1) == f"{ERASE}reading, 1 s"
        for name in track(["a", "b"], "fetching repositories"):
            expected = {"a": "0 of 2, 2 s", "b": "1 of 2, 2 s left"}[name]
            assert terminal.after(1) == f"{ERASE}fetching repositories: {expected}"
        assert terminal.after(0.2) == f"{ERASE}reading, 3 s"
    assert terminal.text() == ERASE


def test_line_is_erased_before_text_and_stays_away_from_a_question(terminal: Terminal) -> None:
    with open_task("reading"):
        terminal.after(2)
        with terminal.line.printing("note: one\n"):
            assert terminal.text() == ERASE
        assert terminal.after(0.2) == f"{ERASE}reading, 2 s"
        with terminal.line.printing("Name: "):
            assert terminal.text() == ERASE
        assert terminal.after(1) == ""
        with terminal.line.printing("done\n"):
            assert terminal.text() == ""
        assert terminal.after(0.2) == f"{ERASE}reading, 3 s"


def test_steps_are_safe_to_show_and_fit_the_terminal(terminal: Terminal) -> None:
    with open_task("applying", 2) as task:
        task.advance("opened secret " + "x" * 200)
        shown = terminal.after(2).removeprefix(ERASE)
    assert shown.startswith("applying: 1 of 2, 2 s left: opened *** xx")
    assert len(shown) == 79


def test_counted_work_is_shown_at_once_and_with_its_steps(terminal: Terminal) -> None:
    with open_task("fetching repositories", 2) as task:
        assert terminal.text() == f"{ERASE}fetching repositories: 0 of 2, 0 s"
        terminal.now += 0.05
        task.advance()
        assert terminal.text() == ""  # many steps a second cost nothing
        terminal.now += 0.95
        task.advance()
        assert terminal.text() == f"{ERASE}fetching repositories: 2 of 2, 2/s, 0 s left"
    assert terminal.text() == ERASE


@pytest.mark.parametrize(
    ("done", "total", "seconds", "line"),
    [
        (0, 0, 3.0, "x, 1 min 15 s"),
        (0, 9, 3.0, "x: 0 of 9, 1 min 15 s"),
        (3, 9, 0.0, "x: 3 of 9, 1 min 15 s"),
        (3, 9, 30.0, "x: 3 of 9, 1 min 0 s left"),
        (100, 1100, 10.0, "x: 100 of 1100, 10/s, 1 min 40 s left"),
        (5, 4, 1.0, "x: 5 of 4, 5/s, 0 s left"),
    ],
)
def test_line(done: int, total: int, seconds: float, line: str) -> None:
    task = Task("x", total)
    for _ in range(done):
        task.advance()
    assert line_of(task, seconds, 75.0) == line


def test_time_of_a_person_is_no_time_of_work(terminal: Terminal) -> None:
    with open_task("reading"):
        with terminal.line.paused():
            assert terminal.after(5) == ""
        assert terminal.after(0.9) == ""
        assert terminal.after(0.2) == f"{ERASE}reading, 1 s"


def test_seconds_of_a_stage_are_those_of_its_run() -> None:
    begin_stages()
    with stage("read"):
        pass
    with stage("plan"):
        pass
    assert [(name, 0 <= taken < 60) for name, taken in stage_seconds().items()] == [
        ("read", True),
        ("plan", True),
    ]

    begin_stages()

    assert stage_seconds() == {}
