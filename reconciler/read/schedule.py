"""The clock of a run: whether the schedule of pull requests is open, and when it opens next."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reconciler.errors import ConfigurationError, Location
from reconciler.inventory import ALWAYS_OPEN, Opening
from reconciler.policy import Policy
from reconciler.policy.schedule import next_opening, parse_cron


def read_opening(policy: Policy, now_s: float) -> Opening:
    """Return whether pull requests may be opened now, by the schedule in its time zone.

    Args:
        policy: The policy with schedule and time zone.
        now_s: The time of the run, in seconds.

    Raises:
        ConfigurationError: This system does not know the time zone.
    """
    requests = policy.pull_requests
    if not requests.schedule:
        return ALWAYS_OPEN
    zone = find_zone(requests.timezone, policy.config_path)
    now = datetime.fromtimestamp(now_s, UTC).astimezone(zone)
    schedule = [parse_cron(text) for text in requests.schedule]
    if any(cron.matches(now) for cron in schedule):
        return ALWAYS_OPEN
    opens = next_opening(schedule, now.replace(tzinfo=None))
    if opens is None:
        return Opening(is_open=False)
    # By way of UTC: an hour that daylight saving time skips becomes the one after it.
    local = opens.replace(tzinfo=zone).astimezone(UTC).astimezone(zone)
    return Opening(is_open=False, opens=f"{local:%Y-%m-%d %H:%M} {requests.timezone}")


def find_zone(name: str, path: str) -> ZoneInfo:
    """Return the time zone of the schedule in the configuration at `path`.

    Raises:
        ConfigurationError: This system does not know it.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"spec.pullRequests.timezone: this system knows no time zone {name}",
            location=Location(path),
            hint="Write a name of the IANA database, such as Europe/Berlin. The system needs its tzdata.",
        ) from error
