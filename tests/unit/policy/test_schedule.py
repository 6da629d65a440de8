"""Schedules: the minutes that a cron expression names, and the next of them."""

from datetime import datetime

import pytest

from reconciler.policy.schedule import next_opening, parse_cron

# Wednesday
NOW = datetime(2026, 7, 15, 12, 30, 20)  # noqa: DTZ001 - local time of no zone


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
    first = next_opening([parse_cron(text)], NOW)

    assert first is not None
    assert f"{first:%Y-%m-%d %H:%M}" == opens
    assert parse_cron(text).matches(first)


def test_schedule_opens_with_the_earliest_of_several_expressions() -> None:
    schedule = [parse_cron(text) for text in ("0 18 * * *", "0 17 * * 3", "0 1 * * *")]

    assert next_opening(schedule, NOW) == datetime(2026, 7, 15, 17)  # noqa: DTZ001 - local time


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("after 10pm", "five fields"),
        ("60 * * * *", "no minute from 0 to 59"),
        ("* 24 * * *", "no hour from 0 to 23"),
        ("* * 0 * *", "no day of the month from 1 to 31"),
        ("* * * 13 *", "no month from 1 to 12"),
        ("* * * * 8", "no day of the week from 0 to 7"),
        ("* * * mon *", "no month"),
        ("* 9-6 * * *", "'9-6' is no hour"),
        ("*/0 * * * *", "'\\*/0' is no minute"),
        ("*-5 * * * *", "'\\*-5' is no minute"),
        ("* 1,,2 * * *", "'' is no hour"),
        ("* ² * * *", "no hour"),
        ("0 9 31 2 *", "no day of any year"),
    ],
)
def test_expression_that_names_no_time_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_cron(text)
