"""Which server gets a password, whoever leads to it or asks for it: servers of any name behind one proxy."""

import base64
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from reconciler.base.errors import ReconcilerError
from reconciler.git.command import run_git
from reconciler.git.repository import Mirrors
from reconciler.git.urls import Credential
from reconciler.policy import RegistryPolicy
from reconciler.sources.registry import RegistryClient
from tests.support.git import make_repository
from tests.support.http_git import serve
from tests.support.http_server import Handler, serving
from tests.support.registry import Answer, serve_gate


class Sent(NamedTuple):
    """A request as its server got it: `server` is its scheme and host."""

    server: str
    method: str
    path: str
    authorization: str
    body: bytes


Plan = Callable[[Sent], Answer | None]


@dataclass
class Internet:
    """What the servers got, and the plan of their answers; without one it is 404."""

    proxy: str = ""
    plan: Plan = lambda _: None
    sent: list[Sent] = field(default_factory=list)

    def got(self, secret: bytes) -> set[str]:
        """Return the servers that got a secret, as it is or in an Authorization header."""
        return {each.server for each in self.sent if secret in f"{each.authorization} ".encode() + each.body}

    def servers(self) -> set[str]:
        return {each.server for each in self.sent}


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign")
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )


class Authority:
    """An authority for certificates, made for one test; `file` has its own one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "authority.pem"
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
        self.file.write_bytes(self._signed(self.name, self.key, []).public_bytes(serialization.Encoding.PEM))

    def context(self, host: str) -> ssl.SSLContext:
        """Return the side of the server of a host."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        issued = self._signed(name, key, [x509.DNSName(host)])
        private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file = self.folder / f"{host}.pem"
        file.write_bytes(
            issued.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(serialization.Encoding.PEM, *private)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, hosts: list[x509.DNSName]
    ) -> x509.Certificate:
        today = datetime.now(UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - timedelta(days=1))
            .not_valid_after(today + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
            # Python 3.13 verifies strictly: an authority has a key for certificates, and these name that key.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
            .add_extension(_usage(is_authority=not hosts), critical=True)
        )
        if hosts:
            built = built.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return built.sign(self.key, hashes.SHA256())


@contextmanager
def serve_internet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """Serve every name: clients reach them by the variables for proxies and authorities."""
    internet, authority = Internet(), Authority(folder)
    contexts: dict[str, ssl.SSLContext] = {}

    class Proxy(Handler, BaseHTTPRequestHandler):
        origin = ""

        def do_CONNECT(self) -> None:
            host = self.path.rpartition(":")[0]
            self.send_response(200)
            self.end_headers()
            context = contexts.setdefault(host, authority.context(host))
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.origin = f"https://{host}"
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)  # type: ignore[assignment]
            self.close_connection = False

        def finish(self) -> None:
            super().finish()
            self.connection.close()  # the one of TLS took the place of that which the server closes

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            server = self.origin or f"{parts.scheme}://{parts.netloc}"
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            sent = Sent(server, self.command, path, self.headers.get("Authorization", ""), body)
            internet.sent.append(sent)
            answer = internet.plan(sent) or Answer(404, b"{}")
            self.say(answer.status, answer.headers, answer.body)

        do_POST = do_HEAD = do_GET  # noqa: N815 - http.server's name

    with serving(Proxy) as address:
        internet.proxy = f"http://{address}"
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        variables: Mapping[str, str] = {
            "http_proxy": internet.proxy,
            "https_proxy": internet.proxy,
            "SSL_CERT_FILE": str(authority.file),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield internet


PASSWORD = b"s3cret-0f-k1m"
REGISTRY, MIRROR, AUTH, STORE = (
    "https://reg.example",
    "http://mirror.example",
    "https://auth.example",
    "https://store.example",
)
BASIC = 'Basic realm="x"'
ANSWERS = {"tags": b'{"tags": ["v1.0.0"]}', "file": b"entries: {}"}


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


def test_storage_that_leads_back_is_no_way_to_get_the_password(internet: Internet) -> None:
    def plan(sent: Sent) -> Answer:
        if sent.server == STORE or (sent.authorization and sent.path != "/back"):
            leads = f"{REGISTRY}/back" if sent.server == STORE else f"{STORE}/blob"
            return Answer(307, b"", {"Location": leads})
        is_back = sent.path == "/back"
        return Answer(200, ANSWERS["tags"]) if is_back else Answer(401, b"", {"WWW-Authenticate": BASIC})

    internet.plan = plan
    client = client_of(ROWS[0], Credential("kim", PASSWORD.decode()))

    assert client.tags("reg.example/acme/aws") == ("v1.0.0",)
    assert [(sent.server, bool(sent.authorization)) for sent in internet.sent] == [
        *((REGISTRY, False), (REGISTRY, True), (STORE, False), (REGISTRY, False))
    ]


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


def test_git_trusts_the_authority_that_the_environment_names(internet: Internet) -> None:
    commit = "0123456789012345678901234567890123456789"
    internet.plan = lambda _: Answer(200, f"{commit}\trefs/heads/main\n".encode())

    listed = run_git(["ls-remote", "https://git.example/a.git", "refs/heads/main"])

    assert (listed.out, listed.err) == (f"{commit}\trefs/heads/main\n".encode(), "")
    assert internet.servers() == {"https://git.example"}
