"""The clock of a run: whether the schedule of pull requests is open, and when it opens next."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reconciler.base.errors import ConfigurationError, Location
from reconciler.inventory.inventory import ALWAYS_OPEN, Opening
from reconciler.policy import Policy
from reconciler.policy.pull_requests import next_opening


def read_opening(policy: Policy, now_s: float) -> Opening:
    """Return whether pull requests may be opened now, by the schedule in its time zone.

    Raises:
        ConfigurationError: This system does not know the time zone.
    """
    requests = policy.pull_requests
    if not requests.schedule:
        return ALWAYS_OPEN
    zone = find_zone(requests.timezone, policy.config_path)
    now = datetime.fromtimestamp(now_s, UTC).astimezone(zone)
    opens = next_opening(requests.schedule, now)
    if opens is None:
        return Opening(is_open=False)
    if opens <= now:
        return ALWAYS_OPEN
    return Opening(is_open=False, opens=f"{opens:%Y-%m-%d %H:%M} {requests.timezone}")


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
