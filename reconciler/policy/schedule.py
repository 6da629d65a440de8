"""Schedules in cron's spelling: the minutes of local time in which pull requests may be opened. Pure.

Source: crontab(5). Renovate spells its `schedule` and `timezone` alike.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_FIELDS = 5
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def check_cron(text: str) -> None:
    """Check that a text is a cron expression of five fields, and that some day matches.

    Raises:
        ValueError: It is none.
    """
    # Few configurations have a schedule, and all commands start by reading one.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    hint = "write five fields, such as `* 6-17 * * 1-5`"
    if len(text.split()) != _FIELDS:
        raise ValueError(f"{text!r} is no cron expression; {hint}")
    try:
        CronSim(text, _ANY_TIME)
    except CronSimError as error:
        reason = str(error)
        raise ValueError(
            f"{text!r} is no cron expression: {reason[:1].lower()}{reason[1:]}; {hint}"
        ) from error


def next_opening(schedule: Sequence[str], now: datetime) -> datetime | None:
    """Return the minute of `now` if any expression matches it, else the next one; None if there is none.

    Args:
        schedule: Cron expressions.
        now: A time with its zone, which the expressions are about.
    """
    from cronsim import CronSim  # noqa: PLC0415

    # By way of UTC: a minute before the end of an hour that daylight saving time skips is none.
    minute_before = (now.astimezone(UTC) - timedelta(minutes=1)).astimezone(now.tzinfo)
    times = [next(CronSim(text, minute_before), None) for text in schedule]
    return min((time for time in times if time is not None), default=None)
