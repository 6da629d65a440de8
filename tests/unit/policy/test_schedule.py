"""Schedules: the minutes that a cron expression names, and the next of them."""

from datetime import UTC, datetime

import pytest

from reconciler.policy.pull_requests import check_cron, next_opening

# Wednesday
NOW = datetime(2026, 7, 15, 12, 30, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("* * * * *", "2026-07-15 12:30"),
        ("* 6-17 * * 1-5", "2026-07-15 12:30"),
        ("* 6-11 * * 1-5", "2026-07-16 06:00"),
        ("* 6-17 * * mon,Tue", "2026-07-20 06:00"),
        ("* 22-23 * * 0", "2026-07-19 22:00"),
        ("* 22-23 * * 7", "2026-07-19 22:00"),
        ("*/20 * * * *", "2026-07-15 12:40"),
        ("10/15 * * * *", "2026-07-15 12:40"),
        ("5-7 12 * * *", "2026-07-16 12:05"),
        ("0 9 1 * *", "2026-08-01 09:00"),
        ("0 9 1 jan *", "2027-01-01 09:00"),
        ("0 9 29 2 *", "2028-02-29 09:00"),
        # Both days are restricted, so either is enough; a star with a step restricts nothing.
        ("0 9 1 * 4", "2026-07-16 09:00"),
        ("0 9 */2 * 4", "2026-07-23 09:00"),
    ],
)
def test_schedule_opens_at_the_next_minute_that_an_expression_names(text: str, opens: str) -> None:
    check_cron(text)
    first = next_opening([text], NOW)

    assert first is not None
    assert f"{first:%Y-%m-%d %H:%M}" == opens


def test_schedule_opens_with_the_earliest_of_several_expressions() -> None:
    schedule = ("0 18 * * *", "0 17 * * 3", "0 1 * * *")

    assert next_opening(schedule, NOW) == datetime(2026, 7, 15, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * * mon *", "bad month"),
        ("* 9-6 * * *", "bad hour"),
        ("0 9 31 2 *", "bad day-of-month"),
    ],
)
def test_expression_that_names_no_time_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_cron(text)
