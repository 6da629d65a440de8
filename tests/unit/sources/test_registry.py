"""What a client of registries asks for, where, and what it makes of answers; tests/contract has faults."""

import base64
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.base.redact import mask_credentials
from reconciler.git.urls import Credential
from reconciler.http.client import (
    CachedReply,
    Clock,
    ForbiddenError,
    MissingError,
    ReplyCache,
    UnauthorizedError,
)
from reconciler.policy import RegistryPolicy
from reconciler.sources.registry import Blob, RegistryClient, split_name
from tests.support.forges.server import VirtualClock
from tests.support.registry import Answer, Asked, Gate, MemoryRegistry, serve_gate

NAME = "x.io/acme/aws"
TAGS = b'{"tags": ["v1.0.0"]}'
BASIC = {"WWW-Authenticate": 'Basic realm="x"'}


@pytest.fixture
def gate() -> Iterator[Gate]:
    with serve_gate() as served:
        yield served


def client_of(
    gate: Gate,
    mirrors: Mapping[str, str] | None = None,
    credential: Credential | None = None,
    *,
    cache: Path | None = None,
    clock: VirtualClock | None = None,
    addresses: tuple[str, ...] = (),
) -> RegistryClient:
    """Return a client with a mirror for x.io, or with the others; {} is the address of the gate in these."""
    texts = {prefix: text.format(gate.address) for prefix, text in (mirrors or {"x.io": "http://{}"}).items()}
    clock = clock or VirtualClock(time.time())
    return RegistryClient(
        RegistryPolicy(mirrors=texts),
        lambda _: credential,
        ReplyCache(cache) if cache else None,
        addresses=tuple(each.format(gate.address) for each in addresses),
        clock=Clock(clock.now, clock.sleep),
    )


@pytest.mark.parametrize(
    ("name", "host", "path"),
    [
        ("redis", "docker.io", "library/redis"),
        ("acme/redis", "docker.io", "acme/redis"),
        ("localhost/a", "localhost", "a"),
        ("reg:5000/a/b", "reg:5000", "a/b"),
        ("[::1]:5000/a", "[::1]:5000", "a"),
        ("ghcr.io/a/b_c-d.e__f", "ghcr.io", "a/b_c-d.e__f"),
    ],
)
def test_name_without_a_host_is_on_docker_hub(name: str, host: str, path: str) -> None:
    assert split_name(name) == (host, path)


