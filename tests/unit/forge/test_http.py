"""Requests to an API: which redirect is followed, how much is read, and what an error shows."""

import socket
from collections.abc import Iterator
from email.utils import formatdate
from itertools import product
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import orjson
import pytest

from reconciler import __version__
from reconciler.base.errors import ReconcilerError, RefusedError, UnavailableError
from reconciler.base.progress import listening
from reconciler.base.redact import learn_credential
from reconciler.forge import http
from reconciler.forge.http import Budget
from reconciler.http.client import (
    ATTEMPTS,
    LimitedError,
    LostReplyError,
    StaticToken,
    find_server,
)
from reconciler.http.connection import Connections, NoAnswerError
from reconciler.policy import WriteLimits
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer, serving
from tests.support.http_server import Handler, read_body
from tests.support.http_server import serving as serving_with
from tests.support.values import TOKEN

STATUSES = (301, 302, 303, 307, 308)
METHODS = ("GET", "POST", "PATCH")
FOLLOWED = {("GET", status) for status in STATUSES} | {
    ("POST", 307),
    ("POST", 308),
    ("PATCH", 307),
    ("PATCH", 308),
}
"""A client turns a write with another status into a GET (RFC 9110, section 15.4): it would be lost."""


@pytest.mark.parametrize(("method", "status"), list(product(METHODS, STATUSES)))
def test_write_follows_only_redirects_that_keep_its_method(
    api: ScriptedApi, method: str, status: int
) -> None:
    api.answers[method, "/old"] = Answer(status, {}, {"Location": f"{api.api}/new"})
    transport = api.transport()

    def send() -> None:
        if method == "GET":
            transport.get("/old")
        else:
            transport.write(method, "/old", {"title": "Update web"})

    if (method, status) in FOLLOWED:
        send()
        assert api.requests() == [(method, "/old"), (method, "/new")]
    else:
        with pytest.raises(ReconcilerError, match=str(status)):
            send()
        assert api.requests() == [(method, "/old")]


def test_endless_redirects_end(api: ScriptedApi) -> None:
    api.answers["GET", "/old"] = Answer(301, {}, {"Location": f"{api.api}/old"})

    with pytest.raises(UnavailableError, match="without an end"):
        api.transport().get("/old")

    assert len(api.requests()) == 4


@pytest.mark.parametrize(("surplus", "is_read"), [(0, True), (1, False)])
def test_reply_over_the_limit_is_not_read(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, surplus: int, is_read: bool
) -> None:
    monkeypatch.setattr(http, "LARGEST", 1 << 17)
    api.answers["GET", "/big"] = Answer(200, "x" * ((1 << 17) + surplus))
    transport = api.transport()

    with pytest.raises(
        UnavailableError, match="200 xxx" if is_read else "more than the 131072 bytes that it may"
    ):
        transport.get("/big")


@pytest.mark.parametrize(
    ("replies", "seen", "result", "writes", "waited"),
    [
        (["done"], [], "done", 1, 0),
        (["lost"], ["there"], "there", 1, 0),
        (["lost"], [None, "there"], "there", 1, 2),
        (["lost", "done"], [None, None, None], "done", 2, 5),
        (["lost", "lost"], [None, None, None, "there"], "there", 2, 5),
        (["lost", "lost"], [None] * 6, None, 2, 10),
    ],
)
def test_lost_write_is_looked_for_before_it_is_repeated(
    api: ScriptedApi,
    *,
    replies: list[str],
    seen: list[str | None],
    result: str | None,
    writes: int,
    waited: float,
) -> None:
    transport, start = api.transport(), api.clock.now()
    made = []

    def write() -> str:
        made.append(replies[len(made)])
        if made[-1] == "lost":
            raise LostReplyError("no reply")
        return made[-1]

    def send() -> str:
        return transport.write_once(write, lambda: seen.pop(0), (2.0, 3.0), attempts=2)

    if result is None:
        with pytest.raises(LostReplyError):
            send()
    else:
        assert send() == result
    assert len(made) == writes
    assert not seen
    assert api.clock.now() - start == waited


