"""Requests to the API of a forge: JSON, pages, and writes within a budget of the minute and the hour."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import orjson

from reconciler.base.effects import effect
from reconciler.base.errors import ConfigurationError, UnavailableError
from reconciler.base.progress import call
from reconciler.base.redact import mask_tokens, outgoing_fields
from reconciler.base.text import plural
from reconciler.http.client import (
    ATTEMPTS,
    LONGEST_WAIT_S,
    SECONDARY_WAIT_S,
    SYSTEM_CLOCK,
    Authorization,
    ClassifiedReply,
    Client,
    Clock,
    LimitedError,
    LostReplyError,
    Reply,
    ReplyKind,
    Request,
    TimeLimits,
    duration_text,
    find_server,
    resolve,
)
from reconciler.policy import Limits, WriteLimits

MINUTE_S, HOUR_S = 60.0, 3600.0
_MARGIN_S = 0.01
"""Added to each turn so that the oldest write has left the window despite rounding."""


class Budget:
    """Limits the writes of one identity on one forge; thread-safe.

    Serial: one write at a time over all repositories. The windows are recomputed from the times of the
    forge's own records (`learn`), so they hold across runs without stored state. Fails closed: writes in
    a repository that cannot be read count as spent.
    """

    def __init__(self, limits: WriteLimits, clock: Clock = SYSTEM_CLOCK) -> None:
        self.limits = limits
        self.clock = clock
        self._spent: list[float] = []
        self._lock = threading.Lock()
        self._closed_until = 0.0
        self._hits = 0
        self._repositories: set[str] = set()
        self._unread: set[str] = set()
        self._held = 0

    def reserve(self, writes: int) -> None:
        """Keep so many writes of the hour for the end of the run, where the dashboard is written."""
        # One write is left for the run, or it would wait for itself.
        self._held = min(writes, self.limits.per_hour - 1)

    def learn(self, times: Iterable[float]) -> None:
        """Count the writes of other runs at these times, in seconds of our clock."""
        with self._lock:
            # GitHub counts about 80 new texts a minute and 500 an hour, by REST, GraphQL and the web
            # together.
            recent = (t for t in times if t > self.clock.now() - HOUR_S)
            self._spent = sorted([*self._spent, *recent])

    def mark_read(self, repository: str) -> None:
        """Note that the writes in a repository were counted, or that it can have none."""
        self._repositories.add(repository)
        self._unread.discard(repository)

    def mark_unread(self, repository: str) -> None:
        """Note that a repository could not be read: its share of the hour counts as spent."""
        self._repositories.add(repository)
        self._unread.add(repository)

    @contextmanager
    def write(self) -> Iterator[None]:
        """Wait for this write's turn, and count it when its reply is there.

        Raises:
            LimitedError: Its turn comes after the longest permitted wait; nothing was sent.
        """
        # The lock is held while the caller sends: GitHub asks for writes one after another.
        with self._lock:
            self._wait()
            try:
                yield
            finally:
                self._spent.append(self.clock.now())

    def note_limit(self, wait_s: float | None) -> None:
        """Make every write wait because the forge limited one; double the wait each time.

        Raises:
            LimitedError: The second limit in a run ends its writes.
        """
        # A secondary limit of GitHub may come without Retry-After: it asks for a minute, then for longer each
        # time.
        self._hits += 1
        wait = wait_s if wait_s is not None else min(SECONDARY_WAIT_S * 2 ** (self._hits - 1), LONGEST_WAIT_S)
        self._closed_until = max(self._closed_until, self.clock.now() + wait)
        if self._hits > 1:
            raise LimitedError("The forge limits writes again", wait_s=wait)

    @property
    def spent(self) -> int:
        """The writes of the last hour, as far as they are known."""
        return sum(at > self.clock.now() - HOUR_S for at in self._spent)

    def eta_s(self, writes: int) -> float:
        """Return the seconds that so many more writes take, waits included."""
        now, spent = self.clock.now(), list(self._spent)
        at = now
        for _ in range(writes):
            at = max(at, next_turn(spent, self.limits, self._closed_until))
            spent.append(at)
        return at - now

    def _wait(self) -> None:
        # Count the share of unread repositories in the hour, rounded up, as spent
        if self._unread:
            count = -(-self.limits.per_hour * len(self._unread) // len(self._repositories))
            self._unread.clear()
            self._spent += [self.clock.now()] * count
        limits = replace(self.limits, per_hour=self.limits.per_hour - self._held)
        wait = next_turn(self._spent, limits, self._closed_until) - self.clock.now()
        if wait > self.limits.max_wait_s:
            limit = f"{self.limits.per_minute} a minute, {self.limits.per_hour} an hour"
            message = f"The budget of writes is spent ({limit}); the next one is due in {duration_text(wait)}"
            raise LimitedError(message, wait_s=wait)
        if wait > 0:
            self.clock.sleep(wait)


def next_turn(spent: Sequence[float], limits: WriteLimits, closed_until: float = 0.0) -> float:
    """Return the earliest time of the next write after writes at the times `spent`, ascending. Pure.

    Total: a limit of zero never has a turn.
    """
    turn = closed_until
    for most, window in ((limits.per_minute, MINUTE_S), (limits.per_hour, HOUR_S)):
        if most < 1:
            return inf
        if len(spent) >= most:
            # The write that is `most` before this one must have left the window.
            turn = max(turn, spent[-most] + window + _MARGIN_S)
    # Spread over the minute: GitHub asks for a second or more between writes.
    return max(turn, spent[-1] + MINUTE_S / limits.per_minute) if spent else turn


def split(limits: WriteLimits, shards: int) -> WriteLimits:
    """Return one shard's part of the limits, at least one write a minute and one an hour.

    Raises:
        ConfigurationError: There are more shards than writes, so the limit could not be kept.
    """
    if shards > min(limits.per_minute, limits.per_hour):
        few = min(limits.per_minute, limits.per_hour)
        raise ConfigurationError(
            f"{shards} shards cannot share {few} writes", hint="Use fewer shards, or raise the write limits."
        )
    return replace(limits, per_minute=limits.per_minute // shards, per_hour=limits.per_hour // shards)


T = TypeVar("T")
LARGEST = 32 << 20
_DEFAULTS = Limits()
_HINTS = {
    ReplyKind.UNAUTHORIZED: "Give a token that is valid, where the rule of spec.credentials reads it from.",
    ReplyKind.MISSING: "Check the URL, and whether the token may see the repository.",
    ReplyKind.BLOCKED: "Merge or close some of its pull requests first.",
    ReplyKind.MOVED: "Name the server itself in spec.forges.",
    ReplyKind.FORBIDDEN: "Check the token's permissions, and that the repository is not archived.",
}


class Transport(Client):
    """Requests to one API as one identity; thread-safe.

    Only the API's own server is asked, and never over clear text beyond this machine. Reads are retried. A
    write is retried only where it certainly had no effect or is idempotent (`repeatable`). Every write passes
    the budget.
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
        limits: Limits = _DEFAULTS,
    ) -> None:
        try:
            server = find_server(base)
        except ValueError as error:
            raise UnavailableError(
                f"{base!r} is no address of a forge's API", hint="Give an https URL."
            ) from error
        # A bearer token is all that a listener needs.
        if not server.is_private:
            raise UnavailableError(f"A token for {base} would be sent in the clear", hint="Use https.")
        self.base = base.rstrip("/")
        self.auth = auth
        self.budget = budget
        self._most_pages = limits.forge_pages

        def refusal(_: str, target: str) -> str:
            # The token is for this server, and for none to which it redirects.
            return "" if find_server(target) == server else "is another server"

        times = TimeLimits(timeout_s, 2 * timeout_s, budget.limits.max_wait_s)
        accept = {"Accept": "application/json", **(headers or {})}
        super().__init__(times, refusal, clock=clock, headers=accept)

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Reply:
        """Read; retried while the forge fails."""
        query = f"?{urlencode(params)}" if params else ""
        return self.call(self._request("GET", f"{path}{query}"))

    def write(self, method: str, path: str, body: object = None, *, repeatable: bool = False) -> Reply:
        """Write once; a lost reply is retried only if `repeatable`, else it raises LostReplyError."""
        return self.call(self._request(method, path, body)._replace(writes=True, repeatable=repeatable))

    def query(self, path: str, body: object) -> Reply:
        """Read with a POST, as GraphQL does."""
        return self.call(self._request("POST", path, body))

    def items(self, path: str, params: Mapping[str, str | int]) -> Iterator[Any]:
        """Yield the items of all pages of a list."""
        for page in self.pages(path, params):
            yield from page

    def pages(self, path: str, params: Mapping[str, str | int]) -> Iterator[list[Any]]:
        """Yield the pages of a list, all of them from this path of this API."""
        reply, seen = self.get(path, params), set[str]()
        for _ in self.numbers(path):
            if not isinstance(reply.data, list):
                raise UnavailableError(f"{self.base}{path} answers no list")
            yield reply.data
            if not (query := reply.next_query):
                return
            # A page that links to itself, or to one before it: the list would never end.
            if query in seen:
                raise UnavailableError(f"The pages of {self.base}{path} go in a circle")
            seen.add(query)
            reply = self.get(f"{path}?{query}")

    def numbers(self, path: str) -> Iterator[int]:
        """Count the pages of a list from 1.

        Raises:
            UnavailableError: It does not end.
        """
        yield from range(1, self._most_pages + 1)
        message = f"{self.base}{path} has more than {plural(self._most_pages, 'page')}"
        raise UnavailableError(message, hint="Raise spec.limits.forgePages, if the list is that long.")

    def numbered(self, path: str, read: Callable[[int], tuple[list[Any], str]]) -> Iterator[list[Any]]:
        """Yield the pages of a list that are asked for by their number, each with what tells of a next one.

        Raises:
            UnavailableError: It does not end.
        """
        before = None
        for number in self.numbers(path):
            page = items, following = read(number)
            if page == before:
                raise UnavailableError(f"The pages of {self.base}{path} go in a circle")
            yield items
            if not following:
                return
            before = page

    def write_once(
        self,
        write: Callable[[], T],
        look: Callable[[], T | None],
        delays: tuple[float, ...],
        *,
        attempts: int = ATTEMPTS,
    ) -> T:
        """Do a write that is not idempotent: after a lost reply, poll for its effect before repeating it."""
        for attempt in count(1):
            try:
                return write()
            except LostReplyError:
                # The connection may break after the server has done the write: only its effect tells.
                if (result := self.poll(look, delays)) is not None:
                    return result
                if attempt == attempts:
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

    def _request(self, method: str, path: str, body: object = None) -> Request:
        url = resolve("", path if path.startswith(("https://", "http://")) else f"{self.base}{path}")
        # Texts are masked before their marks are added; what people wrote around them only here.
        fields = outgoing_fields(body, f"the request {method} {url}", mask_tokens)
        content = b"" if body is None else orjson.dumps(fields)
        return Request(method, url, content, auth=self.auth, limit=LARGEST, parses=True, hints=_HINTS)

    def _attempt(self, request: Request, value: str, until: float) -> tuple[Reply, ClassifiedReply]:
        """Send a request once; a write in its turn."""
        with call(f"{request.method} {request.url}"):
            if not request.writes:
                return super()._attempt(request, value, until)
            with self.budget.write(), effect(f"forge {request.method} {urlsplit(request.url).path}"):
                reply, meaning = super()._attempt(request, value, until)
                # Still inside the budget's lock: other threads must see the limit before they write.
                if meaning.kind is ReplyKind.LIMITED:
                    self.budget.note_limit(meaning.wait_s)
                return reply, meaning
