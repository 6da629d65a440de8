"""HTTP requests to forge APIs: authorization, limits, retries, deadlines and pages."""

import hashlib
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

import orjson

from reconciler import __version__
from reconciler.base.errors import ReconcilerError, RefusedError, UnavailableError
from reconciler.base.redact import mask_tokens, outgoing_fields
from reconciler.base.timing import SpanKind, timed
from reconciler.forge.api.budget import SYSTEM_CLOCK, Budget, Clock
from reconciler.forge.api.errors import (
    SECONDARY_WAIT_S,
    BlockedError,
    ClassifiedReply,
    ForbiddenError,
    InvalidError,
    LimitedError,
    LostReplyError,
    MissingError,
    ReplyKind,
    UnauthorizedError,
    classify,
)
from reconciler.forge.api.reply_cache import CachedReply, ReplyCache
from reconciler.git.effects import effect

if TYPE_CHECKING:
    import ssl

ATTEMPTS = 4
T = TypeVar("T")
LARGEST = 32 << 20
_HOPS = 3
_OK, _NOT_MODIFIED = 200, 304
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Authorization(Protocol):
    """The source of the Authorization header."""

    def value(self) -> str:
        """Return the header's value, empty for none."""
        ...

    def renew(self) -> bool:
        """Discard a refused value; tell whether the next value will be another one."""
        ...


class StaticToken(NamedTuple):
    """A configured token."""

    token: str
    scheme: str = "Bearer"

    def value(self) -> str:
        """Return the header's value, empty for none."""
        return f"{self.scheme} {self.token}" if self.token else ""

    def renew(self) -> bool:
        """Return False: a configured token cannot be renewed."""
        return False


class Reply(NamedTuple):
    """A successful reply: its parsed body, and its headers with names in lower case."""

    data: Any
    headers: Mapping[str, str]


class _Request(NamedTuple):
    method: str
    url: str
    body: object = None
    params: Mapping[str, str | int] | None = None
    writes: bool = False
    conditional: bool = False


class Read(NamedTuple):
    """A request that changed nothing, and the digest of its reply."""

    method: str
    url: str
    body: Any
    params: Mapping[str, str | int] | None
    conditional: bool
    digest: str


