"""Timestamps and durations of the portable engine: text in and out, fields, range."""

import re
from datetime import UTC, datetime

from reconciler.expand.expressions.literals import INT_MAX, INT_MIN
from reconciler.expand.expressions.values import Duration, FaultError, Timestamp

SECOND = 1_000_000_000
_MOST_DURATION = 315_576_000_000 * SECOND
_FIRST = -62_135_596_800 * SECOND
_LAST = 253_402_300_800 * SECOND - 1

_EPOCH = 719_163  # the ordinal of 1 January 1970
_RFC3339 = re.compile(
    r"0*(\d{1,4})-(\d\d?)-(\d\d?)[Tt](\d\d?):(\d\d?):(\d\d?)(\.\d+)?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)",
    re.ASCII,
)
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|ms|s|m|h)", re.ASCII)
_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}


def timestamp(nanoseconds: int) -> Timestamp:
    """Return a timestamp if it lies in the years 1 to 9999."""
    if _FIRST <= nanoseconds <= _LAST:
        return Timestamp(nanoseconds)
    raise FaultError("timestamp overflow")


def duration(nanoseconds: int) -> Duration:
    """Return a duration if it is below some 10,000 years."""
    if abs(nanoseconds) <= _MOST_DURATION:
        return Duration(nanoseconds)
    raise FaultError("Duration is out of range")


def clamp(length: Duration) -> int:
    """Return nanoseconds as arithmetic takes them: at most 64 bits, some 292 years."""
    return max(INT_MIN, min(INT_MAX, length.nanoseconds))


def parse_timestamp(text: str) -> Timestamp:
    """Read RFC 3339, as leniently as cel-cpp: digits and the colon of the offset may be missing."""
    match = _RFC3339.fullmatch(text.strip(" \t\n\v\f\r"))
    if match is None:
        raise FaultError("String to Timestamp conversion failed")
    *date, fraction, sign, hours, minutes = match.groups()
    if int(hours or 0) > 23 or int(minutes or 0) > 59:  # noqa: PLR2004 - a clock
        raise FaultError("String to Timestamp conversion failed")
    try:
        moment = datetime(*(int(part) for part in date), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError as error:
        raise FaultError("String to Timestamp conversion failed") from error
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * 60 * (-1 if sign == "-" else 1)
    nanoseconds = int(((fraction or ".")[1:] + "0" * 9)[:9])
    return timestamp((_seconds(moment) - offset) * SECOND + nanoseconds)


def parse_duration(text: str) -> Duration:
    """Read a sum of numbers with units, as in `1h30m`."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    total, position = 0, 0
    if rest == "0":
        return Duration(0)
    while match := _PART.match(rest, position):
        number, unit = match.groups()
        whole, _, fraction = number.partition(".")
        scale = _UNITS[unit]
        total += int(whole or 0) * scale + int(fraction or 0) * scale // 10 ** len(fraction)
        position = match.end()
    if not rest or position != len(rest):
        raise FaultError("String to Duration conversion failed")
    return duration(sign * total)


def format_timestamp(moment: Timestamp) -> str:
    """Return RFC 3339 in UTC, with as many decimals as needed in groups of three."""
    seconds, rest = divmod(moment.nanoseconds, SECOND)
    days, clock = divmod(seconds, 86400)
    date = datetime.fromordinal(_EPOCH + days)
    time = f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
    return f"{date.year:04}-{date.month:02}-{date.day:02}T{time}{_decimals(rest)}Z"


def format_duration(length: Duration) -> str:
    """Return seconds, with as many decimals as needed in groups of three."""
    seconds, rest = divmod(abs(length.nanoseconds), SECOND)
    return f"{'-' if length.nanoseconds < 0 else ''}{seconds}{_decimals(rest)}s"


def field_of(name: str, moment: Timestamp | Duration) -> int:
    """Return what one of the getters gives, in UTC."""
    if isinstance(moment, Duration):
        unit = {"getHours": 3600, "getMinutes": 60, "getSeconds": 1}[name] * SECOND
        return (abs(moment.nanoseconds) // unit) * (-1 if moment.nanoseconds < 0 else 1)
    seconds, rest = divmod(moment.nanoseconds, SECOND)
    days, clock = divmod(seconds, 86400)
    date = datetime.fromordinal(_EPOCH + days)
    return {
        "getFullYear": date.year,
        "getMonth": date.month - 1,
        "getDate": date.day,
        "getDayOfMonth": date.day - 1,
        "getDayOfWeek": date.isoweekday() % 7,
        "getDayOfYear": date.timetuple().tm_yday - 1,
        "getHours": clock // 3600,
        "getMinutes": clock // 60 % 60,
        "getSeconds": clock % 60,
        "getMilliseconds": rest // 1_000_000,
    }[name]


def _seconds(moment: datetime) -> int:
    return (moment.toordinal() - _EPOCH) * 86400 + moment.hour * 3600 + moment.minute * 60 + moment.second


def _decimals(nanoseconds: int) -> str:
    if not nanoseconds:
        return ""
    digits = f"{nanoseconds:09}"
    return "." + (
        digits[:3] if digits.endswith("000000") else digits[:6] if digits.endswith("000") else digits
    )
