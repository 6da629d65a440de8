"""Requests to an API: which redirect is followed, how much is read, and what an error shows."""

from itertools import product

import pytest

from reconciler.errors import ReconcilerError, UnavailableError
from reconciler.forge import http
from reconciler.forge.api_errors import LostReplyError
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer

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

    with pytest.raises(UnavailableError, match="301"):
        api.transport().get("/old")

    assert len(api.requests()) == 4


@pytest.mark.parametrize(("surplus", "is_read"), [(0, True), (1, False)])
def test_reply_over_the_limit_is_not_read(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, surplus: int, is_read: bool
) -> None:
    monkeypatch.setattr(http, "LARGEST", 1 << 17)
    text = "x" * ((1 << 17) + surplus)
    api.answers["GET", "/big"] = Answer(400, text)
    transport = api.transport()

    with pytest.raises(UnavailableError, match="400 xxx" if is_read else "too large"):
        transport.get("/big")


def test_error_does_not_show_the_token_that_a_forge_repeats(api: ScriptedApi) -> None:
    token = "glpat-0123456789abcdef"
    api.answers["GET", "/user"] = Answer(400, {"message": f"invalid header Bearer {token}"})

    with pytest.raises(UnavailableError, match="invalid header") as caught:
        api.transport(token).get("/user")

    assert token not in str(caught.value)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_write_without_a_usable_reply_is_lost_and_not_repeated(api: ScriptedApi, status: int) -> None:
    api.answers["POST", "/pulls"] = Answer(status, {"message": "later"})

    with pytest.raises(LostReplyError):
        api.transport().write("POST", "/pulls", {})

    assert api.requests() == [("POST", "/pulls")]


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_read_without_a_usable_reply_is_repeated(api: ScriptedApi, status: int) -> None:
    api.answers["GET", "/pulls"] = Answer(status, {"message": "later"})

    with pytest.raises(UnavailableError, match=str(status)):
        api.transport().get("/pulls")

    assert api.requests() == [("GET", "/pulls")] * http.ATTEMPTS
    assert api.clock.slept == [1.0, 2.0, 4.0]


def test_configured_token_that_is_refused_is_not_sent_again(api: ScriptedApi) -> None:
    api.answers["GET", "/user"] = Answer(401, {"message": "Bad credentials"})

    with pytest.raises(ReconcilerError, match="Bad credentials"):
        api.transport().get("/user")

    assert api.requests() == [("GET", "/user")]


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
        (http.StaticToken("t0k"), "Bearer t0k"),
        (http.StaticToken("t0k", "token"), "token t0k"),
        (http.StaticToken(""), ""),
    ],
)
def test_request_without_a_token_has_no_authorization(token: http.StaticToken, value: str) -> None:
    assert token.value() == value
