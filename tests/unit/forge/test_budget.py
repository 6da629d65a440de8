"""The budget of writes: what a limit of the forge and an unread repository cost."""

import math
from fractions import Fraction

import pytest

from reconciler.forge.api_errors import LONGEST_WAIT_S, SECONDARY_WAIT_S, LimitedError
from reconciler.forge.budget import Budget, Clock
from reconciler.policy import WriteLimits
from tests.support.forges.server import VirtualClock


def make_budget(**limits: int) -> tuple[Budget, VirtualClock]:
    clock = VirtualClock()
    return Budget(WriteLimits(**limits), Clock(clock.now, clock.sleep)), clock


def write(budget: Budget) -> None:
    with budget.write():
        return


@pytest.mark.parametrize("wait_s", [None, 7.0, 90.0])
def test_first_limit_of_a_run_makes_the_next_write_wait(wait_s: float | None) -> None:
    budget, clock = make_budget(max_wait_s=300)

    budget.note_limit(wait_s)
    write(budget)

    assert clock.slept == [wait_s or SECONDARY_WAIT_S]


@pytest.mark.parametrize(
    ("wait_s", "told_s"), [(None, 2 * SECONDARY_WAIT_S), (7.0, 7.0), (LONGEST_WAIT_S, 3600.0)]
)
def test_second_limit_of_a_run_ends_its_writes(wait_s: float | None, told_s: float) -> None:
    budget, _ = make_budget(max_wait_s=300)
    budget.note_limit(None)

    with pytest.raises(LimitedError) as caught:
        budget.note_limit(wait_s)

    assert caught.value.wait_s == told_s


@pytest.mark.parametrize(
    ("per_hour", "repositories", "unread"),
    [(10, 2, 1), (10, 3, 1), (10, 3, 2), (10, 3, 3), (7, 4, 1), (1, 5, 1)],
)
def test_unread_repositories_cost_their_share_of_the_hour_rounded_up(
    per_hour: int, repositories: int, unread: int
) -> None:
    budget, _ = make_budget(per_minute=60_000, per_hour=per_hour, max_wait_s=60)
    for number in range(repositories):
        (budget.mark_unread if number < unread else budget.mark_read)(f"r{number}")

    for _ in range(per_hour - math.ceil(per_hour * Fraction(unread, repositories))):
        write(budget)
    with pytest.raises(LimitedError):
        write(budget)


def test_reserved_writes_are_left_for_the_end_of_the_run() -> None:
    budget, _ = make_budget(per_minute=60_000, per_hour=5, max_wait_s=60)
    budget.reserve(2)
    for _ in range(3):
        write(budget)
    with pytest.raises(LimitedError):
        write(budget)

    budget.reserve(0)

    write(budget)
    write(budget)
    with pytest.raises(LimitedError):
        write(budget)