@pytest.mark.parametrize(
    ("token", "value"),
    [
        (StaticToken("t0k"), "Bearer t0k"),
        (StaticToken("t0k", "token"), "token t0k"),
        (StaticToken(""), ""),
    ],
)
def test_request_without_a_token_has_no_authorization(token: StaticToken, value: str) -> None:
    assert token.value() == value


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("ftp://git.example/api", "'ftp://git.example/api' is no address of a forge's API"),
        ("https:///api", "'https:///api' is no address of a forge's API"),
        ("git.example", "'git.example' is no address of a forge's API"),
        ("http://git.example/api", "A token for http://git.example/api would be sent in the clear"),
        ("http://localhost.example/api",
            "A token for http://localhost.example/api would be sent in the clear"),
        ("https://git.example/api/", ""),
        ("http://localhost:1/api", ""),
        ("http://127.0.0.1:1/api", ""),
        ("http://[::1]:1/api", ""),
    ],
)  # fmt: skip
def test_token_is_sent_in_the_clear_on_this_machine_alone(base: str, message: str) -> None:
    budget = Budget(WriteLimits())
    if not message:
        assert http.Transport(base, StaticToken("t"), budget).base == base.rstrip("/")
        return
    with pytest.raises(UnavailableError) as caught:
        http.Transport(base, StaticToken("t"), budget)
    assert str(caught.value) == message
    assert caught.value.hint == ("Use https." if "clear" in message else "Give an https URL.")


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("/api/new", ""),
        ("{api}/new", ""),
        ("new", ""),
        ("", "GET {api}/old: 301"),
        ("http://localhost:1/api/new",
            "{api}/old leads to http://localhost:1/api/new, which is another server"),
        ("https://127.0.0.1/api/new",
            "{api}/old leads to https://127.0.0.1/api/new, which is another server"),
        ("//[", "{api}/old leads to //[, which cannot be asked: Invalid IPv6 URL"),
    ],
)  # fmt: skip
def test_redirect_stays_on_its_host(api: ScriptedApi, location: str, error: str) -> None:
    api.answers["GET", "/old"] = Answer(301, {}, {"Location": location.format(api=api.api)})
    api.answers["GET", "/new"] = Answer(200, [1])

    if not error:
        assert api.transport().get("/old", {"page": 1}).data == [1]
        return
    with pytest.raises(UnavailableError) as caught:
        api.transport().get("/old")
    assert str(caught.value) == error.format(api=api.api)


class Seen(ScriptedApi):
    """Keeps the bodies and headers of requests."""

    def __init__(self) -> None:
        super().__init__(Path(), "/api", None)
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []

    def respond(self, handler: Any, raw: bytes) -> None:
        self.bodies.append(orjson.loads(raw) if raw else None)
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        super().respond(handler, raw)


@pytest.fixture
def seen() -> Iterator[Seen]:
    api = Seen()
    with serving(api):
        yield api


def test_texts_of_a_body_are_masked_and_a_credential_in_another_field_is_refused(seen: Seen) -> None:
    learn_credential(TOKEN, "a test")
    text, transport = f"a {TOKEN}", seen.transport()

    transport.write("POST", "/x", {"title": text, "content": {"raw": text}, "head": "drafts/a", "e": 1})
    with pytest.raises(
        RefusedError, match=r"^Field labels\[1\] of the request PUT .*/x holds a cred"
    ) as caught:
        transport.write("PUT", "/x", {"body": text, "labels": ["a", TOKEN]})

    assert seen.bodies == [{"title": "a ***", "content": {"raw": "a ***"}, "head": "drafts/a", "e": 1}]
    assert TOKEN not in str(caught.value)


def test_request_names_its_sender_and_what_it_takes_and_sends(seen: Seen) -> None:
    transport = seen.transport("t0ken-of-a-header")
    transport.get("/x")
    transport.query("/graphql", {"query": "q"})
    plain = http.Transport(
        seen.api, StaticToken(""), transport.budget, clock=transport.clock, headers={"X-Version": "1"}
    )
    plain.get("/y")

    read, query, anonymous = seen.headers
    assert read["authorization"] == "Bearer t0ken-of-a-header"
    assert (read["user-agent"], read["accept"]) == (f"reconciler/{__version__}", "application/json")
    assert ("content-type" in read, query["content-type"]) == (False, "application/json")
    assert ("authorization" in anonymous, anonymous["x-version"]) == (False, "1")
    assert [entry.method for entry in seen.journal] == ["GET", "POST", "GET"]


def test_limited_write_waits_in_the_budget(api: ScriptedApi) -> None:
    api.answers["POST", "/x"] = Answer(429, {"message": "slow down"}, {"Retry-After": "9"})

    with pytest.raises(LimitedError, match="The forge limits writes again"):
        api.transport().write("POST", "/x", {})

    assert api.clock.slept == [9.0]
    assert len(api.requests()) == 2


@pytest.mark.parametrize("skew_s", [-3600, 0, 3600])
def test_date_until_which_a_server_limits_is_by_its_own_clock(api: ScriptedApi, skew_s: float) -> None:
    api.skew = skew_s
    after = formatdate(api.clock.now() + skew_s + 9, usegmt=True)
    api.answers["POST", "/x"] = Answer(429, {"message": "slow down"}, {"Retry-After": after})

    with pytest.raises(LimitedError):
        api.transport().write("POST", "/x", {})

    assert api.clock.slept == [pytest.approx(9, abs=1)]