@pytest.mark.parametrize(
    "name", ["", "A", "x.io/", "x.io/a//b", "x.io/a_", "x.io/a:1", "x.io:p/a", "x_y.io/a"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="is no name in a registry") as caught:
        split_name(name)
    assert caught.value.hint == "Write HOST/NAME without tag and digest."


@pytest.mark.parametrize(
    ("mirrors", "name", "path"),
    [
        ({"x.io": "http://{}"}, "x.io/a/b", "/v2/a/b/tags/list"),
        ({"x.io": "http://{}/proxy/"}, "x.io/a/b", "/v2/proxy/a/b/tags/list"),
        ({"x.io/a/": "http://{}/m"}, "x.io/a/b", "/v2/m/b/tags/list"),
        ({"x.io": "http://{}/other", "x.io/a": "http://{}/m"}, "x.io/a/b", "/v2/m/b/tags/list"),
        ({"x.io/a/b": "http://{}/m", "x.io/a": "http://{}/other"}, "x.io/a/b", "/v2/m/tags/list"),
    ],
)
def test_a_name_is_read_at_the_mirror_of_its_longest_prefix(
    gate: Gate, mirrors: dict[str, str], name: str, path: str
) -> None:
    gate.plan = lambda _: Answer(200, TAGS)

    assert client_of(gate, mirrors).tags(name) == ("v1.0.0",)
    assert gate.paths() == [f"{path}?n=1000"]


def test_only_addresses_that_are_allowed_are_asked(gate: Gate) -> None:
    gate.plan = lambda _: Answer(200, TAGS)
    client = client_of(gate, addresses=("https://x.org", "http://{}/acme"))

    assert client.tags(NAME) == ("v1.0.0",)
    for name, place in (
        ("x.io/other", f"http://{gate.address}/other"),
        ("y.io/a", "https://y.io/a"),
        ("a", "https://registry-1.docker.io/library/a"),
    ):
        with pytest.raises(RefusedError, match=f"^{place} is below no prefix of spec.addresses") as caught:
            client.tags(name)
        assert "spec.addresses of reconciler.yaml" in caught.value.hint
    assert len(gate.asked) == 1


def test_a_file_is_read_at_its_mirror_and_never_without_encryption_from_elsewhere(gate: Gate) -> None:
    gate.plan = lambda asked: Answer(200, asked.path.encode())
    client = client_of(gate, {"x.io/stable": "http://{}/charts"})

    assert client.file("https://x.io/stable/a/web.tgz") == b"/charts/a/web.tgz"
    assert client.file(f"http://{gate.address}/a b/w\u00e4b.tgz") == b"/a%20b/w%C3%A4b.tgz"
    for url, why in (
        ("http://y.io/c/web.tgz?signed=1", "http://y.io/c is not encrypted"),
        ("https://127.1/c/web.tgz", "https://127.1/c is on this machine, and no setting names it"),
        ("http://127.0.0.1:1/c/web.tgz", "http://127.0.0.1:1/c is not encrypted"),
    ):
        with pytest.raises(RefusedError) as caught:
            client.file(url)
        base = url.partition("/c/")[0]
        name = f"spec.registries.mirrors: {{{base.partition('://')[2]}: {base}}}"
        assert (str(caught.value), caught.value.hint) == (why, f"Write https, or name it in {name}.")
    for odd in ("https://[::1", "https://kim@y.io/web.tgz", "https://y.io/a/%2e%2E/web.tgz", "ftp://y.io/a"):
        with pytest.raises(RefusedError, match="cannot be asked"):
            client.file(odd)


def test_an_answer_is_followed_with_the_credential_on_its_host_alone_and_not_for_ever(gate: Gate) -> None:
    def plan(asked: Asked) -> Answer:
        number = int(asked.path.rpartition("/")[2]) if asked.path.startswith("/hop/") else 0
        return Answer(302, b"", {"Location": f"/hop/{number + 1}"}) if number < hops else Answer(200, TAGS)

    gate.plan = plan
    hops = 3
    assert client_of(gate).tags(NAME) == ("v1.0.0",)
    assert gate.paths()[1:] == ["/hop/1", "/hop/2", "/hop/3"]
    hops = 4
    with pytest.raises(UnavailableError, match=r"/hop/4 leads from one address to the next without an end"):
        client_of(gate).tags(NAME)
    gate.plan = lambda _: Answer(200, TAGS, {"Location": "/elsewhere"})
    assert client_of(gate).tags(NAME) == ("v1.0.0",)
    gate.plan = lambda _: Answer(302)
    with pytest.raises(UnavailableError, match=r"/tags/list: 302$"):
        client_of(gate).tags(NAME)
    for target, why in (
        ("http://y.io/a?key=1", r"http://y\.io/a, which is not encrypted"),
        ("//[", r"//\[, which cannot be asked: "),
        ("https://y.io:99999/", r"https://y\.io:99999/, which cannot be asked: "),
    ):
        gate.plan = lambda _, target=target: Answer(307, b"", {"Location": target})
        with pytest.raises(UnavailableError, match=rf"/tags/list leads to {why}") as caught:
            client_of(gate).tags(NAME)
        assert caught.value.hint.startswith("If that is meant, list the prefixes of both in spec.addresses")
    gate.plan = lambda asked: (
        Answer(401, b"", BASIC)
        if not asked.authorization
        else Answer(200, TAGS)
        if asked.path == "/there"
        else Answer(308, b"", {"Location": "/there"})
    )
    assert client_of(gate, credential=Credential("kim", "of-kim")).tags(NAME) == ("v1.0.0",)


@pytest.mark.parametrize(
    "credential", [None, Credential("kim", "secret-of-kim"), Credential("", "secret-of-kim")]
)
@pytest.mark.parametrize("scheme", ["basic", "BEARER"])
def test_a_challenge_is_answered_and_what_is_sent_is_a_secret(
    gate: Gate, credential: Credential | None, scheme: str
) -> None:
    pair = f"{credential.username or 'oauth2'}:{credential.password}" if credential else ""
    basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
    wanted = basic if scheme == "basic" else "Bearer 0fTheService5T0kenXyZ9"

    def plan(asked: Asked) -> Answer:
        if asked.path.startswith("/token"):
            assert asked.path == "/token?a=b&service=x%20y&scope=repository:acme/aws:pull"
            assert asked.authorization == (basic if credential else "")
            return Answer(200, b'{"token": "0fTheService5T0kenXyZ9"}')
        realm = f'{scheme} realm="http://{gate.address}/token?a=b",service="x y"'
        return (
            Answer(200, TAGS)
            if asked.authorization == wanted
            else Answer(401, b"", {"WWW-Authenticate": realm})
        )

    gate.plan = plan
    client = client_of(gate, credential=credential)
    if credential is None and scheme == "basic":
        with pytest.raises(UnauthorizedError) as caught:
            client.tags(NAME)
        assert caught.value.hint.startswith("`docker login 127.0.0.1:")
    else:
        assert client.tags(NAME) == ("v1.0.0",)
        assert wanted.partition(" ")[2] not in mask_credentials(f"sent {wanted}")


def test_a_refused_credential_is_to_be_renewed_and_is_not_sent_for_ever(gate: Gate) -> None:
    gate.plan = lambda _: Answer(401, b"", BASIC)

    with pytest.raises(UnauthorizedError) as caught:
        client_of(gate, credential=Credential("kim", "of-kim")).tags(NAME)

    assert str(caught.value) == f"http://{gate.address} refuses the credential: 401"
    assert caught.value.hint.startswith(f"`docker login {gate.address}` stores a credential")
    assert len(gate.asked) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Answer(403, b'{"errors": [{"message": "no"}]}'), ForbiddenError, r"/token: 403 no$"),
        (Answer(401), UnauthorizedError, r"/token: 401$"),
        (Answer(404), MissingError, r"/token: 404$"),
        (Answer(200, b"x"), UnavailableError,
            r"^The answer of the token service http://.*/token cannot be read: JSON is malformed"),
        (Answer(200, b"[]"), UnavailableError,
            r"^The answer of the token service http://.* cannot be read: Expected `object`, got `array`$"),
        (Answer(200, TAGS, cut=True), UnavailableError,
            r"^GET http://.*/token: no answer RemoteProtocolError "),
        *(
            (Answer(200, body), UnavailableError, r"^The token service http://.*/token issues no token$")
            for body in (b"{}", b'{"token": ""}', b'{"token": "a\\nb"}', '{"token": "\u00e4"}'.encode())
        ),
        (Answer(200, b'{"token": ["t"]}'), UnavailableError,
            r"/token cannot be read: Expected `str \| null`, got `array` - at `\$\.token`$"),
    ],
    ids=[
        *("forbidden", "unauthorized", "missing", "no JSON", "no mapping", "cut"),
        *("no token", "an empty one", "one of two lines", "one of letters that no header has", "a list"),
    ],
)  # fmt: skip
def test_a_token_service_that_fails_is_named(
    gate: Gate, answer: Answer, kind: type[Exception], message: str
) -> None:
    realm = {"WWW-Authenticate": f'Bearer realm="http://{gate.address}/token"'}
    gate.plan = lambda asked: answer if asked.path.startswith("/token") else Answer(401, b"", realm)

    with pytest.raises(kind, match=message):
        client_of(gate).tags(NAME)


