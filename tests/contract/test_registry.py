"""The client of registries, on a real registry and on one that fails in planned ways."""

import base64
import gzip
import hashlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.http.client import Clock, LimitedError, MissingError, ReplyCache, UnauthorizedError
from reconciler.policy import RegistryPolicy
from reconciler.sources.credentials import registry_credentials
from reconciler.sources.registry import Blob, DigestError, RegistryClient
from tests.support.forges.server import VirtualClock
from tests.support.registry import Answer, Asked, Gate, Registry, layer, serve_gate, serve_registry

HOST = "xpkg.example.com"
NAME = f"{HOST}/acme/aws"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with serve_registry(tmp_path) as served:
        yield served


@pytest.fixture
def gate() -> Iterator[Gate]:
    with serve_gate() as served:
        yield served


def client(
    gate: Gate,
    *more: Gate,
    environment: dict[str, str] | None = None,
    cache: Path | None = None,
    **limits: int,
):
    """Return a client of a gate in place of a host; others are named by the settings too."""
    mirrors = {HOST: f"http://{gate.address}", **{each.address: f"http://{each.address}" for each in more}}
    policy = RegistryPolicy(mirrors=mirrors, **limits)
    find = registry_credentials(environment or {}, lambda _: None)
    clock = VirtualClock(time.time())
    replies = ReplyCache(cache) if cache else None
    return RegistryClient(policy, find, replies, clock=Clock(clock.now, clock.sleep)), clock


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_a_real_registry_gives_tags_manifest_and_the_one_layer_by_name_through_a_mirror(
    registry: Registry,
) -> None:
    for tag in ("v1.0.0", "v1.1.0"):
        pushed = registry.push_xpkg("acme/aws", tag, f"kind: Provider # {tag}\n", filler=50_000)
    with serve_gate(registry.address) as gate:
        reader, _ = client(gate)

        tags = reader.tags(NAME)
        manifest = reader.manifest(NAME, "v1.1.0")
        (base,) = [each for each in manifest.layers if each.annotation("io.crossplane.xpkg") == "base"]
        data = reader.blob(NAME, base)

        assert tags == ("v1.0.0", "v1.1.0")
        assert (manifest.digest, reader.digest(NAME, "v1.1.0")) == (pushed, pushed)
        assert data == layer({"package.yaml": b"kind: Provider # v1.1.0\n"})
        assert reader.requests == len(gate.asked) == 4
        with pytest.raises(MissingError, match=r"^GET http.*manifests/v9\.9\.9: 404 manifest unknown; M"):
            reader.manifest(NAME, "v9.9.9")


TAGS = json.dumps({"tags": ["v1.0.0"]}).encode()


def test_ten_thousand_tags_come_in_pages_and_an_etag_saves_those_that_did_not_change(
    gate: Gate, tmp_path: Path
) -> None:
    def plan(asked: Asked) -> Answer:
        start = int(parse_qs(urlsplit(asked.path).query).get("last", ["0"])[0])
        names = [f"v1.{number}.0" for number in range(start, start + 1000)]
        etag = f'"{start}"'
        if asked.etag == etag:
            return Answer(304, b"")
        # A registry behind a proxy names its own address: the path and the host of the link do not count.
        link = {"Link": f'<http://10.0.0.1/v2/x/tags/list?n=1000&last={start + 1000}>; rel="next"'}
        more = link if start < 9000 else {}
        return Answer(200, json.dumps({"tags": names}).encode(), {"ETag": etag, **more})

    gate.plan = plan
    first = client(gate, cache=tmp_path / "c")[0].tags(NAME)
    asked = len(gate.asked)
    second = client(gate, cache=tmp_path / "c")[0].tags(NAME)

    assert (len(first), first, asked, len(gate.asked)) == (10_000, second, 10, 20)
    assert all(each.etag for each in gate.asked[10:])
    with pytest.raises(UnavailableError, match=r"more tags than registries\.tags allows"):
        client(gate, tags=5000)[0].tags(NAME)
    assert len(client(gate, tags=9000)[0].tags(NAME)) == 10_000  # counted before each page is asked for


@pytest.mark.parametrize(
    ("following", "tags", "error", "most"),
    [
        ("n=1000", "[]", "go in a circle", 1),
        ("n=1000", '["v1.0.0"]', "go in a circle", 2),
        ("last={0}", '["v1.0.0"]', "go in a circle", 2),
        ("last={0}", '["v{0}"]', r"more tags than registries\.tags allows \(20\)", 21),
        ("last={0}", '["v{0}"]', r"take longer than registries\.answer allows", 9),
    ],
    ids=["none at all", "the same page", "the same tag", "too many tags", "too slow"],
)
def test_pages_without_an_end_end(gate: Gate, following: str, tags: str, error: str, most: int) -> None:
    def plan(_: Asked) -> Answer:
        number = len(gate.asked)
        if "longer" in error:
            time.sleep(0.3)
        link = {"Link": f'</v2/x?{following.format(number)}>; rel="next"'}
        return Answer(200, f'{{"tags": {tags.replace("{0}", str(number))}}}'.encode(), link)

    gate.plan = plan

    with pytest.raises(UnavailableError, match=error):
        client(gate, tags=20, answer_s=1)[0].tags(NAME)
    assert len(gate.asked) <= most


