"""The process that watches the one that works: how both end, whatever the work does."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from reconciler.base import effects
from reconciler.cli import watching
from reconciler.cli.watching import run_watched

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL


def ended(
    work: Callable[[int], int], *signals: tuple[float, int], stop: Callable[[], int] = lambda: 6
) -> int:
    """Return how a process ends that does the work, and gets signals after pauses once it works."""
    reader, writer = os.pipe()

    def stopping(*_: object) -> None:
        os._exit(stop())

    watcher = os.fork()
    if not watcher:
        code = 99
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (TERM, INT, signal.SIGHUP):  # whoever started the tests may ignore them
            signal.signal(number, signal.SIG_DFL)
        try:
            code = run_watched(lambda: work(writer), stopping, lambda: 66)
        finally:
            os._exit(code)
    if signals:
        os.read(reader, 1)
    for pause, number in signals:
        time.sleep(pause)
        os.kill(watcher, number)
    return os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1])


def busy_for(seconds: float) -> Callable[[int], int]:
    """Return work that never asks for a signal, and has an effect under way for so long."""

    def work(writer: int) -> int:
        for number in (TERM, INT):
            signal.signal(number, signal.SIG_IGN)
        with effects.effect("push"):
            os.write(writer, b"x")
            time.sleep(seconds)
        time.sleep(5)
        return 0

    return work


def waits(writer: int) -> int:
    os.write(writer, b"x")
    for _ in range(500):  # a signal that comes between two instructions does not end a pause that begins then
        time.sleep(0.01)
    return 0


@pytest.mark.parametrize("code", [0, 7])
def test_code_of_the_work_is_that_of_the_process(code: int) -> None:
    parent = os.getpid()

    assert ended(lambda _: code if os.getppid() not in (parent, 1) else 99) == code


@pytest.mark.parametrize("number", [TERM, KILL, signal.SIGHUP])
def test_signal_that_ends_the_work_ends_the_process(number: int) -> None:
    def dies(_: int) -> int:
        signal.signal(TERM, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 0

    assert ended(dies) == -number


@pytest.mark.parametrize("number", [TERM, INT])
def test_signal_reaches_the_work_which_ends_in_its_way(number: int) -> None:
    assert ended(waits, (0, number)) == 6


def test_two_signals_at_once_are_one() -> None:
    def slow() -> int:
        time.sleep(0.3)
        return 6

    assert ended(waits, (0, TERM), (0.05, TERM), stop=slow) == 6


def test_second_signal_kills() -> None:
    assert ended(busy_for(30), (0, TERM), (1.1, INT)) == -INT


def test_work_that_does_not_end_is_killed_once_no_effect_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "PATIENCE_S", 0.3)
    begun = time.monotonic()

    assert ended(busy_for(0.9), (0, TERM)) == 66
    assert time.monotonic() - begun > 1.1


def test_work_is_done_here_where_no_process_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.fork()
    if not parent:
        monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(OSError("no")))
        os._exit(run_watched(lambda: 5, lambda *_: None, lambda: 66))

    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == 5
