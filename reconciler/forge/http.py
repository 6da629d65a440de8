"""One transport under every dialect: authorization, limits, retries, deadlines, pages, nothing else."""

import re
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

import orjson

from reconciler import __version__
from reconciler.errors import ReconcilerError, RefusedError, UnavailableError
from reconciler.forge.budget import SYSTEM_CLOCK, Budget, Clock
from reconciler.forge.faults import (
    BlockedError,
    Fault,
    FaultKind,
    InvalidError,
    LimitedError,
    LostReplyError,
    MissingError,
    classify,
)
from reconciler.git.effects import effect
from reconciler.report.redact import Redactor, learn_credential, mask_credentials

ATTEMPTS = 4
T = TypeVar("T")
LARGEST = 32 << 20
_HOPS = 3
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Authorization(Protocol):
    """Where the Authorization header comes from."""

    def value(self) -> str:
        """Return the header's value, empty for none."""
        ...

    def renew(self) -> bool:
        """Forget what was refused; tell whether the next value will be another one."""
        ...


class StaticToken(NamedTuple):
    """A token that somebody gave us."""

    token: str
    scheme: str = "Bearer"

    def value(self) -> str:
        """Return the header's value, empty for none."""
        return f"{self.scheme} {self.token}" if self.token else ""

    def renew(self) -> bool:
        """A given token cannot be renewed."""
        return False


class Reply(NamedTuple):
    """A reply that is what it should be: its parsed body and its headers, names in lower case."""

    data: Any
    headers: Mapping[str, str]


