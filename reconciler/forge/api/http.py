"""Requests to the API of a forge: JSON, pages, writes within the budget."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import orjson

from reconciler.base.effects import effect
from reconciler.base.errors import UnavailableError
from reconciler.base.progress import call
from reconciler.base.redact import mask_tokens, outgoing_fields
from reconciler.base.wording import plural
from reconciler.forge.api.budget import Budget
from reconciler.http.addresses import find_server, resolve
from reconciler.http.client import (
    ATTEMPTS,
    SYSTEM_CLOCK,
    Authorization,
    Client,
    Clock,
    Reply,
    Request,
    TimeLimits,
)
from reconciler.http.errors import ClassifiedReply, LostReplyError, ReplyKind
from reconciler.policy import Limits

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
