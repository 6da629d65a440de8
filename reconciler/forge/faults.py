"""Errors of forge APIs, by what the caller has to do about them."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.errors import Exit, RefusedError, UnavailableError

LONGEST_WAIT_S = 3600.0
SECONDARY_WAIT_S = 60.0
"""What GitHub asks for where its reply names no time."""

_LIMIT = re.compile(
    r"secondary rate limit|abuse detection|submitted too quickly|rate limit exceeded"
    r"|retry later|too many requests",
    re.IGNORECASE,
)
_CAP = re.compile(r"createpullrequest", re.IGNORECASE)


class FaultKind(StrEnum):
    """What a reply means for who sent the request."""

    NONE = "none"
    LIMITED = "limited"
    UNAUTHORIZED = "unauthorized"
    LOST = "lost"
    MOVED = "moved"
    MISSING = "missing"
    FORBIDDEN = "forbidden"
    BLOCKED = "blocked"
    INVALID = "invalid"


class Fault(NamedTuple):
    """One reply, judged; `wait_s` is None where the forge did not say how long to wait."""

    kind: FaultKind
    message: str = ""
    wait_s: float | None = None


class LimitedError(UnavailableError):
    """The forge, or our own budget, lets us write no more now; the next run goes on (exit 6)."""

    exit_code = Exit.PARTIAL

    def __init__(self, message: str, *, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(message, hint=f"Run again in {duration_text(wait_s)}; what is done stays done.")


class LostReplyError(UnavailableError):
    """A write was sent and no usable answer came: whether it happened must be looked up."""


class MissingError(UnavailableError):
    """What was asked for is not there, or not for this credential."""


class BlockedError(RefusedError):
    """The forge accepts nothing more until a person closes or merges something (exit 7)."""

    exit_code = Exit.WAITING


class InvalidError(RefusedError):
    """The forge understood a request and rejects it; `status` and the message tell why."""

    def __init__(self, message: str, *, status: int) -> None:
        self.status = status
        super().__init__(message)


def duration_text(seconds: float) -> str:
    """Return a duration as people say it: `45 s`, `12 min`, `3 h 06 min`."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def classify(status: int, headers: Mapping[str, str], data: Any, *, now: float) -> Fault:
    """Judge one complete reply. Total and pure.

    Args:
        status: The status code.
        headers: The reply's headers, names in lower case.
        data: The parsed body; None if it is not JSON, a text if it is one.
        now: The forge's time in seconds, for `x-ratelimit-reset`.

    Source: GitHub's documented limit replies and those seen: 403 and 429 with or without
    Retry-After, an empty primary quota, 422 with code `abuse`, GraphQL errors in a 200.
    """
    text = message_of(data)
    if _is_limit(status, headers, data, text):
        return Fault(FaultKind.LIMITED, text or "rate limit", _wait(headers, now))
    if errors := _graphql_errors(data):
        return _judge_graphql(errors)
    return Fault(_kind(status, data), text)


def message_of(data: Any) -> str:
    """Return what a reply's body says in words, every detail of GitHub, GitLab and Gitea included."""
    match data:
        case str():
            return data.strip()[:300]
        case list():
            return "; ".join(filter(None, map(message_of, data)))[:600]
        case Mapping():
            parts = [
                data.get(key) for key in ("message", "error", "error_description", "errors", "code", "field")
            ]
            return "; ".join(dict.fromkeys(filter(None, map(message_of, parts))))[:600]
        case _:
            return ""


def _kind(status: int, data: Any) -> FaultKind:
    if status < 300:  # noqa: PLR2004 - success
        return FaultKind.LOST if isinstance(data, str) else FaultKind.NONE
    by_status = {401: FaultKind.UNAUTHORIZED, 403: FaultKind.FORBIDDEN, 404: FaultKind.MISSING,
                 410: FaultKind.MISSING, 451: FaultKind.MISSING, 408: FaultKind.LOST}  # fmt: skip
    if status in by_status:
        return by_status[status]
    if status < 400:  # noqa: PLR2004 - redirections
        return FaultKind.MOVED
    return FaultKind.LOST if status >= 500 else FaultKind.INVALID  # noqa: PLR2004 - the server's faults


def _is_limit(status: int, headers: Mapping[str, str], data: Any, text: str) -> bool:
    if status == 429:  # noqa: PLR2004 - too many requests
        return True
    if status == 403:  # noqa: PLR2004 - also said of limits
        return (
            "retry-after" in headers
            or headers.get("x-ratelimit-remaining") == "0"
            or bool(_LIMIT.search(text))
        )
    if status == 422:  # noqa: PLR2004 - also said of limits
        return '"abuse"' in text or "abuse" in text.split("; ")
    return bool(_graphql_errors(data)) and bool(_LIMIT.search(text))


def _wait(headers: Mapping[str, str], now: float) -> float | None:
    after = headers.get("retry-after", "")
    if after.isdecimal():
        return min(float(after), LONGEST_WAIT_S)
    reset = headers.get("x-ratelimit-reset", headers.get("ratelimit-reset", ""))
    if headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining")) == "0" and reset.isdecimal():
        return min(max(float(reset) - now, 1.0), LONGEST_WAIT_S)
    return None


def _graphql_errors(data: Any) -> list[Any]:
    if isinstance(data, Mapping) and "data" in data and isinstance(data.get("errors"), list):
        return list(data["errors"])
    return []


def _judge_graphql(errors: list[Any]) -> Fault:
    text = message_of(errors)
    types = {error.get("type") for error in errors if isinstance(error, Mapping)}
    if "RATE_LIMITED" in types:
        return Fault(FaultKind.LIMITED, text)
    if "FORBIDDEN" in types:
        return Fault(FaultKind.BLOCKED if _CAP.search(str(errors)) else FaultKind.FORBIDDEN, text)
    return Fault(FaultKind.MISSING if "NOT_FOUND" in types else FaultKind.INVALID, text)
