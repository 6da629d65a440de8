"""How long a fleet's pull requests take within the limits of a forge: simulated with the budget of runs.

Run as `python tools/bench/bench_limits.py`. No time passes: the clock jumps to the next turn. The same budget
decides in runs. Each identity (an App, a user) has its own limits; shards with one identity divide them.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.values import replace

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.forge.http import Budget
from reconciler.http.client import Clock
from reconciler.policy import WriteLimits
from tools.bench.goals import Goals

HOUR_S = 3600


class Fleet(NamedTuple):
    """A fleet whose packages all change at once, and how they are proposed."""

    what: str
    packages: int
    per_request: int
    identities: int = 1
    writes: int = 2
    """Writes of one pull request: it is opened, and gets its labels."""

    @property
    def requests(self) -> int:
        """The pull requests of the change."""
        return -(-self.packages // self.per_request)

    @property
    def writes_of_one(self) -> int:
        """The writes of each identity."""
        return -(-self.requests * self.writes // self.identities)


FLEETS = (
    Fleet("2,000 packages, each its own pull request", 2_000, 1),
    Fleet("100,000 packages, each its own", 100_000, 1),
    Fleet("100,000 packages, 100 together", 100_000, 100),
    Fleet("1,000,000 packages, each its own, 8 identities", 1_000_000, 1, 8),
    Fleet("1,000,000 packages, 100 together", 1_000_000, 100),
    Fleet("1,000,000 packages, 100 together, 8 identities", 1_000_000, 100, 8),
    Fleet("1,000,000 packages, 1,000 together", 1_000_000, 1_000),
)


def hours(writes: int, limits: WriteLimits) -> float:
    """Return how long so many writes of one identity take, in hours."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    patient = replace(limits, max_wait_s=2 * HOUR_S)  # a run ends instead, and a later one goes on
    budget = Budget(patient, Clock(lambda: now[0], sleep))
    for _ in range(writes):
        with budget.write():
            pass
    return now[0] / HOUR_S


def rows() -> Iterator[str]:
    """Yield the rows of the table of `docs/scale.md`."""
    for fleet in FLEETS:
        took = hours(fleet.writes_of_one, WriteLimits())
        yield f"| {fleet.what} | {fleet.requests:,} | {took:,.1f} |"


def main() -> int:
    goals = Goals(__file__)
    limits = WriteLimits()
    print(f"{limits.per_minute} writes a minute, {limits.per_hour} an hour for each identity")
    print(f"{'fleet':52}{'requests':>9}{'hours':>8}{'days':>7}")
    found = {}
    for fleet in FLEETS:
        found[fleet.what] = hours(fleet.writes_of_one, limits)
        took = found[fleet.what]
        print(f"{fleet.what:52}{fleet.requests:9}{took:8.1f}{took / 24:7.1f}")
    goals.at_most("hours of 1,000,000 packages, 100 together, 8 identities", found[FLEETS[5].what], 8, "h")
    goals.at_most("hours of 1,000,000 packages, 1,000 together", found[FLEETS[6].what], 5, "h")
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
