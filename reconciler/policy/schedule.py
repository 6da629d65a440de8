"""Schedules in cron's spelling: the minutes of local time in which pull requests may be opened. Pure.

Source: crontab(5): five fields, lists, ranges, steps and names; where both day fields are restricted, either
of them is enough. Renovate spells its `schedule` and `timezone` alike.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

_TERM = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d{1,3}))?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_HORIZON_DAYS = 8 * 366
"""Longest time without a 29th of February, and a day."""


class _Field(NamedTuple):
    name: str
    least: int
    greatest: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


class Cron(NamedTuple):
    """Minutes of local time: the values of each field that match; Sunday is 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def matches(self, time: datetime) -> bool:
        """Tell whether a minute of local time is one of these."""
        return time.minute in self.minutes and time.hour in self.hours and self.has_day(time)

    def has_day(self, time: datetime) -> bool:
        """Tell whether any minute of a day may match."""
        by_month, by_week = time.day in self.days, time.isoweekday() % 7 in self.weekdays
        fits = by_month or by_week if self.either_day else by_month and by_week
        return fits and time.month in self.months


def parse_cron(text: str) -> Cron:
    """Return the minutes that a cron expression names.

    Raises:
        ValueError: It is none, or no minute of any year matches.
    """
    words = text.split()
    if len(words) != len(_FIELDS):
        raise ValueError(f"{text!r} is no cron expression; write five fields, such as `* 6-17 * * 1-5`")
    values = [_parse_field(word, field) for word, field in zip(words, _FIELDS, strict=True)]
    weekdays = frozenset(day % 7 for day in values[4])
    either_day = not (words[2].startswith("*") or words[4].startswith("*"))
    cron = Cron(values[0], values[1], values[2], values[3], weekdays, either_day)
    if next_opening([cron], datetime(2000, 1, 1)) is None:  # noqa: DTZ001 - local time of no zone
        raise ValueError(f"{text!r} matches no day of any year")
    return cron


def next_opening(schedule: Sequence[Cron], after: datetime) -> datetime | None:
    """Return the first minute from `after` on that any expression matches; None if there is none."""
    start = after.replace(second=0, microsecond=0)
    for number in range(_HORIZON_DAYS):
        midnight = start.replace(hour=0, minute=0) + timedelta(days=number)
        earliest = start if number == 0 else midnight
        times = [time for cron in schedule if cron.has_day(midnight) for time in _minutes(cron, earliest)]
        if times:
            return min(times)
    return None


def _minutes(cron: Cron, earliest: datetime) -> Iterator[datetime]:
    """Yield the first minute of the day of `earliest` that matches, from it on; nothing if there is none."""
    for hour in sorted(cron.hours):
        for minute in sorted(cron.minutes):
            time = earliest.replace(hour=hour, minute=minute)
            if time >= earliest:
                yield time
                return


def _parse_field(text: str, field: _Field) -> frozenset[int]:
    return frozenset(value for term in text.split(",") for value in _parse_term(term, field))


def _parse_term(term: str, field: _Field) -> range:
    match = _TERM.fullmatch(term)
    if match is None:
        raise ValueError(f"{term!r} is no {field.name} of a cron expression")
    first, last, step = match.groups()
    if first == "*":
        least, greatest = field.least, field.greatest
    else:
        least = _parse_value(first, field)
        # A step without an end goes to the end, as in Vixie's cron: 10/15 is 10, 25, 40, 55.
        greatest = _parse_value(last, field) if last else field.greatest if step else least
    if greatest < least or (step and int(step) == 0) or (first == "*" and last):
        raise ValueError(f"{term!r} is no {field.name} of a cron expression")
    return range(least, greatest + 1, int(step or 1))


def _parse_value(text: str, field: _Field) -> int:
    if text.lower() in field.words:
        return field.words.index(text.lower()) + field.least
    if not text.isascii() or not text.isdigit() or not field.least <= int(text) <= field.greatest:
        raise ValueError(f"{text!r} is no {field.name} from {field.least} to {field.greatest}")
    return int(text)