class TokenService:
    """A registry that wants a token for one repository, from a service of its own."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.issued, self.valid = gate, 0, ""
        self.scopes: list[str] = []
        self.basic: list[str] = []

    def __call__(self, asked: Asked) -> Answer | None:
        if asked.path.startswith("/token"):
            self.issued += 1
            self.valid = f"t{self.issued}"
            self.scopes += parse_qs(urlsplit(asked.path).query).get("scope", [])
            self.basic.append(asked.authorization)
            return Answer(200, json.dumps({"token": self.valid}).encode())
        if asked.authorization != f"Bearer {self.valid}" or not self.valid:
            realm = f'Bearer realm="http://{self.gate.address}/token",service="s",scope="registry:catalog:*"'
            return Answer(401, b"{}", {"WWW-Authenticate": realm})
        return Answer(200, TAGS)


def test_a_token_is_for_one_repository_and_is_renewed_when_it_ends(gate: Gate, tmp_path: Path) -> None:
    service = TokenService(gate)
    gate.plan = service
    auth = base64.b64encode(b"kim:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {gate.address: {"auth": auth}}}))
    reader, _ = client(gate, environment={"DOCKER_CONFIG": str(tmp_path)})

    assert reader.tags(NAME) == ("v1.0.0",)
    assert reader.tags(NAME) == ("v1.0.0",)
    service.valid = "ended"
    assert reader.tags(NAME) == ("v1.0.0",)

    # Asked for is what is needed, whatever the registry says the scope is.
    assert service.scopes == ["repository:acme/aws:pull"] * 2
    assert service.basic == [f"Basic {auth}"] * 2


def test_an_identity_token_is_exchanged_for_one_of_the_repository(gate: Gate) -> None:
    """As `docker login` to a registry with OAuth2 stores it, such as Azure's, and helpers answer."""
    forms: list[dict[str, list[str]]] = []

    def plan(asked: Asked) -> Answer:
        if asked.path.startswith("/token"):
            forms.append(parse_qs(asked.body.decode()))
            return Answer(200, json.dumps({"access_token": "t1"}).encode())
        realm = f'Bearer realm="http://{gate.address}/token",service="s"'
        known = asked.authorization == "Bearer t1"
        return Answer(200, TAGS) if known else Answer(401, b"{}", {"WWW-Authenticate": realm})

    gate.plan = plan
    user = base64.b64encode(b"00000000-0000-0000-0000-000000000000:").decode()
    config = json.dumps({"auths": {gate.address: {"auth": user, "identitytoken": "of-kim"}}})
    reader, _ = client(gate, environment={"DOCKER_AUTH_CONFIG": config})

    assert reader.tags(NAME) == ("v1.0.0",)

    (form,) = forms
    assert {key: form[key] for key in ("grant_type", "refresh_token", "service", "scope")} == {
        "grant_type": ["refresh_token"],
        "refresh_token": ["of-kim"],
        "service": ["s"],
        "scope": ["repository:acme/aws:pull"],
    }
    assert [each.method for each in gate.asked if each.path == "/token"] == ["POST"]


def test_a_refused_credential_is_named_and_not_shown(gate: Gate) -> None:
    gate.plan = lambda _: Answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="x"'})
    config = json.dumps({"auths": {gate.address: {"username": "kim", "password": "s3cret-of-kim"}}})
    reader, _ = client(gate, environment={"DOCKER_AUTH_CONFIG": config})

    with pytest.raises(UnauthorizedError) as caught:
        reader.tags(NAME)

    assert [each.authorization.partition(" ")[0] for each in gate.asked] == ["", "Basic"]
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"
    assert "docker login" in caught.value.hint


