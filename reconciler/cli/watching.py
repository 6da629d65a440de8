"""The process that was started watches the one that works, so that a signal ends every wait.

Python notices a signal between two of its instructions. A thread that waits inside libgit2, for a file that
a dead network mount does not deliver, lets no other instruction run: no handler is called, and no limit of
time counts. So the work is done in a fork, which can be killed at any time without a loss (law 6).
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final

from reconciler.base import effects

PATIENCE_S: Final = 5.0
"""How long a stopped run may go on while no effect is under way."""
_CHECK_S: Final = 0.1
_IDLE_S: Final = 3600.0
_ECHO_S: Final = 1.0
"""How soon after a signal another one is taken for the same: `timeout` sends its signal twice."""
_PR_SET_PDEATHSIG: Final = 1
"""The option of prctl(2) for the signal that the end of the parent sends."""
_SI_KERNEL: Final = 0x80
"""The sender of the signals of a terminal, which go to all processes in front of it."""
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


Handler = Callable[[int, FrameType | None], None]


def run_watched(work: Callable[[], int], stop: Handler, stopped: Callable[[], int]) -> int:
    """Do `work` in a fork, and return its exit code; a fork that a signal ended ends this process likewise.

    SIGTERM and SIGINT are passed on, and `stop` handles them: the fork finishes the effect under way, and
    ends. One that does not end, although no effect is under way, is killed, and `stopped` gives the exit
    code. A second signal kills at once. Elsewhere than on Linux, or where no process can be made, `work` is
    done in this process.
    """
    handled = {number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN}
    if sys.platform != "linux":
        _handle(handled, stop)
        return work()
    progress = effects.share_progress()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*handled, signal.SIGCHLD})
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError:  # this process has reached its limits
        effects.keep_progress()
        child = 0
    if not child:
        if os.getpid() != parent:
            _end_with_parent(parent)
        _handle(handled, stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return work()
    status = _watch(child, handled, progress)
    if status is None:
        return stopped()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        _end_by_signal(-code)
    return code


def _handle(numbers: Iterable[signal.Signals], stop: Handler) -> None:
    for number in numbers:
        signal.signal(number, stop)


def _watch(child: int, handled: set[signal.Signals], is_busy: Callable[[], bool]) -> int | None:
    """Return the status with which the fork ended, None if it was killed because it did not end."""
    stopped_s = busy_s = 0.0
    while True:
        info = signal.sigtimedwait({*handled, signal.SIGCHLD}, _CHECK_S if stopped_s else _IDLE_S)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        now = time.monotonic()
        if info is not None and info.si_signo in handled:
            if stopped_s and now - stopped_s > _ECHO_S:
                os.kill(child, signal.SIGKILL)
                _end_by_signal(info.si_signo)
            if not stopped_s:
                stopped_s = busy_s = now
                if info.si_code != _SI_KERNEL:
                    os.kill(child, info.si_signo)
        if is_busy():
            busy_s = now
        if stopped_s and now - busy_s > PATIENCE_S:
            # Not waited for: a process that waits for a dead mount may not even end when it is killed.
            os.kill(child, signal.SIGKILL)
            return None


def _end_with_parent(parent: int) -> None:
    """Let the kernel kill this fork when the watching process ends, however that is."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def _end_by_signal(number: int) -> None:
    """End this process as the signal ends one that does not handle it."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