LONG = "x" * 400
LOGIN, CHECK = "`docker login", "Check the URL, the credentials and the network."


@pytest.mark.parametrize(
    ("answer", "kind", "words", "hint"),
    [
        (Answer(400, b'{"errors": [{"code": "C", "message": "w"}, 1]}'), UnavailableError, "400 w; C", CHECK),
        (Answer(400, b'{"errors": [{"code": "C"}]}'), UnavailableError, "400 C", CHECK),
        (Answer(400, b'{"errors": ["x"]}'), UnavailableError, "400 x", CHECK),
        (Answer(400, b'{"errors": []}'), UnavailableError, "400", CHECK),
        (Answer(400, b"[1]"), UnavailableError, "400", CHECK),
        (Answer(400, b'{"message": "%s"}' % LONG.encode()), UnavailableError, f"400 {LONG[:300]}", CHECK),
        (Answer(404), MissingError, "404", f"Check the name {NAME}, and whether the credential may see it."),
        (Answer(403), ForbiddenError, "403", LOGIN),
    ],
)  # fmt: skip
def test_a_refusal_is_told_in_the_words_of_the_registry(
    gate: Gate, answer: Answer, kind: type[UnavailableError], words: str, hint: str
) -> None:
    gate.plan = lambda _: answer

    with pytest.raises(kind) as caught:
        client_of(gate).tags(NAME)

    assert str(caught.value) == f"GET http://{gate.address}/v2/acme/aws/tags/list: {words}"
    assert caught.value.hint.startswith(hint)


def test_without_an_answer_the_hint_says_how_to_do_without_tls(gate: Gate) -> None:
    clock = VirtualClock()
    with pytest.raises(UnavailableError, match=r"https://127.*: no answer ") as caught:
        client_of(gate, {"x.io": "{}"}, clock=clock).tags(NAME)
    assert (
        f"Without TLS: spec.registries.mirrors: {{{gate.address}: http://{gate.address}}}"
        in caught.value.hint
    )
    assert clock.slept == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("body", [b'{"tags": null}', b"{}", b'{"tags": ["-x", "", "a b"]}'])
def test_what_is_no_tag_does_not_count(gate: Gate, body: bytes) -> None:
    gate.plan = lambda _: Answer(200, body)

    assert client_of(gate).tags(NAME) == ()


