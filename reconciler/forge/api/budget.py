"""The budget of writes to a forge: serial, per minute and per hour, across runs, repositories and shards."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from reconciler.base.errors import ConfigurationError
from reconciler.http.client import SYSTEM_CLOCK, Clock
from reconciler.http.errors import LONGEST_WAIT_S, SECONDARY_WAIT_S, LimitedError, duration_text
from reconciler.policy import WriteLimits

MINUTE_S, HOUR_S = 60.0, 3600.0
_MARGIN_S = 0.01
"""Added to each turn so that the oldest write has left the window despite rounding."""


class Budget:
    """Limits the writes of one identity on one forge; thread-safe.

    Serial: one write at a time over all repositories. The windows are recomputed from the times of the
    forge's own records (`learn`), so they hold across runs without stored state. Fails closed: writes in
    a repository that cannot be read count as spent.
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

    def reserve(self, writes: int) -> None:
        """Keep so many writes of the hour for the end of the run, where the dashboard is written."""
        # One write is left for the run, or it would wait for itself.
        self._held = min(writes, self.limits.per_hour - 1)

    def learn(self, times: Iterable[float]) -> None:
        """Count the writes of other runs at these times, in seconds of our clock."""
        with self._lock:
            # GitHub counts about 80 new texts a minute and 500 an hour, by REST, GraphQL and the web
            # together.
            recent = (t for t in times if t > self.clock.now() - HOUR_S)
            self._spent = sorted([*self._spent, *recent])

    def mark_read(self, repository: str) -> None:
        """Note that the writes in a repository were counted, or that it can have none."""
        self._repositories.add(repository)
        self._unread.discard(repository)

    def mark_unread(self, repository: str) -> None:
        """Note that a repository could not be read: its share of the hour counts as spent."""
        self._repositories.add(repository)
        self._unread.add(repository)

    @contextmanager
    def write(self) -> Iterator[None]:
        """Wait for this write's turn, and count it when its reply is there.

        Raises:
            LimitedError: Its turn comes after the longest permitted wait; nothing was sent.
        """
        # The lock is held while the caller sends: GitHub asks for writes one after another.
        with self._lock:
            self._wait()
            try:
                yield
            finally:
                self._spent.append(self.clock.now())

    def note_limit(self, wait_s: float | None) -> None:
        """Make every write wait because the forge limited one; double the wait each time.

        Raises:
            LimitedError: The second limit in a run ends its writes.
        """
        # A secondary limit of GitHub may come without Retry-After: it asks for a minute, then for longer each
        # time.
        self._hits += 1
        wait = wait_s if wait_s is not None else min(SECONDARY_WAIT_S * 2 ** (self._hits - 1), LONGEST_WAIT_S)
        self._closed_until = max(self._closed_until, self.clock.now() + wait)
        if self._hits > 1:
            raise LimitedError("The forge limits writes again", wait_s=wait)

    @property
    def spent(self) -> int:
        """The writes of the last hour, as far as they are known."""
        return sum(at > self.clock.now() - HOUR_S for at in self._spent)

    def eta_s(self, writes: int) -> float:
        """Return the seconds that so many more writes take, waits included."""
        now, spent = self.clock.now(), list(self._spent)
        at = now
        for _ in range(writes):
            at = max(at, next_turn(spent, self.limits, self._closed_until))
            spent.append(at)
        return at - now

    def _wait(self) -> None:
        # Count the share of unread repositories in the hour, rounded up, as spent
        if self._unread:
            count = -(-self.limits.per_hour * len(self._unread) // len(self._repositories))
            self._unread.clear()
            self._spent += [self.clock.now()] * count
        limits = replace(self.limits, per_hour=self.limits.per_hour - self._held)
        wait = next_turn(self._spent, limits, self._closed_until) - self.clock.now()
        if wait > self.limits.max_wait_s:
            limit = f"{self.limits.per_minute} a minute, {self.limits.per_hour} an hour"
            message = f"The budget of writes is spent ({limit}); the next one is due in {duration_text(wait)}"
            raise LimitedError(message, wait_s=wait)
        if wait > 0:
            self.clock.sleep(wait)


def next_turn(spent: Sequence[float], limits: WriteLimits, closed_until: float = 0.0) -> float:
    """Return the earliest time of the next write after writes at the times `spent`, ascending. Pure.

    Total: a limit of zero never has a turn.
    """
    turn = closed_until
    for count, window in ((limits.per_minute, MINUTE_S), (limits.per_hour, HOUR_S)):
        if count < 1:
            return float("inf")
        if len(spent) >= count:
            # The write that is `count` before this one must have left the window.
            turn = max(turn, spent[-count] + window + _MARGIN_S)
    # Spread over the minute: GitHub asks for a second or more between writes.
    return max(turn, spent[-1] + MINUTE_S / limits.per_minute) if spent else turn


def split(limits: WriteLimits, shards: int) -> WriteLimits:
    """Return one shard's part of the limits, at least one write a minute and one an hour.

    Raises:
        ConfigurationError: There are more shards than writes, so the limit could not be kept.
    """
    if shards > min(limits.per_minute, limits.per_hour):
        few = min(limits.per_minute, limits.per_hour)
        raise ConfigurationError(
            f"{shards} shards cannot share {few} writes", hint="Use fewer shards, or raise the write limits."
        )
    return replace(limits, per_minute=limits.per_minute // shards, per_hour=limits.per_hour // shards)
