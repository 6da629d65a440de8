"""The budget of writes: what a limit of the forge and an unread repository cost."""

import math
from fractions import Fraction

import pytest

from reconciler.base.errors import ConfigurationError
from reconciler.forge.http import Budget, next_turn, split
from reconciler.http.client import LONGEST_WAIT_S, SECONDARY_WAIT_S, Clock, LimitedError
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
    ("wait_s", "told_s"), [(None, 2 * SECONDARY_WAIT_S), (7.0, 7.0), (LONGEST_WAIT_S, 86_400.0)]
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


def limits(per_minute: int, per_hour: int) -> WriteLimits:
    return WriteLimits(per_minute=per_minute, per_hour=per_hour)


@pytest.mark.parametrize(
    ("spent", "given", "closed_until", "turn"),
    [
        ([], limits(60, 400), 0.0, 0.0),
        ([], limits(60, 400), 50.0, 50.0),
        ([], limits(0, 400), 0.0, math.inf),
        ([], limits(60, 0), 0.0, math.inf),
        ([100.0], limits(60, 400), 0.0, 101.0),
        ([100.0], limits(2, 400), 0.0, 130.0),
        ([100.0], limits(60, 400), 500.0, 500.0),
        ([100.0, 110.0], limits(2, 400), 0.0, 160.01),
        ([100.0, 110.0], limits(60, 2), 0.0, 3700.01),
        ([100.0, 200.0, 300.0], limits(60, 2), 0.0, 3800.01),
        ([100.0, 200.0], limits(60, 3), 0.0, 201.0),
    ],
)
def test_next_write_is_due_when_every_window_has_room_and_writes_are_apart(
    spent: list[float], given: WriteLimits, closed_until: float, turn: float
) -> None:
    assert next_turn(spent, given, closed_until) == pytest.approx(turn)


def test_each_shard_has_an_equal_part_of_the_writes() -> None:
    assert split(limits(9, 100), 3) == limits(3, 33)
    assert split(limits(9, 100), 1) == limits(9, 100)
    assert split(limits(9, 100), 9) == limits(1, 11)
    with pytest.raises(ConfigurationError, match=r"^10 shards cannot share 9 writes$") as caught:
        split(limits(9, 100), 10)
    assert caught.value.hint == "Use fewer shards, or raise the write limits."


def test_writes_of_the_last_hour_count_whoever_made_them() -> None:
    budget, clock = make_budget(per_minute=60_000, per_hour=2, max_wait_s=60)
    now = clock.now()
    budget.learn([now - 10, now - 3601, now - 3600])
    write(budget)

    with pytest.raises(LimitedError) as caught:
        write(budget)

    assert caught.value.wait_s == pytest.approx(3590, abs=1)
    assert str(caught.value) == (
        "The budget of writes is spent (60000 a minute, 2 an hour); the next one is due in 1 h 00 min"
    )


def test_time_of_more_writes_includes_the_waits_and_spends_nothing() -> None:
    budget, _ = make_budget(per_minute=2, per_hour=100)

    assert [budget.eta_s(count) for count in range(4)] == pytest.approx([0, 0, 30, 60.01], abs=0.02)
    assert budget.eta_s(3) == pytest.approx(60.01, abs=0.02)


def test_write_that_fails_counts_too() -> None:
    budget, _ = make_budget(per_minute=60_000, per_hour=1, max_wait_s=60)
    with pytest.raises(RuntimeError), budget.write():
        raise RuntimeError

    with pytest.raises(LimitedError):
        write(budget)


def test_repository_that_is_read_after_all_costs_nothing() -> None:
    budget, _ = make_budget(per_minute=60_000, per_hour=2, max_wait_s=60)
    budget.mark_unread("a")
    budget.mark_read("a")

    write(budget)
    write(budget)
