"""The clock of a run against the schedule of pull requests."""

from datetime import UTC, datetime

import pytest

from reconciler.inventory.inventory import ALWAYS_OPEN, Opening
from reconciler.policy import Policy, PullRequestPolicy
from reconciler.read.governance import read_opening


def scheduled(*schedule: str, timezone: str = "Europe/Berlin") -> Policy:
    return Policy(pull_requests=PullRequestPolicy(schedule=schedule, timezone=timezone))


@pytest.mark.parametrize(
    ("now", "schedule", "opening"),
    [
        ("2026-07-15T12:30", (), ALWAYS_OPEN),
        ("2026-07-15T05:59", ("* 8-17 * * *",), Opening(False, "2026-07-15 08:00 Europe/Berlin")),
        ("2026-07-15T06:00", ("* 8-17 * * *",), ALWAYS_OPEN),
        ("2026-07-15T15:59", ("* 8-17 * * *",), ALWAYS_OPEN),
        ("2026-07-15T16:00", ("* 8-17 * * *",), Opening(False, "2026-07-16 08:00 Europe/Berlin")),
        # 07:00 UTC is 08:00 in winter: the zone follows daylight saving time.
        ("2026-01-15T06:59", ("* 8-17 * * *",), Opening(False, "2026-01-15 08:00 Europe/Berlin")),
        ("2026-01-15T07:00", ("* 8-17 * * *",), ALWAYS_OPEN),
        # On 2026-03-29 the clocks go from 02:00 to 03:00: what is skipped comes then.
        ("2026-03-29T00:30", ("30 2 * * *",), Opening(False, "2026-03-29 03:00 Europe/Berlin")),
        ("2026-03-29T01:00", ("30 2 * * *",), ALWAYS_OPEN),
    ],
)
def test_pull_requests_open_within_the_schedule_in_its_time_zone(now, schedule, opening) -> None:
    time = datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()

    assert read_opening(scheduled(*schedule), time) == opening