def test_tags_of_pages_are_sorted_and_counted_once(gate: Gate) -> None:
    link = {"Link": '<http://y.io/other?last=b&n=2>; rel="next"'}
    gate.plan = lambda asked: (
        Answer(200, b'{"tags": ["a", "b"]}')
        if "last" in asked.path
        else Answer(200, b'{"tags": ["c", "b"]}', link)
    )

    assert client_of(gate).tags(NAME) == ("a", "b", "c")
    assert gate.paths() == ["/v2/acme/aws/tags/list?n=1000", "/v2/acme/aws/tags/list?last=b&n=2"]


DIGEST = f"sha256:{'a' * 64}"


def test_manifest_names_what_it_is_made_of(gate: Gate) -> None:
    whole = {
        "digest": DIGEST,
        "size": 3,
        "mediaType": "m",
        "annotations": {"a": "1"},
        "urls": ["http://y.io"],
    }
    other = {"digest": f"sha512:{'b' * 128}", "size": 0, "annotations": None}
    blobs = Blob(DIGEST, 3, "m", {"a": "1"}), Blob(other["digest"], 0)
    for manifest, layers, inner in (
        ({"config": whole, "layers": [whole, other], "manifests": None}, blobs, ()),
        ({"config": whole, "layers": None, "manifests": [other]}, (), blobs[1:]),
    ):
        gate.plan = lambda _, manifest=manifest: Answer(200, json.dumps(manifest).encode())
        read = client_of(gate).manifest(NAME, "v1")
        assert (read.config, read.layers, read.manifests) == (blobs[0], layers, inner)
    assert (blobs[0].annotation("a"), blobs[0].annotation("b"), blobs[1].annotation("a")) == ("1", "", "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[1]", r"Expected `object`, got `array`"),
        (b"{", r"Input data was truncated"),
        (b'{"layers": 5}', r"Expected `array \| null`, got `int` - at `\$\.layers`"),
        (b'{"config": {"digest": "sha256:a", "size": 1}}', r"Expected `str` matching regex .*conf"),
        (b'{"layers": [{"digest": "sha256:%s", "size": -1}]}' % (b"a" * 64), r"Expected `int` >= 0 - at"),
        (b'{"layers": [{"digest": "sha256:%s", "size": 9%s}]}' % (b"a" * 64, b"9" * 400), r".* `int` <= "),
        (b'{"annotations": {"a": 1}, "config": {"digest": "sha256:%s"}}' % (b"a" * 64), r"Object missing"),
        (b'{"layers": ' + b"[" * 100_000, r".*(recursion|layers|truncated)"),
        (b"\xff\xfe{}", r"JSON is malformed|Invalid UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(gate: Gate, body: bytes, why: str) -> None:
    gate.plan = lambda _: Answer(200, body)

    with pytest.raises(RefusedError, match=r"^a b is neither a tag nor a digest$"):
        client_of(gate).manifest(NAME, "a b")
    with pytest.raises(UnavailableError, match=rf"^The manifest {NAME}:v1 cannot be read: {why}"):
        client_of(gate).manifest(NAME, "v1")


@pytest.mark.parametrize("stated", ["", "sha256:short"])
def test_a_registry_that_does_not_state_a_digest_is_asked_for_the_manifest(gate: Gate, stated: str) -> None:
    pushed = MemoryRegistry()
    digest = pushed.push_xpkg("acme/aws", "v1", "kind: Provider")
    data = pushed.content["/v2/acme/aws/manifests/v1"]
    gate.plan = lambda _: Answer(200, data, {"Docker-Content-Digest": stated})

    assert client_of(gate).digest(NAME, "v1") == digest
    assert [each.method for each in gate.asked] == ["HEAD", "GET"]
    gate.plan = lambda _: Answer(200, data, {"Docker-Content-Digest": DIGEST})
    assert client_of(gate).digest(NAME, "v1") == DIGEST
    with pytest.raises(
        RefusedError, match=rf"^The manifest {NAME}:v1 should be {DIGEST[:19]}, and is {digest[:19]}$"
    ):
        client_of(gate).manifest(NAME, "v1")


def test_a_blob_that_was_read_before_is_not_asked_for_unless_it_is_damaged(
    gate: Gate, tmp_path: Path
) -> None:
    registry = MemoryRegistry()
    gate.plan = registry
    digest, size = registry.push_blob("acme/aws", b"layer")
    client, blob = client_of(gate, cache=tmp_path), Blob(digest, size)

    assert [client.cached_blob(NAME, blob) for _ in range(2)] == [b"layer"] * 2
    assert len(gate.asked) == 1
    ReplyCache(tmp_path).store(f"blob {digest}", CachedReply(digest, "", b"other"))
    assert client.cached_blob(NAME, blob) == b"layer"
    assert len(gate.asked) == 2
    large = bytes(range(256)) * 2000
    assert client_of(gate).cached_blob(NAME, Blob(*registry.push_blob("acme/aws", large))) == large