class _Raw(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: Any


class Transport:
    """Calls to one API as one identity; for several threads.

    The token goes to the API's own host and nowhere else, never over clear text beyond this machine.
    A read is tried again; a write only where it certainly had no effect, unless the caller says
    that doing it twice is doing it once. Every write passes the budget.
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
        self._timeout_s = timeout_s
        agent = {"User-Agent": f"reconciler/{__version__}", "Accept": "application/json"}
        self._client = httpx.Client(
            headers={**agent, **(headers or {})}, timeout=timeout_s, follow_redirects=False
        )
        weakref.finalize(self, self._client.close)

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Reply:
        """Read; tried again while the forge is unwell."""
        return self._call("GET", path, None, params, writes=False, repeatable=True)

    def write(self, method: str, path: str, body: object = None, *, repeatable: bool = False) -> Reply:
        """Write once; again after a lost reply only if `repeatable`, else LostReplyError tells of it."""
        return self._call(method, path, body, None, writes=True, repeatable=repeatable)

    def query(self, path: str, body: object) -> Reply:
        """Read with a POST, as GraphQL does."""
        return self._call("POST", path, body, None, writes=False, repeatable=True)

    def pages(self, path: str, params: Mapping[str, str | int]) -> Iterator[Any]:
        """Yield the items of every page; the links of the forge are followed on its own host only."""
        reply = self.get(path, params)
        while True:
            if not isinstance(reply.data, list):
                raise UnavailableError(f"{self._at(path)} answers no list")
            yield from reply.data
            found = _NEXT.search(reply.headers.get("link", ""))
            if not found:
                return
            reply = self.get(self._own(found.group(1), path))

    def settle(self, write: Callable[[], T], look: Callable[[], T | None], waits: tuple[float, ...]) -> T:
        """Do a write whose reply may get lost: look whether it happened, and only then do it again."""
        for attempt in range(ATTEMPTS):
            try:
                return write()
            except LostReplyError:
                if (found := self.find_late(look, waits)) is not None:
                    return found
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def find_late(self, look: Callable[[], T | None], waits: tuple[float, ...]) -> T | None:
        """Return what `look` finds, looking again after each wait: a forge's lists lag behind its writes."""
        for wait in (0.0, *waits):
            if wait:
                self.clock.sleep(wait)
            if (found := look()) is not None:
                return found
        return None

    def _call(
        self,
        method: str,
        path: str,
        body: object,
        params: Mapping[str, str | int] | None,
        *,
        writes: bool,
        repeatable: bool,
    ) -> Reply:
        url, hops, renewed, failures, waits = self._at(path), 0, False, 0, 0
        while True:
            raw, fault = self._try(method, url, body, params, writes=writes)
            match fault.kind:
                case FaultKind.NONE:
                    return Reply(raw.data, raw.headers)
                case FaultKind.LIMITED:
                    waits += not writes
                    self._wait_out(fault, waits)
                case FaultKind.UNAUTHORIZED if not renewed and self.auth.renew():
                    renewed = True
                case FaultKind.MOVED if hops < _HOPS and _keeps_method(raw.status, method):
                    url, params, hops = self._moved(raw, url), None, hops + 1
                case FaultKind.LOST if repeatable and failures < ATTEMPTS - 1:
                    self.clock.sleep(float(2**failures))
                    failures += 1
                case _:
                    self._fail(fault, raw.status, f"{method} {url}", writes=writes)

    def _try(
        self, method: str, url: str, body: object, params: Mapping[str, str | int] | None, *, writes: bool
    ) -> tuple[_Raw, Fault]:
        """Send once and judge the answer; a connection that broke is a lost reply.

        A limit is noted before anybody else may write.
        """
        import httpx  # noqa: PLC0415 - see above

        try:
            if not writes:
                return self._judged(self._send(method, url, body, params))
            with self.budget.write(), effect(f"forge {method} {urlsplit(url).path}"):
                raw, fault = self._judged(self._send(method, url, body, params))
                if fault.kind is FaultKind.LIMITED:
                    self.budget.limited(fault.wait_s)
                return raw, fault
        except (httpx.HTTPError, httpx.StreamError) as error:
            return _Raw(0, {}, None), Fault(FaultKind.LOST, f"{type(error).__name__} {error}".strip())

    def _send(self, method: str, url: str, body: object, params: Mapping[str, str | int] | None) -> _Raw:
        import httpx  # noqa: PLC0415 - see above

        headers = {"Authorization": value} if (value := self.auth.value()) else {}
        learn_credential(value.rpartition(" ")[2])
        content = None
        if body is not None:
            content = orjson.dumps(_masked(body))
            headers["Content-Type"] = "application/json"
        until = time.monotonic() + 2 * self._timeout_s
        with self._client.stream(method, url, content=content, params=params, headers=headers) as reply:
            data = bytearray()
            for chunk in reply.iter_bytes():
                data += chunk
                if len(data) > LARGEST or time.monotonic() > until:
                    raise httpx.ReadTimeout("the answer is too long or too slow")
        found = {name.lower(): value for name, value in reply.headers.items()}
        self._learn_time(found.get("date", ""))
        return _Raw(reply.status_code, found, _parsed(bytes(data)))

    def _learn_time(self, date: str) -> None:
        try:
            self.skew_s = parsedate_to_datetime(date).timestamp() - self.clock.now()
        except ValueError:
            return

    def _judged(self, raw: _Raw) -> tuple[_Raw, Fault]:
        return raw, classify(raw.status, raw.headers, raw.data, now=self.clock.now() + self.skew_s)

    def _wait_out(self, fault: Fault, waits: int) -> None:
        """Wait as long as the forge asks, if that is not too long; a write's turn comes with the budget."""
        if not waits:
            return
        wait = fault.wait_s if fault.wait_s is not None else 60.0
        if waits > 1 or wait > self.budget.limits.max_wait_s:
            raise LimitedError(f"The forge limits reads: {self._shown(fault.message)}", wait_s=wait)
        self.clock.sleep(wait)

    def _fail(self, fault: Fault, status: int, what: str, *, writes: bool) -> NoReturn:
        said = self._shown(f"{what}: {status or 'no answer'} {fault.message}".strip())
        raise _error(fault.kind, said, status, writes=writes)

    def _shown(self, text: str) -> str:
        token = self.auth.value().rpartition(" ")[2]
        return Redactor([token]).text(text)

    def _at(self, path: str) -> str:
        return path if path.startswith(("https://", "http://")) else f"{self.base}{path}"

    def _own(self, link: str, path: str) -> str:
        url = urljoin(self._at(path), link)
        if _origin(url) != _origin(self.base):
            raise UnavailableError(f"{self.base} leads to another host")
        return url

    def _moved(self, raw: _Raw, url: str) -> str:
        target = raw.headers.get("location", "")
        if not target:
            raise UnavailableError(f"{url} moved, and does not say where")
        return self._own(target, url)


def _error(kind: FaultKind, said: str, status: int, *, writes: bool) -> ReconcilerError:
    match kind:
        case FaultKind.LOST:
            return LostReplyError(said) if writes else UnavailableError(said)
        case FaultKind.MISSING:
            return MissingError(said, hint="Check the URL, and whether the token may see the repository.")
        case FaultKind.BLOCKED:
            return BlockedError(said, hint="Merge or close some of its pull requests first.")
        case FaultKind.FORBIDDEN if writes:
            return RefusedError(
                said, hint="Check the token's permissions, and that the repository is not archived."
            )
        case FaultKind.INVALID if writes:
            return InvalidError(said, status=status)
        case _:
            return UnavailableError(said)


def _masked(value: object) -> object:
    """Return what is sent to a forge without any credential: texts are read by people."""
    match value:
        case str():
            return mask_credentials(value)
        case Mapping():
            return {key: _masked(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_masked(inner) for inner in value]
        case _:
            return value


def _parsed(data: bytes) -> Any:
    """Return the JSON in a body, its text if it is none, None if it is empty."""
    if not data:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return re.sub(r"<[^>]*>|\s+", " ", data[:2000].decode("utf-8", "replace"))


def _keeps_method(status: int, method: str) -> bool:
    return method == "GET" or status in {307, 308}


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port
