"""Classification of the replies of forge APIs, and the errors that they raise."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.base.errors import Exit, RefusedError, UnavailableError

LONGEST_WAIT_S = 3600.0
SECONDARY_WAIT_S = 60.0
"""The wait that GitHub documents for replies without a time."""

_LIMIT = re.compile(
    r"secondary rate limit|abuse detection|submitted too quickly|rate limit exceeded"
    r"|retry later|too many requests",
    re.IGNORECASE,
)
_CAP = re.compile(r"createpullrequest", re.IGNORECASE)


class ReplyKind(StrEnum):
    """The meaning of a reply for the caller: success (NONE) or a kind of error."""

    NONE = "none"
    LIMITED = "limited"
    UNAUTHORIZED = "unauthorized"
    LOST = "lost"
    MOVED = "moved"
    MISSING = "missing"
    FORBIDDEN = "forbidden"
    BLOCKED = "blocked"
    INVALID = "invalid"


class ClassifiedReply(NamedTuple):
    """A reply's kind and message; `wait_s` is None where the forge did not tell how long to wait."""

    kind: ReplyKind
    message: str = ""
    wait_s: float | None = None


class LimitedError(UnavailableError):
    """The forge, or our own budget, permits no more requests now; the next run continues (exit 6)."""

    exit_code = Exit.PARTIAL

    def __init__(self, message: str, *, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(message, hint=f"Run again in {duration_text(wait_s)}; what is done stays done.")


class LostReplyError(UnavailableError):
    """A write was sent and no usable reply came: the caller must look up whether it happened."""


class MissingError(UnavailableError):
    """The requested resource does not exist, or this credential may not see it."""


class ForbiddenError(UnavailableError):
    """The forge forbids a read."""


class UnauthorizedError(UnavailableError):
    """The forge refuses the credential."""


class BlockedError(RefusedError):
    """The forge refuses more pull requests until people close or merge some (exit 7)."""

    exit_code = Exit.WAITING


class InvalidError(RefusedError):
    """The forge rejected a well-formed request; `status` and the message tell the reason."""

    def __init__(self, message: str, *, status: int) -> None:
        self.status = status
        super().__init__(message)


def duration_text(seconds: float) -> str:
    """Return a duration as text: `45 s`, `12 min`, `3 h 06 min`."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def classify(status: int, headers: Mapping[str, str], data: Any, *, now: float) -> ClassifiedReply:
    """Classify one complete reply. Total and pure.

    Args:
        status: The status code.
        headers: The reply's headers, names in lower case.
        data: The parsed body; None if it is empty, text if it is not JSON.
        now: The forge's time in seconds, for `x-ratelimit-reset`.

    Source: GitHub's documented limit replies and those seen: 403 and 429 with or without
    Retry-After, an empty primary quota, 422 with code `abuse`, GraphQL errors in a 200.
    """
    text = message_of(data)
    if _is_limit(status, headers, data, text):
        return ClassifiedReply(ReplyKind.LIMITED, text or "rate limit", _wait(headers, now))
    if errors := _graphql_errors(data):
        return _classify_graphql(errors)
    return ClassifiedReply(_kind(status, data), text)


def message_of(data: Any) -> str:
    """Return the messages in a reply's body, with the details that forges give."""
    match data:
        case str():
            return data.strip()[:300]
        case list():
            return "; ".join(filter(None, map(message_of, data)))[:600]
        case Mapping():
            parts = [
                data.get(key)
                for key in ("message", "error", "error_description", "errors", "code", "field", "typeKey")
            ]
            return "; ".join(dict.fromkeys(filter(None, map(message_of, parts))))[:600]
        case _:
            return ""


def _kind(status: int, data: Any) -> ReplyKind:
    if status == 203 and isinstance(data, str):  # noqa: PLR2004 - Azure's page to sign in
        return ReplyKind.UNAUTHORIZED
    if status < 300:  # noqa: PLR2004 - success
        return ReplyKind.LOST if isinstance(data, str) else ReplyKind.NONE
    by_status = {401: ReplyKind.UNAUTHORIZED, 403: ReplyKind.FORBIDDEN, 404: ReplyKind.MISSING,
                 410: ReplyKind.MISSING, 451: ReplyKind.MISSING, 408: ReplyKind.LOST,
                 423: ReplyKind.FORBIDDEN}  # fmt: skip
    if status in by_status:
        return by_status[status]
    if status < 400:  # noqa: PLR2004 - redirections
        return ReplyKind.MOVED
    return ReplyKind.LOST if status >= 500 else ReplyKind.INVALID  # noqa: PLR2004 - the server's faults


def _is_limit(status: int, headers: Mapping[str, str], data: Any, text: str) -> bool:
    if status == 429:  # noqa: PLR2004 - too many requests
        return True
    if status == 403:  # noqa: PLR2004 - GitHub also uses it for limits
        return (
            "retry-after" in headers
            or headers.get("x-ratelimit-remaining") == "0"
            or bool(_LIMIT.search(text))
        )
    if status == 422:  # noqa: PLR2004 - older GitHub servers use it for limits
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


def _classify_graphql(errors: list[Any]) -> ClassifiedReply:
    text = message_of(errors)
    types = {error.get("type") for error in errors if isinstance(error, Mapping)}
    if "RATE_LIMITED" in types:
        return ClassifiedReply(ReplyKind.LIMITED, text)
    if "FORBIDDEN" in types:
        return ClassifiedReply(ReplyKind.BLOCKED if _CAP.search(str(errors)) else ReplyKind.FORBIDDEN, text)
    return ClassifiedReply(ReplyKind.MISSING if "NOT_FOUND" in types else ReplyKind.INVALID, text)
