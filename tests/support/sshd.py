"""A real SSH server on the loopback, with a key of its own, that lets one key in."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.signing import make_key

_SEPARATION = Path("/run/sshd")


class Server(NamedTuple):
    """Where it listens, the key that it lets in, and a file that says which key is its own."""

    port: int
    client_key: Path
    known_hosts: Path

    def url(self, repository: Path) -> str:
        """Return the address of a repository on this machine by way of the server."""
        return f"ssh://root@127.0.0.1:{self.port}{repository}"


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Serve until the block ends; `folder` holds keys and configuration."""
    host, client = make_key(folder / "host").private, make_key(folder / "client").private
    port = _free_port()
    authorized = folder / "authorized_keys"
    authorized.write_text(client.with_suffix(".pub").read_text())
    known = folder / "known_hosts"
    kind, public, *_ = host.with_suffix(".pub").read_text().split()
    known.write_text(f"[127.0.0.1]:{port} {kind} {public}\n")
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {authorized}\n"
        "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
    )
    _SEPARATION.mkdir(exist_ok=True)
    process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", config], stderr=subprocess.DEVNULL)
    try:
        _wait(port)
        yield Server(port, client, known)
    finally:
        process.terminate()
        process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the SSH server does not answer")
