"""Limits of time that no function escapes: one for each function, one for all functions of a run."""

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from reconciler.functions.pipeline import StepLimit
from reconciler.functions.step import FunctionTimeoutError, RunTimeoutError
from reconciler.policy import FunctionPolicy

_SHORTEST_S: Final = 0.001
"""A timer of no time at all would never ring."""


class RunLimit:
    """When the functions of a run must end, for the threads that wait for their processes.

    `ends_s` is a time of the monotonic clock.
    """

    def __init__(self, policy: FunctionPolicy) -> None:
        self.ends_s = math.inf
        self._policy = policy

    def check(self) -> None:
        """Raise RunTimeoutError if the time is over while a function runs."""
        if time.monotonic() >= self.ends_s:
            raise _run_timeout(self._policy, is_running=True)


def limited(policy: FunctionPolicy, ends_s: float = math.inf) -> StepLimit:
    """Return a limit that stops each function after `policy.timeout_s`, and all at `ends_s`.

    `ends_s` is a time of the monotonic clock. What waits for a process, and what computes in this one, is
    stopped by a signal that raises FunctionTimeoutError or RunTimeoutError: the runtimes then end their
    processes. Builtin functions change copies only, so nothing is left half done. In another thread than the
    main one, which gets no signals, only the limits of the runtimes themselves hold.
    """

    @contextmanager
    def limit() -> Iterator[None]:
        remaining_s = ends_s - time.monotonic()
        if remaining_s <= 0:
            raise _run_timeout(policy, is_running=False)
        is_last = remaining_s < policy.timeout_s

        def ring(_number: int, _frame: object) -> NoReturn:
            if is_last:
                raise _run_timeout(policy, is_running=True)
            raise FunctionTimeoutError(f"It was stopped after {policy.timeout_s} s")

        if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
            yield
            return
        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, max(_SHORTEST_S, min(remaining_s, policy.timeout_s)))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return limit


def _run_timeout(policy: FunctionPolicy, *, is_running: bool) -> RunTimeoutError:
    limit = f"functions.runTimeout, {policy.run_timeout_s} s"
    message = f"The time of all functions of a run is over ({limit}); the next run goes on"
    return RunTimeoutError(message, is_running=is_running)