def test_the_credential_does_not_follow_to_another_host(gate: Gate) -> None:
    data = b"layer"
    with serve_gate() as elsewhere:
        elsewhere.plan = lambda _: Answer(200, data)

        def plan(asked: Asked) -> Answer:
            if not asked.authorization:
                return Answer(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
            return Answer(307, b"", {"Location": f"http://{elsewhere.address}/signed?key=1"})

        gate.plan = plan
        config = json.dumps({"auths": {gate.address: {"username": "kim", "password": "s3cret"}}})
        reader, _ = client(gate, elsewhere, environment={"DOCKER_AUTH_CONFIG": config})

        assert reader.blob(NAME, Blob(digest_of(data), len(data))) == data
        assert [each.authorization for each in elsewhere.asked] == [""]
        with pytest.raises(
            UnavailableError, match=rf"leads to http://{elsewhere.address}/signed, which is not"
        ):
            client(gate, environment={"DOCKER_AUTH_CONFIG": config})[0].tags(NAME)
        assert len(elsewhere.asked) == 1


@pytest.mark.parametrize("cut", [1, 3])
def test_a_cut_answer_is_asked_for_again(gate: Gate, cut: int) -> None:
    gate.plan = lambda _: Answer(200, TAGS, cut=len(gate.asked) <= cut)
    reader, clock = client(gate)

    assert reader.tags(NAME) == ("v1.0.0",)
    assert clock.slept == [1.0, 2.0, 4.0][:cut]


def test_a_registry_that_fails_is_left_after_four_times(gate: Gate) -> None:
    gate.plan = lambda _: Answer(503, b"")

    with pytest.raises(UnavailableError, match="503"):
        client(gate)[0].tags(NAME)
    assert len(gate.asked) == 4


@pytest.mark.parametrize(
    ("status", "after", "waits"),
    [
        (429, "0", []),
        (429, "7", [7.0]),
        (429, "1", [1.0]),
        (503, "7", [7.0]),
        (429, "DATE", [30.0]),
        (429, "soon", [2.0]),
        (429, "", [2.0]),
        (503, "", [1.0]),
        (408, "", [1.0]),
    ],
)
def test_a_busy_registry_is_asked_again_after_the_time_that_it_names(
    gate: Gate, status: int, after: str, waits: list[float]
) -> None:
    reader, clock = client(gate)
    text = after.replace("DATE", formatdate(clock.now() + 30, usegmt=True))
    headers = {"Retry-After": text} if text else {}
    gate.plan = lambda _: Answer(200, TAGS) if len(gate.asked) > 1 else Answer(status, b"", headers)

    assert reader.tags(NAME) == ("v1.0.0",)
    assert clock.slept == pytest.approx(waits, abs=1)


def test_a_registry_that_stays_busy_is_left(gate: Gate) -> None:
    gate.plan = lambda _: Answer(429, b"", {"Retry-After": "0"})

    with pytest.raises(LimitedError, match=r"^http://.*/tags/list limits requests: rate limit$") as caught:
        client(gate)[0].tags(NAME)
    assert (len(gate.asked), caught.value.wait_s) == (5, 0.0)


@pytest.mark.parametrize(
    ("after", "hint"),
    [
        ("9000", "Run again in 2 h 30 min; what is done stays done."),
        ("9" * 400, "Run again in 24 h 00 min; what is done stays done."),
        ("Fri, 31 Dec 9999 23:59:59 GMT", "Run again in 24 h 00 min; what is done stays done."),
    ],
)
def test_a_wait_beyond_the_limit_is_told_and_not_waited_out(gate: Gate, after: str, hint: str) -> None:
    gate.plan = lambda _: Answer(429, b"", {"Retry-After": after})
    with pytest.raises(LimitedError, match="limits requests") as caught:
        client(gate)[0].tags(NAME)
    assert (caught.value.hint, len(gate.asked)) == (hint, 1)


@pytest.mark.parametrize(
    ("limit", "waits"),
    [
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, 30),
        ({"RateLimit-Remaining": "0;w=60"}, 60),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "EPOCH"}, 40),
        ({"RateLimit-Remaining": "1;w=21600"}, 0),
    ],
    ids=["seconds", "window of Docker Hub", "time of GitLab", "one is left"],
)
def test_no_request_is_sent_while_the_registry_says_that_none_is_left(
    gate: Gate, limit: dict[str, str], waits: int
) -> None:
    reader, clock = client(gate)
    sent = {name: text.replace("EPOCH", f"{clock.now() + 40:.0f}") for name, text in limit.items()}
    gate.plan = lambda _: Answer(200, TAGS, sent if len(gate.asked) == 1 else {})
    reader.tags(NAME)

    reader.tags(f"{HOST}/acme/other")

    assert sum(clock.slept) == pytest.approx(waits, abs=5)


def test_a_long_window_without_requests_ends_the_run_without_asking(gate: Gate) -> None:
    gate.plan = lambda _: Answer(200, TAGS, {"RateLimit-Remaining": "0;w=21600"})
    reader, _ = client(gate)
    reader.tags(NAME)

    with pytest.raises(LimitedError, match="limits requests"):
        reader.tags(f"{HOST}/acme/other")

    assert len(gate.asked) == 1


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


