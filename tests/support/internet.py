"""Servers of any name, with https, behind one proxy on the loopback that records what each of them gets."""

import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.registry import Answer


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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
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
            self.send_response(answer.status)
            for key, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else answer.body)

        do_POST = do_HEAD = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that gave up is no error of the test."""

    with Server(("127.0.0.1", 0), Handler) as server:
        internet.proxy = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        variables: Mapping[str, str] = {
            "http_proxy": internet.proxy,
            "https_proxy": internet.proxy,
            "SSL_CERT_FILE": str(authority.file),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        try:
            yield internet
        finally:
            server.shutdown()
            thread.join()
