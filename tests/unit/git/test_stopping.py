"""Asked to end, a process begins nothing any more; what was done may still be recorded."""

import threading

import pytest

from reconciler.errors import Exit
from reconciler.git import stopping
from reconciler.git.failpoints import effect
from reconciler.git.stopping import StoppedError


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request reach another test."""
    monkeypatch.setattr(stopping, "_requested", threading.Event())


def test_nothing_is_asked_of_a_process_at_first() -> None:
    stopping.check()
    stopping.sleep(0.001)

    assert not stopping.requested()


def test_no_effect_begins_after_the_request_and_none_is_cut_short() -> None:
    done = []
    with effect("one"):
        stopping.request()
        done.append("one")
    with pytest.raises(StoppedError) as caught, effect("two"):
        done.append("two")

    assert done == ["one"]
    assert caught.value.exit_code is Exit.PARTIAL


def test_who_waits_is_told_at_once() -> None:
    timer = threading.Timer(0.01, stopping.request)
    timer.start()

    with pytest.raises(StoppedError):
        stopping.sleep(600)
    timer.join()


def test_what_was_done_is_recorded_all_the_same() -> None:
    stopping.request()

    with stopping.recording():
        stopping.check()
        stopping.sleep(0.001)

    assert stopping.requested()
