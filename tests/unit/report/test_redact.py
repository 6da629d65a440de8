import base64
import html
import json
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.errors import RefusedError
from reconciler.base.redact import (
    MASK,
    PATTERNS,
    Redactor,
    is_token,
    learn_credential,
    learn_names,
    learn_token,
    mask_credentials,
    outgoing_fields,
    outgoing_file,
    shown_credentials,
)
from tests.support.values import TOKEN

HEX = "2c26b46b68ffc68ff99b453c1d30413413422d70"


def mine(value: str) -> None:
    learn_credential(value, "a test")


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
        learn_credential(secret, "a test")

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
    secret = f"~{secret.strip()}"
    if len(secret) < 12 or len(set(secret)) < 4:
        return
    encoded = base64.b64encode(before + secret.encode() + after).decode()

    shown = Redactor([secret]).text(encoded)

    assert "***" in shown
    assert len(shown.replace("***", "")) <= 4 * (len(before) + len(after)) // 3 + 12


def test_json_values_are_redacted_all_the_way_down() -> None:
    redactor = Redactor([SECRET])

    value = redactor.value({"a": [SECRET, {"b": f"x{SECRET}"}], SECRET: 1, "n": None})

    assert value == {"a": ["***", {"b": "x***"}], "***": 1, "n": None}


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (TOKEN, True),
        ("ghp_" + "a1B2" * 9, True),
        ("2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", True),
        ("n4kq3zt7m2x5wd6jv7hc2pr3sy5bg6lf4ua7ke2oi3qn5mz6tx4w", True),
        ("packagevariant-1", False),
        ("drafts/production-cluster/packagevariant-12", False),
        ("ClusterRoleBindings-of-Production", False),
        ("ClusterRoleBindingsV1OfProduction", False),
        ("edge-1/web-2/db-3/cache-4/queue-5", False),
        ("correct-horse-battery-staple", False),
        (TOKEN[:19], False),
        (f"{TOKEN} {TOKEN}", False),
    ],
)
def test_token_is_told_from_names_and_words_by_its_shape(value: str, is_one: bool) -> None:
    assert is_token(value) is is_one


NAMES = ("drafts/web/packagevariant-1", "localTree", f"web-{TOKEN}", HEX)


@pytest.mark.parametrize(
    ("learn", "value", "shown"),
    [
        (mine, "packagevariant-1", True),
        (mine, "localTree", True),
        (mine, "package", True),
        (mine, "x-oauth-basic", True),
        (mine, "reconciler", True),
        (mine, "short", True),
        (mine, "--------", True),
        (mine, "packagevariant-12", False),
        (mine, "swordfish", False),
        (mine, TOKEN, False),
        (learn_token, TOKEN, True),
        (learn_token, f"{TOKEN}x", False),
        (learn_token, "swordfish", True),
        (learn_token, "reconciler/t/chart/zzz", True),
        (learn_token, HEX[::-1], True),
        (learn_token, f"sha256:{HEX[::-1]}{'0' * 24}", True),
    ],
)
def test_names_of_the_plan_and_what_no_token_looks_like_are_shown(learn, value, shown) -> None:
    learn(value)
    learn_names(lambda: NAMES)

    assert mask_credentials(f"<{value}>") == f"<{value if shown else MASK}>"
    assert len(shown_credentials()) == (shown and learn is mine)


@pytest.mark.parametrize("where", ["environment", "use"])
def test_secret_that_turns_out_to_be_a_name_is_shown(where: str) -> None:
    redactor = Redactor.of_environment({"A_TOKEN": "packagevariant-1"} if where == "environment" else {})
    mine("packagevariant-1" if where == "use" else "swordfish")
    before = redactor.text("a packagevariant-1 swordfish")

    learn_names(lambda: NAMES)

    shown = redactor.text("a packagevariant-1")
    assert (before.split()[1], shown) == (MASK, "a packagevariant-1")
    assert redactor.is_clean('"packagevariant-1"')


@pytest.mark.parametrize("secret", [TOKEN, "word-of-a-test"])
def test_machines_read_no_field_with_a_credential_and_people_no_text(secret: str) -> None:
    mine(secret)
    texts = {
        "title": f"a {secret}",
        "comments": {"close": secret},
        "unready": [secret],
        "spec": {"message": "m"},
    }

    shown = outgoing_fields({**texts, "count": 1}, "a record")

    assert shown == {
        "title": "a ***",
        "comments": {"close": "***"},
        "unready": ["***"],
        "spec": {"message": "m"},
        "count": 1,
    }
    assert outgoing_file(b"# for people: " + secret.encode(), "a dashboard") == b"# for people: ***"
    data = orjson.dumps({"a": [1], "why": secret}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    assert outgoing_file(data, "a record") == data.replace(secret.encode(), b"***")
    with pytest.raises(RefusedError, match=r"^Field conflicts\[0\]\.local of a record holds a credential"):
        outgoing_fields({"conflicts": [{"local": f"a {secret}"}]}, "a record")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"head": f"drafts/{TOKEN}"}, "head"),
        ({"labels": ["a", TOKEN]}, r"labels\[1\]"),
        ({"labels": {TOKEN: "a"}}, "labels"),
        ({"spec": {"message": TOKEN}}, r"spec\.message"),
        ({"a": {"b": base64.b64encode(TOKEN.encode()).decode()}}, r"a\.b"),
        ({"url": f"https://h/{quote('/')}{TOKEN}"}, "url"),
    ],
)
def test_token_in_a_name_is_refused_by_its_field_and_a_word_in_a_name_stays(value: Any, field: str) -> None:
    mine("word-of-a-test")
    mine(TOKEN)
    spelled = orjson.loads(
        orjson.dumps(value)
        .replace(base64.b64encode(TOKEN.encode()), base64.b64encode(b"word-of-a-test"))
        .replace(TOKEN.encode(), b"word-of-a-test")
    )

    with pytest.raises(RefusedError, match=f"^Field {field} of it holds a credential") as caught:
        outgoing_fields(value, "it")
    assert TOKEN not in str(caught.value)
    assert outgoing_fields(spelled, "it") == spelled
    learn_token(TOKEN[::-1])
    ids = {"head": f"drafts/{TOKEN[::-1]}"}
    assert outgoing_fields(ids, "it") == ids


def test_short_values_are_not_secrets() -> None:
    assert Redactor.of_environment({"TOKEN": "main"}).text("main branch") == "main branch"


@pytest.mark.parametrize("turn", ["first", "again"])
def test_credentials_that_a_test_learned_are_forgotten_after_it(turn: str) -> None:
    text = f"{turn}: word-of-a-test"
    assert mask_credentials(text) == text

    learn_credential("word-of-a-test", "a test")

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
