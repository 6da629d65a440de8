"""The budget of writes: serial, per minute and per hour, across runs, repositories and shards."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from reconciler.errors import ConfigurationError
from reconciler.forge.faults import LONGEST_WAIT_S, SECONDARY_WAIT_S, LimitedError, duration_text
from reconciler.git import effects
from reconciler.policy import WriteLimits

MINUTE_S, HOUR_S = 60.0, 3600.0
_MARGIN_S = 0.01
"""So that the oldest write has left the window, whatever rounding does."""


class Clock(NamedTuple):
    """The time in seconds, and how to wait; tests give a clock of their own."""

    now: Callable[[], float]
    sleep: Callable[[float], None]


SYSTEM_CLOCK = Clock(time.time, effects.sleep)


class Budget:
    """How many writes one identity may still make on one forge.

    Serial: one write at a time, whichever repository it is for. The windows are those of the
    forge, recomputed from what it says was written (`learn`), so they hold across runs without any
    state of ours. Fails closed: what cannot be known counts as spent.
    """

    def __init__(self, limits: WriteLimits, clock: Clock = SYSTEM_CLOCK) -> None:
        self.limits = limits
        self.clock = clock
        self._spent: list[float] = []
        self._lock = threading.Lock()
        self._closed_until = 0.0
        self._hits = 0
        self._repositories: set[str] = set()
        self._unread: set[str] = set()
        self._held = 0

    def hold(self, writes: int) -> None:
        """Keep so many writes of the hour back, until told otherwise: for what must be said at the end."""
        self._held = min(writes, self.limits.per_hour - 1)

    def learn(self, times: Iterable[float]) -> None:
        """Count writes that other runs made, at these times of the forge."""
        with self._lock:
            recent = (t for t in times if t > self.clock.now() - HOUR_S)
            self._spent = sorted([*self._spent, *recent])

    def known(self, repository: str) -> None:
        """Note that what was written in a repository is known, or that nothing can be."""
        self._repositories.add(repository)
        self._unread.discard(repository)

    def unknown(self, repository: str) -> None:
        """Note that a repository could not be read: its share of the hour counts as spent."""
        self._repositories.add(repository)
        self._unread.add(repository)

    @contextmanager
    def write(self) -> Iterator[None]:
        """Wait for this write's turn, and count it when it is answered.

        Raises:
            LimitedError: Its turn comes later than the longest wait; nothing was sent.
        """
        with self._lock:
            self._wait()
            try:
                yield
            finally:
                self._spent.append(self.clock.now())

    def limited(self, wait_s: float | None) -> None:
        """Note that the forge refused a write for being too fast: every write waits.

        The second time in a run nothing more is written in it.
        """
        self._hits += 1
        wait = wait_s if wait_s is not None else min(SECONDARY_WAIT_S * 2 ** (self._hits - 1), LONGEST_WAIT_S)
        self._closed_until = max(self._closed_until, self.clock.now() + wait)
        if self._hits > 1:
            raise LimitedError("The forge limits writes again", wait_s=wait)

    def eta_s(self, writes: int) -> float:
        """Return how long `writes` more take from now on, in seconds, waiting included."""
        now, spent = self.clock.now(), list(self._spent)
        at = now
        for _ in range(writes):
            at = max(at, next_turn(spent, self.limits, self._closed_until))
            spent.append(at)
        return at - now

    def _presume(self) -> None:
        """Count what unread repositories may have cost: their share of everything, rounded up."""
        if self._unread:
            count = -(-self.limits.per_hour * len(self._unread) // len(self._repositories))
            self._unread.clear()
            self._spent += [self.clock.now()] * count

    def _wait(self) -> None:
        self._presume()
        limits = replace(self.limits, per_hour=self.limits.per_hour - self._held)
        wait = next_turn(self._spent, limits, self._closed_until) - self.clock.now()
        if wait > self.limits.max_wait_s:
            limit = f"{self.limits.per_minute} a minute, {self.limits.per_hour} an hour"
            message = f"The budget of writes is spent ({limit}); the next one is due in {duration_text(wait)}"
            raise LimitedError(message, wait_s=wait)
        if wait > 0:
            self.clock.sleep(wait)


def next_turn(spent: Sequence[float], limits: WriteLimits, closed_until: float = 0.0) -> float:
    """Return the earliest time of the next write after those at the times `spent`, ascending. Pure.

    Total: a limit of zero never has a turn.
    """
    turn = closed_until
    for count, window in ((limits.per_minute, MINUTE_S), (limits.per_hour, HOUR_S)):
        if count < 1:
            return float("inf")
        if len(spent) >= count:
            turn = max(turn, spent[-count] + window + _MARGIN_S)
    return max(turn, spent[-1] + MINUTE_S / limits.per_minute) if spent else turn


def split(limits: WriteLimits, shards: int) -> WriteLimits:
    """Return one shard's part of the limits, at least one write a minute and one an hour.

    Raises:
        ConfigurationError: There are more shards than writes; then no shard could keep the limit.
    """
    if shards > min(limits.per_minute, limits.per_hour):
        few = min(limits.per_minute, limits.per_hour)
        raise ConfigurationError(
            f"{shards} shards cannot share {few} writes", hint="Use fewer shards, or raise the write limits."
        )
    return replace(limits, per_minute=limits.per_minute // shards, per_hour=limits.per_hour // shards)
