import base64
import html
import json
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.redact import MASK, PATTERNS, Redactor, learn_credential, mask_credentials

SECRET = 'hunter2/correct+horse & böttery"??>>'


class Case(NamedTuple):
    reason: str
    text: str
    secret: str


CASES = [
    Case("a GitHub token", "token ghp_" + "a1B2" * 9, "a1B2a1B2"),
    Case("a fine-grained GitHub token", "github_pat_" + "11AAAA_bbbb" * 3, "11AAAA"),
    Case("a GitLab token", "glpat-abcdefghij0123456789", "abcdefghij"),
    Case("an AWS key id", "AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    Case("a JSON web token", "eyJhbGciOiJI.eyJzdWIiOiIxMjM0.SflKxwRJSM", "eyJzdWIiOiIxMjM0"),
    Case("userinfo of an https URL", "fatal: https://bob:pw@git.example/x.git", "bob:pw"),
    Case("a token as the user of an https URL", "https://tok3n@git.example/x", "tok3n"),
    Case("a password of another URL", "ssh://git:s3same@git.example/x", "s3same"),
    Case("an authorization header", "Authorization: Bearer abc.def", "abc.def"),
    Case("a private key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
    Case("a private key cut short", "-----BEGIN PRIVATE KEY-----\nMIIE", "MIIE"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_what_looks_like_a_credential_is_masked(case: Case) -> None:
    shown = Redactor().text(f"before {case.text} after")

    assert case.secret not in shown
    assert shown.startswith("before ")
    assert "***" in shown


@pytest.mark.parametrize(
    "harmless",
    ["ssh://git@git.example/x", "git@git.example:x", "https://git.example/a@b", "kind: Secret", "eyJ"],
)
def test_what_is_no_credential_stays(harmless: str) -> None:
    assert Redactor().text(harmless) == harmless


@pytest.mark.parametrize("secrets", [("hunter22", "hunter2276"), ("hunter2276", "hunter22")])
def test_secret_that_begins_as_another_one_is_masked_to_its_end(secrets: tuple[str, str]) -> None:
    for secret in secrets:
        learn_credential(secret)

    assert Redactor().text("a hunter2276 b hunter22 c") == f"a {MASK} b {MASK} c"


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(b"x-access-token:" + SECRET.encode()).decode(),
        base64.urlsafe_b64encode(b"ab" + SECRET.encode() + b"cd").decode(),
        quote(SECRET).lower(),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        html.escape(SECRET),
        base64.b64encode(SECRET.encode()).decode().replace("/", "\\/"),
    ],
)
def test_a_known_secret_is_masked_in_every_spelling(spelling: str) -> None:
    redactor = Redactor.of_environment({"GIT_TOKEN": SECRET, "HOME": "/home/user"})

    shown = redactor.text(f"<{spelling}>")

    assert spelling not in shown
    assert spelling[6:-6] not in shown
    assert redactor.text("/home/user") == "/home/user"


@given(
    st.binary(max_size=4),
    st.text(st.characters(codec="ascii"), min_size=12, max_size=40),
    st.binary(max_size=4),
)
def test_base64_around_a_secret_reveals_at_most_its_edges(before: bytes, secret: str, after: bytes) -> None:
    secret = secret.strip()
    if len(secret) < 12:
        return
    encoded = base64.b64encode(before + secret.encode() + after).decode()

    shown = Redactor([secret]).text(encoded)

    assert "***" in shown
    assert len(shown.replace("***", "")) <= 4 * (len(before) + len(after)) // 3 + 12


def test_json_values_are_redacted_all_the_way_down() -> None:
    redactor = Redactor([SECRET])

    value = redactor.value({"a": [SECRET, {"b": f"x{SECRET}"}], SECRET: 1, "n": None})

    assert value == {"a": ["***", {"b": "x***"}], "***": 1, "n": None}


def test_short_values_are_not_secrets() -> None:
    assert Redactor.of_environment({"TOKEN": "main"}).text("main branch") == "main branch"


@pytest.mark.parametrize("turn", ["first", "again"])
def test_credentials_that_a_test_learned_are_forgotten_after_it(turn: str) -> None:
    text = f"{turn}: word-of-a-test"
    assert mask_credentials(text) == text

    learn_credential("word-of-a-test")

    assert mask_credentials(text) == f"{turn}: {MASK}"


PARTS = st.sampled_from(
    [
        *("a", "1", "_", "-", ".", " ", "\n", "://", "@", ":", "https"),
        *("ghp_", "github_pat_", "glpat-", "xoxb-", "AKIA", "eyJ", "a1B2" * 9),
        *("Authorization: Bearer ", "AUTHORİZATION=token x", "-----BEGIN PRIVATE KEY-----"),
    ]
)


@given(st.lists(PARTS, max_size=8).map("".join))
def test_text_without_any_part_of_a_pattern_is_what_the_patterns_leave(text: str) -> None:
    masked = text
    for pattern, replacement in PATTERNS:
        masked = pattern.sub(replacement, masked)

    assert Redactor().text(text) == masked
    assert Redactor().value({text: [text, text]}) == {masked: [masked, masked]}


@given(
    st.lists(PARTS | st.sampled_from(['s3cret/"\\\n\x7fé', "s3cret\\/"]), max_size=6).map("".join),
    st.sampled_from(["", 's3cret/"\\\n\x7fé', "s3cret/x"]),
)
def test_json_text_that_is_clean_has_nothing_to_mask(text: str, secret: str) -> None:
    redactor = Redactor([secret])
    value = {text: [text, 1]}

    if redactor.is_clean(orjson.dumps(value).decode()):
        assert redactor.value(value) == value
    assert redactor.is_clean('{"a": "plain text"}')
