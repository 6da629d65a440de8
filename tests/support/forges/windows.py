"""The independent checker of limits: it knows a server's journal and nothing of the client."""

from collections.abc import Sequence

from tests.support.forges.server import Entry

MINUTE, HOUR = 60.0, 3600.0


def most_in_a_window(journal: Sequence[Entry], window: float) -> int:
    """Return the greatest number of writes in any window of so many seconds."""
    times = sorted(entry.time for entry in journal if entry.writes)
    most = start = 0
    for end, time in enumerate(times):
        while times[start] <= time - window:
            start += 1
        most = max(most, end - start + 1)
    return most