SLOW = {
    "is silent": Answer(200, raw=(b"",), pause_s=2.0),
    "trickles its body": Answer(
        200, raw=(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", *[b"x"] * 99), pause_s=0.1
    ),
    "trickles its headers": Answer(200, raw=(b"HTTP/1.1 200 OK\r\nX-Slow: ", *[b"x"] * 200), pause_s=0.1),
    "puts off for ever": Answer(200, raw=(b"HTTP/1.1 100 Continue\r\n\r\n",) * 200, pause_s=0.05),
}


@pytest.mark.parametrize("slow", SLOW.values(), ids=SLOW)
def test_a_registry_that_hangs_is_left_in_time_and_not_asked_again(gate: Gate, slow: Answer) -> None:
    gate.plan = lambda _: slow
    reader, _ = client(gate, silence_s=1, answer_s=1)
    begun = time.monotonic()

    for name in (NAME, f"{HOST}/acme/other"):
        with pytest.raises(UnavailableError, match="no answer ReadTimeout"):
            reader.tags(name)

    assert time.monotonic() - begun < 5
    assert len(gate.asked) == 1


def test_handshake_that_trickles_is_left_in_time() -> None:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                for part in (b"\x16\x03\x03\x3f\xff", *[b"\x02"] * 200):
                    self.request.sendall(part)
                    time.sleep(0.1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        policy = RegistryPolicy(mirrors={HOST: f"https://127.0.0.1:{server.server_address[1]}"}, answer_s=1)
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="no answer ConnectTimeout"):
            RegistryClient(policy, lambda _: None).tags(NAME)
        assert time.monotonic() - begun < 5
        server.shutdown()


def test_tag_of_an_answer_that_no_request_can_repeat_is_not_kept(gate: Gate, tmp_path: Path) -> None:
    gate.plan = lambda _: Answer(200, TAGS, {"ETag": '"\u00e4"'})

    for _ in range(2):
        assert client(gate, cache=tmp_path)[0].tags(NAME) == ("v1.0.0",)
    assert [asked.etag for asked in gate.asked] == ["", ""]


def test_an_answer_that_is_late_once_is_asked_for_again(gate: Gate) -> None:
    late = Answer(200, raw=(b"",), pause_s=1.5)
    gate.plan = lambda _: late if len(gate.asked) == 1 else Answer(200, TAGS)

    assert client(gate, silence_s=1)[0].tags(NAME) == ("v1.0.0",)


@pytest.mark.parametrize(
    ("encoding", "body", "error"),
    [
        ("gzip", packed(TAGS), ""),
        ("X-GZip", packed(TAGS) + b"what comes after is not read", ""),
        ("identity", TAGS, ""),
        ("gzip", packed(b" " * (9 << 20) + TAGS), "has more than the 8388608 bytes that it may"),
        ("gzip", packed(TAGS)[:-9], "a body that was cut short"),
        ("gzip", TAGS, "incorrect header check"),
        ("gzip, gzip", packed(packed(TAGS)), "its encoding 'gzip, gzip' was not asked for"),
        ("br", TAGS, "its encoding 'br' was not asked for"),
    ],
)
def test_body_is_unpacked_up_to_its_limit(gate: Gate, encoding: str, body: bytes, error: str) -> None:
    gate.plan = lambda _: Answer(200, body, {"Content-Encoding": encoding})

    if not error:
        assert client(gate)[0].tags(NAME) == ("v1.0.0",)
        return
    with pytest.raises(UnavailableError, match=error):
        client(gate)[0].tags(NAME)


def test_headers_have_a_limit(gate: Gate) -> None:
    gate.plan = lambda _: Answer(200, raw=(b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 300_000))

    with pytest.raises(UnavailableError, match="no answer RemoteProtocolError"):
        client(gate)[0].tags(NAME)


@pytest.mark.parametrize("what", ["blob", "manifest"])
def test_another_content_than_the_digest_says_is_refused(gate: Gate, what: str) -> None:
    gate.plan = lambda _: Answer(200, b'{"schemaVersion": 2}')
    digest = digest_of(b"what was meant")

    reader, _ = client(gate)
    read = {
        "blob": lambda: reader.blob(NAME, Blob(digest, 100)),
        "manifest": lambda: reader.manifest(NAME, digest),
    }

    with pytest.raises(DigestError, match=f"{what}.* should be {digest[:19]}"):
        read[what]()


def test_a_layer_above_the_limit_is_not_asked_for_and_one_that_lies_is_left(gate: Gate) -> None:
    gate.plan = lambda _: Answer(200, b"x" * 5000)
    reader, _ = client(gate, layer_bytes=1000)

    with pytest.raises(RefusedError, match=r"has 5000 bytes, and the limit is 1000"):
        reader.blob(NAME, Blob(digest_of(b""), 5000))
    assert gate.asked == []
    with pytest.raises(
        UnavailableError, match=r"/blobs/sha256:.*: 200 it has more than the 10 bytes that it may$"
    ):
        reader.blob(NAME, Blob(digest_of(b""), 10))