class _Raw(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: Any


@cache
def _trusted(_file: str, _directory: str) -> "ssl.SSLContext":
    """Return the authorities that the environment's two variables choose; loading them takes 25 ms."""
    import httpx  # noqa: PLC0415 - slow to import, and needed only where a forge is remote

    return httpx.create_ssl_context()


def _digest(reply: Reply) -> str:
    """Return the digest of a reply and its link to the next page."""
    data = orjson.dumps([reply.data, reply.headers.get("link", "")])
    return hashlib.sha256(data).hexdigest()


class Transport:
    """Requests to one API as one identity; thread-safe.

    The token is sent to the API's own host only, and never over clear text beyond this machine. Reads are
    retried. A write is retried only where it certainly had no effect or is idempotent (`repeatable`).
    Every write passes the budget. `reads` are all reads so far; `is_read_whole` is False if one failed.
    """

    def __init__(
        self,
        base: str,
        auth: Authorization,
        budget: Budget,
        *,
        clock: Clock = SYSTEM_CLOCK,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        replies: ReplyCache | None = None,
    ) -> None:
        import httpx  # noqa: PLC0415 - slow to import, and needed only where a forge is remote

        parts = urlsplit(base)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UnavailableError(f"{base!r} is no address of a forge's API", hint="Give an https URL.")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise UnavailableError(f"A token for {base} would be sent in the clear", hint="Use https.")
        self.base = base.rstrip("/")
        self.auth = auth
        self.budget = budget
        self.clock = clock
        self.skew_s = 0.0
        self._replies = replies
        self._timeout_s = timeout_s
        self.reads: list[Read] = []
        self.is_read_whole = True
        agent = {"User-Agent": f"reconciler/{__version__}", "Accept": "application/json"}
        self._client = httpx.Client(
            headers={**agent, **(headers or {})},
            timeout=timeout_s,
            follow_redirects=False,
            verify=_trusted(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")),
        )
        weakref.finalize(self, self._client.close)

    def get(
        self, path: str, params: Mapping[str, str | int] | None = None, *, conditional: bool = False
    ) -> Reply:
        """Read; retried while the forge fails. With `conditional` an unchanged reply comes from the cache."""
        return self._read(_Request("GET", self._url(path), None, params, conditional=conditional))

    def write(self, method: str, path: str, body: object = None, *, repeatable: bool = False) -> Reply:
        """Write once; a lost reply is retried only if `repeatable`, else it raises LostReplyError."""
        return self._call(_Request(method, self._url(path), body, writes=True), repeatable=repeatable)

    def query(self, path: str, body: object) -> Reply:
        """Read with a POST, as GraphQL does."""
        return self._read(_Request("POST", self._url(path), body))

    def repeat(self, read: Read) -> bool:
        """Read again; tell whether the reply is the same."""
        request = _Request(read.method, read.url, read.body, read.params, conditional=read.conditional)
        return _digest(self._call(request, repeatable=True)) == read.digest

    def items(self, path: str, params: Mapping[str, str | int]) -> Iterator[Any]:
        """Yield the items of all pages of a list."""
        for page in self.pages(path, params):
            yield from page

    def pages(
        self, path: str, params: Mapping[str, str | int], *, conditional: bool = False
    ) -> Iterator[list[Any]]:
        """Yield the pages of a list, all of them from this path of this API.

        Only the query of the link to the next page counts: a server that is reached by another name, as in
        its own cluster or behind a proxy, links to its public address.
        """
        reply = self.get(path, params, conditional=conditional)
        while True:
            if not isinstance(reply.data, list):
                raise UnavailableError(f"{self._url(path)} answers no list")
            yield reply.data
            following = _NEXT.search(reply.headers.get("link", ""))
            if not following:
                return
            reply = self.get(f"{path}?{urlsplit(following.group(1)).query}", conditional=conditional)

    def write_once(
        self,
        write: Callable[[], T],
        look: Callable[[], T | None],
        delays: tuple[float, ...],
        *,
        attempts: int = ATTEMPTS,
    ) -> T:
        """Do a write that is not idempotent: after a lost reply, poll for its effect before repeating it."""
        for attempt in range(attempts):
            try:
                return write()
            except LostReplyError:
                if (result := self.poll(look, delays)) is not None:
                    return result
                if attempt == attempts - 1:
                    raise
        raise AssertionError

    def poll(self, look: Callable[[], T | None], delays: Sequence[float]) -> T | None:
        """Call `look` until it returns a value: a forge's lists lag behind its writes."""
        for delay in (0.0, *delays):
            if delay:
                self.clock.sleep(delay)
            if (value := look()) is not None:
                return value
        return None

    def _read(self, request: _Request) -> Reply:
        try:
            reply = self._call(request, repeatable=True)
        except ReconcilerError:
            self.is_read_whole = False
            raise
        method, url, body, params, _, conditional = request
        self.reads.append(Read(method, url, body, params, conditional, _digest(reply)))
        return reply

    def _call(self, request: _Request, *, repeatable: bool) -> Reply:
        hops, renewed, failures, waits = 0, False, 0, 0
        while True:
            raw, reply = self._try(request)
            match reply.kind:
                case ReplyKind.NONE:
                    return Reply(raw.data, raw.headers)
                case ReplyKind.LIMITED:
                    waits += not request.writes
                    self._wait_out(reply, waits)
                case ReplyKind.UNAUTHORIZED if not renewed and self.auth.renew():
                    renewed = True
                case ReplyKind.MOVED if hops < _HOPS and _keeps_method(raw.status, request.method):
                    target = raw.headers.get("location", "")
                    if not target:
                        raise UnavailableError(f"{request.url} redirects without a target")
                    url = urljoin(self._url(request.url), target)
                    if _origin(url) != _origin(self.base):
                        raise UnavailableError(f"{self.base} redirects to another host")
                    request = request._replace(url=url, params=None)
                    hops += 1
                case ReplyKind.LOST if repeatable and failures < ATTEMPTS - 1:
                    self.clock.sleep(float(2**failures))
                    failures += 1
                case _:
                    raise self._error(reply, request, raw.status)

    def _error(self, reply: ClassifiedReply, request: _Request, status: int) -> ReconcilerError:
        answer = mask_tokens(f"{status or 'no answer'} {reply.message}".strip())
        if reply.kind is ReplyKind.UNAUTHORIZED:
            error = _error(reply.kind, f"{self.base} refuses the credential: {answer}", status, writes=False)
            error.cause = str(error)
            return error
        error = _error(reply.kind, f"{request.method} {request.url}: {answer}", status, writes=request.writes)
        if reply.kind is ReplyKind.FORBIDDEN or not status:
            error.cause = f"{self.base}: {answer}"
        return error

    def _try(self, request: _Request) -> tuple[_Raw, ClassifiedReply]:
        """Send one request and classify its reply; a broken connection is a lost reply."""
        import httpx  # noqa: PLC0415 - see above

        try:
            if not request.writes:
                return self._classified(self._send(request))
            with self.budget.write(), effect(f"forge {request.method} {urlsplit(request.url).path}"):
                raw, reply = self._classified(self._send(request))
                # Still inside the budget's lock: other threads must see the limit before they write.
                if reply.kind is ReplyKind.LIMITED:
                    self.budget.note_limit(reply.wait_s)
                return raw, reply
        except (httpx.HTTPError, httpx.StreamError) as error:
            reason = f"{type(error).__name__} {error}".strip()
            return _Raw(0, {}, None), ClassifiedReply(ReplyKind.LOST, reason)

    def _send(self, request: _Request) -> _Raw:
        import httpx  # noqa: PLC0415 - see above

        method, url, body, params, _, conditional = request
        headers = {"Authorization": value} if (value := self.auth.value()) else {}
        content = None
        if body is not None:
            content = orjson.dumps(outgoing_fields(body, f"the request {method} {url}"))
            headers["Content-Type"] = "application/json"
        # httpx limits the time between two chunks only: a server that trickles would hold us for ever.
        until = time.monotonic() + 2 * self._timeout_s
        address = str(httpx.URL(url, params=params)) if params else url
        cached = self._replies.find(address) if self._replies and conditional else None
        if cached is not None:
            headers["If-None-Match"] = cached.etag
        sent = self._client.stream(method, url, content=content, params=params, headers=headers)
        with timed(SpanKind.FORGE, f"{method} {url}", self.base), sent as reply:
            data = bytearray()
            for chunk in reply.iter_bytes():
                data += chunk
                if len(data) > LARGEST or time.monotonic() > until:
                    raise httpx.ReadTimeout("the reply is too large or too slow")
        lowered = {name.lower(): value for name, value in reply.headers.items()}
        self._learn_time(lowered.get("date", ""))
        if cached is not None and reply.status_code == _NOT_MODIFIED:
            return _Raw(_OK, {**lowered, "link": cached.link}, _parsed(cached.body))
        parsed, etag = _parsed(bytes(data)), lowered.get("etag", "")
        # A reply that was cut short has the tag of the whole one: it would be confirmed for ever.
        whole = reply.status_code == _OK and isinstance(parsed, list)
        if self._replies and conditional and etag and whole:
            self._replies.store(address, CachedReply(etag, lowered.get("link", ""), bytes(data)))
        return _Raw(reply.status_code, lowered, parsed)

    def _learn_time(self, date: str) -> None:
        try:
            self.skew_s = parsedate_to_datetime(date).timestamp() - self.clock.now()
        except ValueError:
            return

    def _classified(self, raw: _Raw) -> tuple[_Raw, ClassifiedReply]:
        return raw, classify(raw.status, raw.headers, raw.data, now=self.clock.now() + self.skew_s)

    def _wait_out(self, reply: ClassifiedReply, waits: int) -> None:
        """Wait as long as the forge demands, within the limit; writes wait in the budget instead."""
        if not waits:
            return
        wait = reply.wait_s if reply.wait_s is not None else SECONDARY_WAIT_S
        if waits > 1 or wait > self.budget.limits.max_wait_s:
            raise LimitedError(f"The forge limits reads: {reply.message}", wait_s=wait)
        self.clock.sleep(wait)

    def _url(self, path: str) -> str:
        return path if path.startswith(("https://", "http://")) else f"{self.base}{path}"


_HINTS = {
    ReplyKind.UNAUTHORIZED: "Give a token that is valid, where the rule of spec.credentials reads it from.",
    ReplyKind.MISSING: "Check the URL, and whether the token may see the repository.",
    ReplyKind.BLOCKED: "Merge or close some of its pull requests first.",
    ReplyKind.FORBIDDEN: "Check the token's permissions, and that the repository is not archived.",
}
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


def _error(kind: ReplyKind, message: str, status: int, *, writes: bool) -> ReconcilerError:
    if writes and kind is ReplyKind.INVALID:
        return InvalidError(message, status=status)
    return (_KINDS_OF_WRITES if writes else _KINDS).get(kind, UnavailableError)(
        message, hint=_HINTS.get(kind)
    )


def _parsed(data: bytes) -> Any:
    """Return the JSON in a body, its text if it is none, None if it is empty."""
    if not data:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return re.sub(r"<[^>]*>|\s+", " ", data[:2000].decode(errors="replace"))


def _keeps_method(status: int, method: str) -> bool:
    return method == "GET" or status in {307, 308}


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port
