"""What a reply of a forge means: done, lost, limited until a time, or refused for a reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.http.client import LONGEST_WAIT_S, classify, duration_text, message_of

SECONDARY = {"message": "You have exceeded a secondary rate limit"}
EMPTY = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "150"}
LEFT = {"x-ratelimit-remaining": "1", "x-ratelimit-reset": "150"}
ABUSE = {"message": "Validation Failed", "errors": [{"code": "abuse"}]}
NAMED = {"message": "bad", "errors": [{"message": "head drafts/abuse/w"}]}
QUICK = {"data": None, "errors": [{"message": "was submitted too quickly"}]}
CAP = {"data": None, "errors": [{"type": "FORBIDDEN", "path": ["createPullRequest"], "message": "no"}]}
DENIED = {"data": None, "errors": [{"type": "FORBIDDEN", "path": ["mergePullRequest"], "message": "no"}]}
SPENT = {"data": None, "errors": [{"type": "RATE_LIMITED", "message": "API quota used up"}]}
GONE = {"data": None, "errors": [{"type": "NOT_FOUND", "message": "no such node"}]}


class Row(NamedTuple):
    reason: str
    status: int
    headers: Mapping[str, str]
    data: object
    kind: str
    wait_s: float | None = None


ROWS = [
    Row("a body that is right", 200, {}, {"number": 1}, "none"),
    Row("a created resource", 201, {}, {"number": 1}, "none"),
    Row("no body", 204, {}, None, "none"),
    Row("a right body in the last call of a quota", 200, EMPTY, {"number": 1}, "none"),
    Row("a page of HTML", 200, {}, "<html>", "lost"),
    Row("a redirection", 302, {}, None, "moved"),
    Row("a refused token", 401, {}, {"message": "Bad credentials"}, "unauthorized"),
    Row("no permission", 403, {}, {"message": "Resource not accessible by integration"}, "forbidden"),
    Row("no permission while quota is left", 403, LEFT, {"message": "Not accessible"}, "forbidden"),
    Row("a limit with a time", 403, {"retry-after": "9"}, SECONDARY, "limited", 9.0),
    Row("one with a date", 403, {"retry-after": "Thu, 1 Jan 1970 0:02:09 GMT"}, SECONDARY, "limited", 29.0),
    Row("a limit with a past date", 403, {"retry-after": "Thu, 1 Jan 1970 00:00:09 GMT"}, {}, "limited", 0.0),
    Row("a limit until a time that is none", 403, {"retry-after": "soon"}, SECONDARY, "limited"),
    Row("a limit without a time", 403, {}, SECONDARY, "limited"),
    Row("a limit while quota is left: its reset is another limit's", 403, LEFT, SECONDARY, "limited"),
    Row("a quota until a time", 403, EMPTY, {}, "limited", 50.0),
    Row("a quota until a time that is past", 403, {**EMPTY, "x-ratelimit-reset": "90"}, {}, "limited", 1.0),
    Row("a quota without a time", 403, {"x-ratelimit-remaining": "0"}, {}, "limited"),
    Row("a missing resource", 404, {}, {"message": "Not Found"}, "missing"),
    Row("a server that gave up waiting", 408, {}, None, "lost"),
    Row("a conflict", 409, {}, {"message": "already exists"}, "invalid"),
    Row("a removed resource", 410, {}, None, "missing"),
    Row("an invalid field", 422, {}, {"message": "Validation Failed"}, "invalid"),
    Row("abuse", 422, {}, ABUSE, "limited"),
    Row("a branch named abuse", 422, {}, NAMED, "invalid"),
    Row("too many requests", 429, {}, "Retry later", "limited"),
    Row("too many requests until a far time", 429, {"retry-after": "99999"}, None, "limited", 86_400.0),
    Row("too many digits", 429, {"retry-after": "9" * 400}, None, "limited", 86_400.0),
    Row("and of a time", 429, {**EMPTY, "x-ratelimit-reset": "9" * 400}, None, "limited", 86_400.0),
    Row("until the end of time", 429, {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None,
        "limited", 86_400.0),
    Row("a window of Docker Hub", 429, {"ratelimit-remaining": "0;w=40"}, None, "limited", 40.0),
    Row("too many requests while quota is left", 429, LEFT, None, "limited"),
    Row("GitLab's quota", 429, {"ratelimit-remaining": "0", "ratelimit-reset": "130"}, None, "limited", 30.0),
    Row("GitLab's quota that is left", 429, {"ratelimit-remaining": "3", "ratelimit-reset": "130"}, None,
        "limited"),
    Row("a legal block", 451, {}, None, "missing"),
    Row("a failed server", 500, {}, {"message": "oops"}, "lost"),
    Row("a server that is down", 503, {}, "busy", "lost"),
    Row("a server that is down for a time", 503, {"retry-after": "7"}, None, "lost", 7.0),
    Row("GraphQL: too quickly", 200, {}, QUICK, "limited"),
    Row("GraphQL: a spent quota", 200, {}, SPENT, "limited"),
    Row("GraphQL: a cap of open pull requests", 200, {}, CAP, "blocked"),
    Row("GraphQL: no permission", 200, {}, DENIED, "forbidden"),
    Row("GraphQL: a missing node", 200, {}, GONE, "missing"),
    Row("GraphQL: errors of another shape", 200, {}, {"data": None, "errors": [5, {"type": {}}]}, "invalid"),
    Row("GraphQL: a path of another shape", 200, {},
        {"data": None, "errors": [{"type": "FORBIDDEN", "path": [[], 1]}]}, "forbidden"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.reason)
def test_replies_are_classified(row: Row) -> None:
    reply = classify(row.status, row.headers, row.data, now=100.0)

    assert (reply.kind, reply.wait_s) == (row.kind, row.wait_s)


NESTED: Any = "deep"
for _ in range(900):
    NESTED = [{"errors": NESTED}]


@given(
    st.integers(0, 999),
    st.dictionaries(
        st.sampled_from(
            (
                "retry-after",
                "x-ratelimit-remaining",
                "ratelimit-remaining",
                "x-ratelimit-reset",
                "ratelimit-reset",
            )
        ),
        st.sampled_from(
            ("0", "0;w=", "0;w=9", "-1", "1e9", "9" * 5000, "\u0663", "", "Mon, 1 Jan -1 0:0:0 -9999")
        )
        | st.text(max_size=40),
    ),
    st.sampled_from((None, NESTED, {"data": 1, "errors": NESTED}, {"data": {}, "errors": [None, NESTED]}))
    | st.recursive(st.none() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.just("message"), x)),
)
def test_every_reply_means_something(status: int, headers: dict[str, str], data: Any) -> None:
    reply = classify(status, headers, data, now=1e9)

    wait = 0 if reply.wait_s is None else reply.wait_s
    assert 0 <= wait <= LONGEST_WAIT_S
    assert duration_text(wait)


def test_limit_without_words_is_called_one() -> None:
    assert classify(429, {}, None, now=100.0).message == "rate limit"
    assert classify(429, {}, "Retry later", now=100.0).message == "Retry later"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, ""), (7, ""), ("  busy \n", "busy"), ("x" * 400, "x" * 300),
        ({"message": "Validation Failed", "errors": [{"code": "invalid", "field": "base"}]},
         "Validation Failed; invalid; base"),
        ({"error": "invalid_token", "error_description": "It ended"}, "invalid_token; It ended"),
        ({"message": ["a", "", "b", "a"]}, "a; b; a"),
        ({"message": "same", "error": "same", "other": "x"}, "same"),
    ],
)  # fmt: skip
def test_message_has_the_details_of_each_forge_once(data: Any, message: str) -> None:
    assert message_of(data) == message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (1.4, "1 s"), (59, "59 s"), (60, "1 min"), (3599, "1 h 00 min"), (11160, "3 h 06 min")],
)
def test_duration_is_told_in_its_two_greatest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
