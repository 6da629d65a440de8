"""Numbers with their nouns, and times, as every text writes them."""

from datetime import UTC, datetime

_VOWELS = "aeiou"
LATEST_S = 253_402_300_799
"""The last second of the year 9999, the last one that has a text."""


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: `1 repository`, `2 repositories`."""
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}s"


def verb(number: int, singular: str, otherwise: str) -> str:
    """Return the form of a verb for a number of things: `is` or `are`."""
    return singular if number == 1 else otherwise


def time_text(seconds: int) -> str:
    """Return a time as people read it; what no calendar has is its nearest end. Total."""
    return datetime.fromtimestamp(min(max(seconds, 0), LATEST_S), UTC).strftime("%Y-%m-%d %H:%M UTC")
