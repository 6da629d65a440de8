"""Addresses on the web, the meaning of a reply from there, and the errors that replies become."""

import re
import string
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin

from reconciler.base.errors import Exit, RefusedError, UnavailableError
from reconciler.git.urls import LOOPBACK, without_user

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?(?P<path>[/?][!-~]*)?",
    re.IGNORECASE,
)
"""So strict that all readers of addresses see the same server in one."""
_SAFE = string.digits + string.ascii_letters + string.punctuation
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LARGEST_PORT = 65_535
_MOST_SHOWN = 500


class Server(NamedTuple):
    """A server; another scheme or port is another server."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"

    @property
    def is_private(self) -> bool:
        """Whether requests are encrypted, or stay on this machine."""
        return self.scheme == "https" or self.host.strip("[]") in LOOPBACK


def find_server(url: str) -> Server:
    """Return the server of an address.

    Raises:
        ValueError: It is no address of http or https, has a user, or steps up in its path.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None:
        raise ValueError("it is no address of http or https without a user")
    scheme = match["scheme"].lower()
    port = int(match["port"] or _DEFAULT_PORTS[scheme])
    steps = unquote((match["path"] or "").partition("?")[0]).split("/")
    if port > _LARGEST_PORT or {".", ".."} & {*steps}:
        raise ValueError("it has `..` in its path, or a port that none is")
    return Server(scheme, match["host"].lower(), port)


def resolve(base: str, target: str) -> str:
    """Return where a link in an answer leads, or an address as it is requested, with "" for the base.

    Raises:
        ValueError: That is no address that may be asked.
    """
    url = urljoin(base, printable(target.strip())).partition("#")[0]
    find_server(url)
    return url


def printable(text: str) -> str:
    """Return a part of an address with everything quoted that no address may have."""
    return quote(text, safe=_SAFE)


def shown(url: str) -> str:
    """Return an address without its user, and without its query, which may be signed."""
    return without_user(url.partition("?")[0])[:_MOST_SHOWN]


LONGEST_WAIT_S = 86_400.0
"""No server is believed that it has to be left alone for longer."""
SECONDARY_WAIT_S = 60.0
"""The wait that GitHub documents for replies without a time."""
_MOST_DEPTH = 8
_LONGEST_DATE = 64

_LIMIT = re.compile(
    r"secondary rate limit|abuse detection|submitted too quickly|rate limit exceeded"
    r"|retry later|too many requests",
    re.IGNORECASE,
)


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
    """A reply's kind and message; `wait_s` is None where the server did not tell how long to wait."""

    kind: ReplyKind
    message: str = ""
    wait_s: float | None = None


class LimitedError(UnavailableError):
    """The server, or our own budget, permits no more requests now; the next run continues (exit 6)."""

    exit_code = Exit.PARTIAL

    def __init__(self, message: str, *, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(message, hint=f"Run again in {duration_text(wait_s)}; what is done stays done.")


class SilentError(UnavailableError):
    """A server gave no whole answer, however often it was asked."""


class LostReplyError(UnavailableError):
    """A write was sent and no usable reply came: the caller must look up whether it happened."""


class MissingError(UnavailableError):
    """The requested resource does not exist, or this credential may not see it."""


class ForbiddenError(UnavailableError):
    """The server forbids a read."""


class UnauthorizedError(UnavailableError):
    """The server refuses the credential."""


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

    Names of headers are in lower case. `data` is the parsed body: None if it is empty, text if it is not
    JSON. `now` is the server's time in seconds.

    Source: GitHub's documented limit replies and those seen: 403 and 429 with or without
    Retry-After, an empty primary quota, 422 with code `abuse`, GraphQL errors in a 200.
    """
    errors, kind, wait = _graphql_errors(data), _kind(status, data), stated_wait(headers, now)
    if kind is ReplyKind.NONE and not errors:
        return ClassifiedReply(kind)
    text = message_of(data)
    if _is_limit(status, headers, text, in_graphql=bool(errors)):
        return ClassifiedReply(ReplyKind.LIMITED, text or "rate limit", wait)
    if errors:
        return _classify_graphql(errors)
    return ClassifiedReply(kind, text, wait if kind is ReplyKind.LOST else None)


def stated_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Return for how many seconds a server wants to be left alone, None if it does not tell. Total.

    Source: RFC 9110 (Retry-After: seconds, or a date), GitHub (X-RateLimit-Reset: a time), GitLab
    (RateLimit-Reset: a time), the draft of the IETF (the same: seconds), Docker Hub
    (`RateLimit-Remaining: 0;w=21600`).
    """
    after = headers.get("retry-after", "")
    permitted, _, window = remaining(headers).partition(";")
    reset = headers.get(
        "x-ratelimit-reset", headers.get("ratelimit-reset", window.strip().removeprefix("w="))
    )
    if after.isdecimal():
        wait = float(after)
    elif (date := parse_date(after)) is not None:
        wait = date - now
    elif permitted.strip() == "0" and reset.isdecimal():
        until = float(reset)
        wait = max(until - now if until > now / 2 else until, 1.0)
    else:
        return None
    return min(max(wait, 0.0), LONGEST_WAIT_S)


def remaining(headers: Mapping[str, str]) -> str:
    """Return the header of how many requests a server still permits."""
    return headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining", ""))


def parse_date(text: str) -> float | None:
    """Return the seconds of a date in a header, None if it is none. Total."""
    try:
        return parsedate_to_datetime(text[:_LONGEST_DATE]).timestamp()
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError):
        return None


def message_of(data: Any, depth: int = _MOST_DEPTH) -> str:
    """Return the messages in a reply's body, with the details that servers give. Total."""
    match data:
        case str():
            return data.strip()[:300]
        case list() if depth:
            return "; ".join(filter(None, (message_of(part, depth - 1) for part in data)))[:600]
        case Mapping() if depth:
            parts = [
                message_of(data.get(key), depth - 1)
                for key in ("message", "error", "error_description", "errors", "code", "field", "typeKey")
            ]
            return "; ".join(dict.fromkeys(filter(None, parts)))[:600]
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


def _is_limit(status: int, headers: Mapping[str, str], text: str, *, in_graphql: bool) -> bool:
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
    return in_graphql and bool(_LIMIT.search(text))


def _graphql_errors(data: Any) -> list[Any]:
    if isinstance(data, Mapping) and "data" in data and isinstance(data.get("errors"), list):
        return list(data["errors"])
    return []


def _classify_graphql(errors: list[Any]) -> ClassifiedReply:
    text = message_of(errors)
    listed = [error for error in errors if isinstance(error, Mapping)]
    types = [error.get("type") for error in listed]
    if "RATE_LIMITED" in types:
        return ClassifiedReply(ReplyKind.LIMITED, text)
    if "FORBIDDEN" in types:
        paths = [error["path"] for error in listed if isinstance(error.get("path"), list)]
        words = [text, *(step for path in paths for step in path if isinstance(step, str))]
        opens = "createpullrequest" in " ".join(words).lower()
        return ClassifiedReply(ReplyKind.BLOCKED if opens else ReplyKind.FORBIDDEN, text)
    return ClassifiedReply(ReplyKind.MISSING if "NOT_FOUND" in types else ReplyKind.INVALID, text)
