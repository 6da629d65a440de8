"""Which server gets a password, whoever leads to it or asks for it: servers of any name behind one proxy."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base.errors import ReconcilerError
from reconciler.git.repository import Mirrors
from reconciler.git.urls import Credential
from reconciler.policy import RegistryPolicy
from reconciler.sources.registry import RegistryClient
from tests.support.git import make_repository
from tests.support.http_git import serve
from tests.support.internet import Internet, Sent, serve_internet
from tests.support.registry import Answer, serve_gate

PASSWORD = b"s3cret-0f-k1m"
REGISTRY, MIRROR, AUTH, STORE = (
    "https://reg.example",
    "http://mirror.example",
    "https://auth.example",
    "https://store.example",
)
BASIC = 'Basic realm="x"'
ANSWERS = {
    "tags": b'{"tags": ["v1.0.0"]}',
    "file": b"entries: {}",
}


def bearer(server: str) -> str:
    return f'Bearer realm="{server}/token",service="s"'


LED = "GET https://store.example/blob, where https://reg.example/v2/acme/aws/tags/list leads: 401"


class Row(NamedTuple):
    """What the server of a name does, and who gets the password by that; the words of the error, if any.

    `asks` is its challenge, `leads` where it redirects, `there` the challenge of that one.
    """

    reason: str
    asks: str = ""
    leads: str = ""
    there: str = ""
    addresses: tuple[str, ...] = ()
    gets: tuple[str, ...] = ()
    error: str = ""
    mirror: str = ""
    read: str = "tags"


ROWS = [
    Row("a registry that asks gets it", BASIC, gets=(REGISTRY,)),
    Row("with a token service of its own", bearer(REGISTRY), gets=(REGISTRY,)),
    Row("with a token service elsewhere, as Docker Hub", bearer(AUTH), gets=(AUTH,)),
    Row("with one over http", bearer("http://auth.example"), error="which is not encrypted"),
    Row("with one on the machine of the run", bearer("https://localhost"), error="is on this machine"),
    Row("in another spelling", bearer("https://0x7f.1"), error="is on this machine"),
    Row("with one of the cloud's machine", bearer("https://169.254.169.254"), error="is on this machine"),
    Row("with one that is not listed", bearer(AUTH), addresses=(REGISTRY,), error="below no prefix of spec"),
    Row("with one that is listed", bearer(AUTH), addresses=(REGISTRY, AUTH), gets=(AUTH,)),
    Row("with one that is listed over http", bearer("http://auth.example"),
        addresses=(REGISTRY, "http://auth.example")),
    Row("with one that is no address", 'Bearer realm="https://[::1"', error="cannot be asked"),
    Row("with one that has a user", 'Bearer realm="https://a@auth.example/token"', error="cannot be asked"),
    Row("without one", "Bearer ", error="cannot be asked"),
    Row("a storage behind it gets nothing", BASIC, f"{STORE}/blob", gets=(REGISTRY,)),
    Row("that asks", BASIC, f"{STORE}/blob", BASIC, gets=(REGISTRY,), error=LED),
    Row("that asks alone", "", f"{STORE}/blob", BASIC, error=LED),
    Row("that names a service of its own", "", f"{STORE}/blob", bearer(STORE), error=LED),
    Row("that names the registry's", bearer(AUTH), f"{STORE}/blob", bearer(AUTH), gets=(AUTH,), error=LED),
    Row("over http", BASIC, "http://store.example/blob", gets=(REGISTRY,), error="is not encrypted"),
    Row("on another port", BASIC, f"{REGISTRY}:444/", BASIC, gets=(REGISTRY,), error="GET https://reg.example:444"),
    Row("on the machine of the run", "", "https://127.0.0.1:1/blob", error="is on this machine"),
    Row("that is not listed", "", f"{STORE}/blob", addresses=(REGISTRY,), error="below no prefix of spec"),
    Row("that is listed", "", f"{STORE}/blob", addresses=(REGISTRY, STORE)),
    Row("a mirror over http gets nothing", BASIC, mirror=MIRROR, error="GET http://mirror.example/.*: 401"),
    Row("nor who it names over https", bearer(AUTH), mirror=MIRROR),
    Row("nor itself as a token service", bearer(MIRROR), mirror=MIRROR),
    Row("nor a storage behind it", "", f"{STORE}/blob", bearer(STORE), mirror=MIRROR, error="GET https://sto"),
    Row("nor one over http", "", "http://store.example/blob", mirror=MIRROR, error="is not encrypted"),
    Row("a web server that asks gets it", BASIC, gets=(REGISTRY,), read="file"),
    Row("and no token service of it", bearer(AUTH), error="GET https://reg.example/.*: 401", read="file"),
    Row("nor its own", bearer(REGISTRY), error="GET https://reg.example/.*: 401", read="file"),
    Row("nor where it leads", "", f"{STORE}/i", BASIC, error="https://store.example/i, where", read="file"),
    Row("nor without encryption", BASIC, mirror=MIRROR, error="GET http://mirror.*: 401", read="file"),
]  # fmt: skip


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    with serve_internet(tmp_path, monkeypatch) as served:
        yield served


def client_of(row: Row, credential: Credential) -> RegistryClient:
    policy = RegistryPolicy(mirrors={"reg.example": row.mirror} if row.mirror else {})
    return RegistryClient(policy, lambda _: credential, addresses=row.addresses)


@pytest.mark.parametrize("user", ["kim", "<token>"], ids=["password", "identity token"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.read}: {row.reason}")
def test_password_reaches_the_server_that_it_is_for_and_its_token_service_alone(
    internet: Internet, row: Row, user: str
) -> None:
    place = row.mirror or REGISTRY

    def plan(sent: Sent) -> Answer:
        if sent.path.startswith("/token"):
            return Answer(200, b'{"token": "t0k3n"}')
        challenge = row.asks if sent.server == place else row.there
        if challenge and not sent.authorization:
            return Answer(401, b"{}", {"WWW-Authenticate": challenge})
        if row.leads and sent.server == place:
            return Answer(307, b"", {"Location": row.leads})
        return Answer(200, ANSWERS[row.read])

    internet.plan = plan
    client = client_of(row, Credential(user, PASSWORD.decode()))
    is_basic = user == "kim" or row.asks != BASIC

    try:
        if row.read == "tags":
            client.tags("reg.example/acme/aws")
        else:
            client.file(f"{REGISTRY}/charts/index.yaml")
        error = ""
    except ReconcilerError as refused:
        error = str(refused)

    pair = base64.b64encode(b"kim:" + PASSWORD)
    got = internet.got(PASSWORD) | internet.got(pair)
    assert got == (set(row.gets) if is_basic else set()), error
    assert not any(server.startswith("http:") for server in got)
    if is_basic:
        assert bool(error) == bool(row.error), error
        assert re.search(row.error, error), error
    assert PASSWORD.decode() not in error
    assert internet.servers() <= {place, AUTH, STORE, "http://auth.example", f"{REGISTRY}:444"}


@pytest.mark.parametrize("user", ["kim", "<token>"], ids=["password", "identity token"])
def test_token_service_that_leads_elsewhere_takes_no_password_there(internet: Internet, user: str) -> None:
    def plan(sent: Sent) -> Answer:
        if sent.server == REGISTRY:
            return Answer(401, b"{}", {"WWW-Authenticate": bearer(AUTH)})
        moved = Answer(307, b"", {"Location": f"{STORE}/token"})
        return moved if sent.server == AUTH else Answer(200, b'{"token": "t0k3n"}')

    internet.plan = plan
    client = client_of(ROWS[0], Credential(user, PASSWORD.decode()))

    with pytest.raises(ReconcilerError):
        client.tags("reg.example/acme/aws")

    assert internet.got(PASSWORD) | internet.got(base64.b64encode(b"kim:" + PASSWORD)) == {AUTH}


@pytest.mark.parametrize("proxied", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_plain_http_to_this_machine_leaves_it_by_no_proxy(
    internet: Internet, monkeypatch: pytest.MonkeyPatch, proxied: str
) -> None:
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv(proxied, internet.proxy)
    with serve_gate() as gate:
        gate.plan = lambda asked: (
            Answer(200, ANSWERS["tags"])
            if asked.authorization
            else Answer(401, b"", {"WWW-Authenticate": BASIC})
        )
        policy = RegistryPolicy(mirrors={"reg.example": f"http://{gate.address}"})
        client = RegistryClient(policy, lambda _: Credential("kim", PASSWORD.decode()))

        assert client.tags("reg.example/acme/aws") == ("v1.0.0",)
        assert len(gate.asked) == 2
    assert internet.sent == []


@pytest.mark.parametrize("proxied", ["http_proxy", "ALL_PROXY"])
def test_git_over_plain_http_to_this_machine_leaves_it_by_no_proxy(
    internet: Internet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, proxied: str
) -> None:
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv(proxied, internet.proxy)
    monkeypatch.setenv("NO_PROXY", "other.example")
    repo = make_repository(tmp_path / "served/a.git", {"a": "1"})
    with serve(tmp_path / "served", password=PASSWORD.decode()) as server:
        credential = Credential(password=PASSWORD.decode())
        mirror = Mirrors(tmp_path / "cache", lambda _: credential).open(server.url("a.git"))
        mirror.fetch()

        assert mirror.refs()["refs/heads/main"] == repo.oid("main")
    assert internet.sent == []