@pytest.mark.parametrize(("silence_s", "whole_s"), [(0.05, 60), (60, 0.05)])
def test_answer_has_a_time_for_each_step_and_one_for_all(silence_s: float, whole_s: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connections, start = Connections(silence_s, {}), monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"

        with pytest.raises(NoAnswerError, match="ReadTimeout"):
            connections.send("GET", url, {}, b"", limit=9, until=start + whole_s)

    assert monotonic() - start < 30


@pytest.mark.parametrize(
    ("link", "pages"),
    [
        ('<{api}/x?page=2>; rel="next"', [1, 2]),
        ("<{api}/x?page=2>; rel=next", [1, 2]),
        ('<http://public.example/x?page=2>; rel="next"', [1, 2]),
        ('<{api}/x?page=9>; rel="last", <{api}/x?page=2>; rel="next"', [1, 2]),
        ('<{api}/x?page=9>; rel="last"', [1]),
        ("", [1]),
    ],
)
def test_next_page_is_of_the_same_list(seen: Seen, link: str, pages: list[int]) -> None:
    asked: list[int] = []

    def answer(method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        del method, path, body
        asked.append(int(query["page"]))
        headers = {"Link": link.format(api=seen.api)} if asked == [1] else {}
        return Answer(200, [asked[-1]], headers)

    seen.answer = answer  # type: ignore[method-assign] # each page has its own answer

    listed = list(seen.transport().pages("/x", {"page": 1}))

    assert [item if isinstance(item, int) else item[0] for item in listed] == asked == pages


@pytest.mark.parametrize(
    ("data", "parsed"),
    [
        (b"", None),
        (b"[1]", [1]),
        (b"<html><b>Bad</b>\n gateway", "Bad  gateway"),
        (b"\xff", "\ufffd"),
        (b"x" * 3000, "x" * 300),
    ],
)
def test_body_that_is_no_json_is_read_as_text(api: ScriptedApi, data: bytes, parsed: Any) -> None:
    api.answers["GET", "/x"] = Answer(200, data.decode(errors="surrogateescape"))

    if not isinstance(parsed, str):
        assert api.transport().get("/x").data == parsed
        return
    with pytest.raises(UnavailableError) as caught:
        api.transport().get("/x")
    assert str(caught.value).partition(" 200 ")[2] == parsed


def test_each_attempt_of_a_request_is_told_to_who_listens(api: ScriptedApi) -> None:
    api.answers["GET", "/list"] = Answer(502, {})
    told: list[tuple[str, bool]] = []

    with (
        listening(lambda name, seconds: told.append((name, 0 < seconds < 60))),
        pytest.raises(UnavailableError),
    ):
        api.transport().get("/list", {"page": 1})
    api.transport().get("/other")

    assert told == [(f"GET {api.api}/list?page=1", True)] * ATTEMPTS


@pytest.mark.parametrize(
    ("headers", "slept"), [({}, [60.0]), ({"Retry-After": "9"}, [9.0]), ({"Retry-After": "999"}, [])]
)
def test_limited_read_waits_once_if_it_may_for_so_long(
    api: ScriptedApi, headers: dict[str, str], slept: list[float]
) -> None:
    api.answers["GET", "/x"] = Answer(429, {"message": "slow down"}, headers)

    with pytest.raises(LimitedError, match="/x limits requests"):
        api.transport().get("/x")

    assert api.clock.slept == slept
    assert len(api.requests()) == 1 + len(slept)


def test_longest_wait_that_a_server_demanded_counts(api: ScriptedApi) -> None:
    api.answers["GET", "/x"] = Answer(200, {}, {"RateLimit-Remaining": "0", "RateLimit-Reset": "50"})
    transport = api.transport()

    transport.get("/x")
    transport._hold(api.api, 9)  # another thread was told so meanwhile
    transport.get("/y")

    assert api.clock.slept == [pytest.approx(50, abs=1)]


def test_connection_that_the_server_closed_is_not_used_again() -> None:
    class Closing(Handler):
        def do_POST(self) -> None:  # noqa: N802 - the name that the server calls
            self.say(200, {}, read_body(self))
            self.close_connection = True

    with serving_with(Closing) as place:
        connections = Connections(5, {})
        for body in (b"1", b"2"):
            sent = connections.send("POST", f"http://{place}/", {}, body, limit=9, until=monotonic() + 20)
            assert (sent[0], sent[2]) == (200, body)
            sleep(0.05)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://git.example/a", "https://git.example"),
        ("https://git.example:443", "https://git.example"),
        ("http://git.example:443/a?b", "http://git.example:443"),
        ("HTTP://Git.Example:80", "http://git.example"),
    ],
)
def test_server_is_named_without_the_port_that_its_scheme_has(url: str, server: str) -> None:
    assert str(find_server(url)) == server
