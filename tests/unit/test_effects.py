import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from reconciler.base import effects
from reconciler.base.effects import LOG_VARIABLE, VARIABLE, Failpoints, StoppedError, effect
from reconciler.base.errors import Exit, UnavailableError


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep requests of one test from the others."""
    monkeypatch.setattr(effects, "requested", effects.Flag())


def test_shutdown_finishes_the_current_effect_and_starts_no_other() -> None:
    done = []
    effects.check_shutdown()
    effects.sleep(0.001)
    assert not effects.is_shutting_down()
    with effect("first"):
        assert [effects.request_shutdown() for _ in range(3)] == [True, False, False]
        done.append("first")
    with pytest.raises(StoppedError) as caught, effect("second"):
        done.append("second")

    assert done == ["first"]
    assert caught.value.exit_code is Exit.PARTIAL
    assert str(caught.value) == "The run was stopped by a signal"
    assert caught.value.hint == "Run again: the next run continues where this one stopped."


def test_shutdown_ends_a_wait_at_once() -> None:
    timer = threading.Timer(0.01, effects.request_shutdown)
    timer.start()

    with pytest.raises(StoppedError):
        effects.sleep(600)
    timer.join()


def test_signal_may_come_at_any_moment_of_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler runs between two lines of the main thread, whatever that holds."""
    for moment in range(1, 100):
        monkeypatch.setattr(effects, "requested", effects.Flag())
        lines: list[int] = []

        def interrupt(frame: FrameType, event: str, _: object, moment: int = moment) -> Any:
            if event == "line" and not effects.requested.is_set():
                lines.append(frame.f_lineno)  # noqa: B023 - the thread ends before the next round
                if len(lines) == moment:  # noqa: B023
                    effects.request_shutdown()
            return interrupt

        def wait() -> None:
            sys.settrace(interrupt)
            with suppress(StoppedError):
                effects.sleep(0.001)
            sys.settrace(None)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"it waits for ever if the signal comes at line {lines[-1]}"
        if len(lines) < moment:
            break

    assert 3 < moment < 99


def test_results_are_recorded_after_a_shutdown_request() -> None:
    effects.request_shutdown()

    with effects.recording():
        effects.check_shutdown()
        effects.sleep(0.001)

    assert effects.is_shutting_down()


def test_watcher_sees_whether_an_effect_is_under_way() -> None:
    is_under_way = effects.share_progress()
    seen = [effects.is_watched(), is_under_way()]
    with effect("push"):
        seen += [is_under_way()]
        with effect("list", finishes=False), effects.recording():
            seen += [is_under_way()]
    seen += [is_under_way()]
    with effect("list", finishes=False):
        seen += [is_under_way()]
    effects.keep_progress()

    assert seen == [True, False, True, True, False, False]
    assert not effects.is_watched()


def test_signal_ends_a_wait_for_people_at_once_and_ctrl_c_whatever_writes_nothing() -> None:
    def ended() -> list[bool]:
        return [effects.is_interruptible(number) for number in (signal.SIGINT, signal.SIGTERM)]

    assert ended() == [True, False]
    with effects.interruptible():
        assert ended() == [True, True]
    with effects.applying():
        assert ended() == [False, False]
    with effect("push"):
        assert ended() == [False, False]
    assert ended() == [True, False]


def test_only_the_armed_failpoint_raises() -> None:
    assert Failpoints.of({}) is None
    failpoints = Failpoints.of({VARIABLE: "2:raise"})
    assert failpoints is not None

    failpoints.reach("before git push")
    with pytest.raises(UnavailableError, match="after git push"):
        failpoints.reach("after git push")
    failpoints.reach("before git push")


@pytest.mark.parametrize("spec", ["kill", "x:kill", "1:explode", "-1:kill"])
def test_misspelt_failpoint_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        Failpoints.of({VARIABLE: spec})


def test_effect_has_a_failpoint_before_and_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(effects, "failpoints", Failpoints.of({LOG_VARIABLE: str(log)}))

    with effect("push"):
        assert log.read_text() == "1 before push\n"
    with pytest.raises(RuntimeError), effect("write"):
        raise RuntimeError

    assert log.read_text() == "1 before push\n2 after push\n3 before write\n"


def test_failure_of_a_failpoint_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "failpoints", Failpoints.of({VARIABLE: "1:raise"}))

    with pytest.raises(UnavailableError) as caught, effect("push"):
        raise AssertionError

    assert str(caught.value) == "failpoint 1 (before push)"
    assert caught.value.hint == "A test armed this failure."


def test_failpoint_that_kills_ends_this_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = []
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    failpoints = Failpoints.of({VARIABLE: "1:kill"})
    assert failpoints is not None

    with pytest.raises(UnavailableError):  # a process that is killed does not get here
        failpoints.reach("before git push")

    assert killed == [(os.getpid(), signal.SIGKILL)]
