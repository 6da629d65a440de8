"""The one HTTP client: addresses, redirects, challenges, limits, retries, and what a reply means.

A credential goes to the server that it is for and to no other, neither along a redirect nor because another
server asks for it.
"""

import hashlib
import re
import string
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote, urljoin

import orjson

from reconciler import __version__
from reconciler.base import effects
from reconciler.base.errors import Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import mask_tokens
from reconciler.git.urls import LOOPBACK, without_user

_ADDRESS = regex(
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

_LIMIT = regex(
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


class CachedReply(NamedTuple):
    """A reply as it was: the tag that its server gave it, the link to the next page, and the body."""

    etag: str
    link: str
    body: bytes


class ReplyCache:
    """One file for each address. What is missing or damaged is requested as if for the first time.

    A reply counts only if the server confirms its tag, with the authorization of the request.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, url: str) -> CachedReply | None:
        """Return the last reply of an address."""
        try:
            head, _, body = zlib.decompress(self._path(url).read_bytes()).partition(b"\n")
            address, etag, link = orjson.loads(head)
        except (OSError, ValueError, zlib.error):
            return None
        return CachedReply(str(etag), str(link), body) if address == url else None

    def store(self, url: str, reply: CachedReply) -> None:
        """Keep a reply, in place of an older one."""
        data = orjson.dumps([url, reply.etag, reply.link]) + b"\n" + reply.body
        with suppress(OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Runs share the cache: a reader sees the old file or the new one, never a part.
            with NamedTemporaryFile(dir=self.directory, delete=False) as file:
                file.write(zlib.compress(data, level=1))
            Path(file.name).replace(self._path(url))

    def _path(self, url: str) -> Path:
        return self.directory / hashlib.sha256(url.encode()).hexdigest()


SENDABLE = r"^[!-~]+$"
"""The characters of a token, and of a tag: no other can be sent in a header."""
ATTEMPTS = 4
_HOPS = 3
_SHORT = 1 << 20
_OK, _NOT_MODIFIED = 200, 304
_MOVED, _KEEPS_METHOD = frozenset({301, 302, 303, 307, 308}), frozenset({307, 308})
_NEXT = regex(r'<([^<>]+)>\s*;[^,<]*\brel="?next"?')


class Clock(NamedTuple):
    """The time in seconds, and a function that waits; tests replace both."""

    now: Callable[[], float]
    sleep: Callable[[float], None]


SYSTEM_CLOCK = Clock(time.time, effects.sleep)


class Authorization(Protocol):
    """The source of the Authorization header for one server."""

    def value(self) -> str:
        """Return the header's value, empty for none."""
        ...

    def renew(self, refused: str, challenge: str) -> bool:
        """Discard a refused value, by a challenge of that server; tell whether there is another one."""
        ...


class StaticToken(NamedTuple):
    """A configured token."""

    token: str
    scheme: str = "Bearer"

    def value(self) -> str:
        """Return the header's value, empty for none."""
        return f"{self.scheme} {self.token}" if self.token else ""

    def renew(self, _refused: str, _challenge: str) -> bool:
        """Return False: a configured token cannot be renewed."""
        return False


class TimeLimits(NamedTuple):
    """The longest silence, the longest call with its retries, the longest demanded wait, and their number.

    The first wait without a stated time is `unstated_s`, and each further one twice as long.
    """

    silence_s: float
    answer_s: float
    wait_s: float
    waits: int = 1
    unstated_s: float = SECONDARY_WAIT_S


class Request(NamedTuple):
    """A request. One that `writes` is repeated only if it is `repeatable`.

    `parses` expects JSON, `limit` bounds the body in bytes, `hints` are next steps by kind of refusal.
    """

    method: str
    url: str
    content: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}
    auth: Authorization = StaticToken("")
    limit: int = _SHORT
    writes: bool = False
    repeatable: bool = True
    conditional: bool = False
    parses: bool = False
    hints: Mapping[ReplyKind, str] = {}


class Reply(NamedTuple):
    """A reply and the address that sent it; the names of headers are in lower case. Status 0 is no answer.

    `data` is the JSON or text of the body where that was expected. `is_own` is False if a redirect led to
    another server.
    """

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    data: Any = None
    url: str = ""
    is_own: bool = True

    @property
    def next_query(self) -> str:
        """The query of the link to the next page, empty on the last one.

        The rest of the link does not count: a server that is reached by another name, as in its own cluster
        or behind a proxy, links to its public address.
        """
        following = _NEXT.search(self.headers.get("link", ""))
        return printable(following[1]).partition("#")[0].partition("?")[2] if following else ""


class Client:
    """Sends requests; thread-safe. `requests` counts them, `answered` has the servers that ever answered.

    `refusal` tells why an address that another one leads to may not be asked, "" if it may. `skew_s` is how
    far the clock of the server is ahead.
    """

    def __init__(
        self,
        times: TimeLimits,
        refusal: Callable[[str, str], str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        headers: Mapping[str, str] | None = None,
        replies: ReplyCache | None = None,
    ) -> None:
        from reconciler.http.connection import Connections  # noqa: PLC0415 - slow, and seldom needed

        self.clock = clock
        self.skew_s = 0.0
        self.requests = 0
        self.answered: set[Server] = set()
        self._times, self._refusal, self._replies = times, refusal, replies
        self._not_before: dict[Server, float] = {}
        self._lock = threading.Lock()
        agent = {"User-Agent": f"reconciler/{__version__}", "Accept-Encoding": "gzip"}
        self._connections = Connections(times.silence_s, {**agent, **(headers or {})})

    def call(self, request: Request) -> Reply:
        """Send a request until there is a final answer; return it if it is a success.

        Raises:
            ReconcilerError: of the kind of the refusal.
        """
        failures, waits, is_renewed = 0, 0, False
        until = time.monotonic() + self._times.answer_s
        while True:
            until += self._await_turn(request.url)
            value = request.auth.value()
            reply, meaning = self._attempt(request, value, until)
            match meaning.kind:
                case ReplyKind.NONE:
                    return reply
                # A challenge counts from the server itself only.
                case ReplyKind.UNAUTHORIZED if reply.is_own and not is_renewed:
                    is_renewed = True
                    if request.auth.renew(value, reply.headers.get("www-authenticate", "")):
                        continue
                case ReplyKind.LIMITED if request.writes:
                    continue  # the budget of writes lets it wait, or ends them
                case ReplyKind.LIMITED:
                    unstated = self._times.unstated_s * 2**waits
                    wait = unstated if meaning.wait_s is None else meaning.wait_s
                    if waits == self._times.waits:
                        words = mask_tokens(meaning.message)
                        raise LimitedError(f"{shown(reply.url)} limits requests: {words}", wait_s=wait)
                    self._hold(request.url, wait)
                    waits += 1
                    continue
                case ReplyKind.LOST if request.repeatable and failures < ATTEMPTS - 1:
                    wait = float(2**failures) if meaning.wait_s is None else meaning.wait_s
                    if wait <= self._times.wait_s and time.monotonic() < until:
                        self.clock.sleep(wait)
                        failures += 1
                        continue
            raise _error(request, reply, meaning, has_credential=bool(value))

    def keep(self, reply: Reply) -> None:
        """Keep a reply for conditional requests: a whole one, for one that was cut short has the same tag."""
        etag = reply.headers.get("etag", "")
        if self._replies and re.fullmatch(SENDABLE, etag):
            self._replies.store(reply.url, CachedReply(etag, reply.headers.get("link", ""), reply.body))

    def _attempt(self, request: Request, value: str, until: float) -> tuple[Reply, ClassifiedReply]:
        """Send a request once, and classify its reply."""
        reply = self._follow(request, value, until)
        if not reply.status:
            return reply, ClassifiedReply(ReplyKind.LOST, str(reply.data))
        if (date := parse_date(reply.headers.get("date", ""))) is not None:
            self.skew_s = date - self.clock.now()
        now = self.clock.now() + self.skew_s
        if reply.headers.get("ratelimit-remaining", "").partition(";")[0].strip() == "0" and reply.is_own:
            wait = stated_wait(reply.headers, now) or 0.0
            # A day is no window that a server means: one odd answer would end all work with it.
            self._hold(reply.url, wait if wait < LONGEST_WAIT_S else 0.0)
        return reply, classify(reply.status, reply.headers, reply.data, now=now)

    def _follow(self, request: Request, value: str, until: float) -> Reply:
        """Send a request, and follow its redirects: without the credential from another server on."""
        url, is_own = request.url, True
        for _ in range(_HOPS + 1):
            reply = self._send(request, url, value if is_own else "", until)._replace(is_own=is_own)
            target = reply.headers.get("location", "")
            keeps_method = request.method in {"GET", "HEAD"} or reply.status in _KEEPS_METHOD
            if reply.status not in _MOVED or not (target and keeps_method):
                return reply
            try:
                following = resolve(url, target)
                why = self._refusal(request.url, following)
                is_own = is_own and find_server(following) == find_server(request.url)
            except ValueError as error:
                following, why = target[:200], f"cannot be asked: {error}"
            if request.content and not is_own:
                why = why or "does not get what was for another server"
            if why:
                message = f"{shown(url)} leads to {shown(following)}, which {why}"
                raise UnavailableError(message, hint=request.hints.get(ReplyKind.MOVED))
            url = following
        raise UnavailableError(f"{shown(url)} leads from one address to the next without an end")

    def _send(self, request: Request, url: str, value: str, until: float) -> Reply:
        """Send a request to one server; an unchanged reply comes from the cache."""
        from reconciler.http.connection import NoAnswerError  # noqa: PLC0415 - see above

        cached = self._replies.find(url) if self._replies and request.conditional else None
        headers = {
            **request.headers,
            **({"Content-Type": request.content_type} if request.content else {}),
            **({"Authorization": value} if value else {}),
            **({"If-None-Match": cached.etag} if cached else {}),
        }
        with self._lock:
            self.requests += 1
        try:
            status, sent, body = self._connections.send(
                request.method, url, headers, request.content, limit=request.limit, until=until
            )
        except NoAnswerError as error:
            if error.is_broken:
                self.answered.add(find_server(url))
            if not error.is_final:
                return Reply(0, data=str(error), url=url)
            unreadable = ClassifiedReply(ReplyKind.LOST, str(error))
            raise _error(request, Reply(_OK, url=url), unreadable) from error
        self.answered.add(find_server(url))
        if cached is not None and status == _NOT_MODIFIED:
            status, body, sent = _OK, cached.body, {**sent, "link": cached.link, "etag": ""}
        return Reply(status, sent, body, _parsed(body) if request.parses or status != _OK else None, url)

    def _await_turn(self, url: str) -> float:
        """Wait as long as a server demanded; return for how long."""
        wait = self._not_before.get(find_server(url), 0.0) - self.clock.now()
        if wait > self._times.wait_s:
            raise LimitedError(f"{shown(url)} limits requests", wait_s=wait)
        if wait > 0:
            self.clock.sleep(wait)
        return max(wait, 0.0)

    def _hold(self, url: str, wait: float) -> None:
        """Let every thread wait before its next request to a server."""
        server, until = find_server(url), self.clock.now() + wait
        with self._lock:
            self._not_before[server] = max(self._not_before.get(server, 0.0), until)


_KINDS: Mapping[ReplyKind, type[ReconcilerError]] = {
    ReplyKind.MISSING: MissingError,
    ReplyKind.BLOCKED: BlockedError,
    ReplyKind.FORBIDDEN: ForbiddenError,
    ReplyKind.UNAUTHORIZED: UnauthorizedError,
}
_KINDS_OF_WRITES: Mapping[ReplyKind, type[ReconcilerError]] = {
    **_KINDS,
    ReplyKind.LOST: LostReplyError,
    ReplyKind.FORBIDDEN: RefusedError,
}


def _error(
    request: Request, reply: Reply, meaning: ClassifiedReply, *, has_credential: bool = False
) -> ReconcilerError:
    """Return the error of a refusal, in the words of the server that refuses."""
    kind, server = meaning.kind, find_server(reply.url)
    words = mask_tokens(f"{reply.status or 'no answer'} {meaning.message}".strip())
    led = "" if reply.is_own else f", where {shown(request.url)} leads"
    message = f"{request.method} {shown(reply.url)}{led}: {words}"
    if kind is ReplyKind.UNAUTHORIZED and has_credential and reply.is_own:
        message = f"{server} refuses the credential: {words}"
    if request.writes and kind is ReplyKind.INVALID:
        return InvalidError(message, status=reply.status)
    # Steps are about the server that was asked, and those about silence are no help where it fails.
    has_step = reply.is_own and not (kind is ReplyKind.LOST and reply.status)
    other = UnavailableError if reply.status else SilentError
    make = (_KINDS_OF_WRITES if request.writes else _KINDS).get(kind, other)
    error = make(message, hint=request.hints.get(kind) if has_step else None)
    if kind is ReplyKind.UNAUTHORIZED:
        error.cause = message
    elif kind is ReplyKind.FORBIDDEN or not reply.status:
        error.cause = f"{server}: {words}"
    return error


def _parsed(data: bytes) -> Any:
    """Return the JSON in a body, its text if it is none, None if it is empty."""
    if not data:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return re.sub(r"<[^>]*>|\s+", " ", data[:2000].decode(errors="replace"))
