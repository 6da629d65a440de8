"""Git over SSH against a real server: the key that was named, and no host on first sight."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git.command import KNOWN_HOSTS, environment
from reconciler.git.pack import Pack
from reconciler.git.push import RefUpdate, push
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.urls import Credential
from reconciler.names.objects import File, Signature
from reconciler.policy import CredentialRule, Policy
from reconciler.read.forges import control_credential, find_credentials
from tests.support.ci import lacking, need
from tests.support.git import Repo, make_repository
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


DRAFT = "refs/heads/drafts/web/one"
WHO = Signature("Bot", "bot@example.com", 1_767_300_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need("/usr/sbin/sshd", "ssh")
    if os.geteuid():
        lacking("needs root, to start an SSH server")
    with serve(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "edge.git", {"README.md": "edge\n"})


def opened(server: Server, repo: Repo, tmp_path: Path, credential: Credential) -> Mirror:
    return Mirrors(tmp_path / "cache", lambda _: credential).open(server.url(repo.path))


def test_known_host_is_read_and_pushed_to(server: Server, repo: Repo, tmp_path: Path) -> None:
    mirror = opened(server, repo, tmp_path, Credential("", "", server.client_key, server.known_hosts))
    mirror.fetch()
    pack = Pack(mirror)
    tree = pack.files({"a": File.of(b"a\n")})
    new = pack.commit(tree, (mirror.refs()["refs/heads/main"],), WHO, WHO, "Draft\n")
    pack.save()

    (answer,) = push(mirror, [RefUpdate(DRAFT, None, new)])

    assert answer.ok
    assert repo.refs()[DRAFT] == new
    assert mirror.head_branch == "main"


def test_unknown_host_is_not_trusted_on_first_use(server: Server, repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        opened(server, repo, tmp_path, Credential("", "", server.client_key)).fetch()


def test_host_with_changed_key_is_not_trusted(server: Server, repo: Repo, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other").private.with_suffix(".pub").read_text()
    forged = tmp_path / "known hosts"
    forged.write_text(f"[127.0.0.1]:{server.port} {' '.join(other.split()[:2])}\n")

    with pytest.raises(UnavailableError):
        opened(server, repo, tmp_path, Credential("", "", server.client_key, forged)).fetch()


def test_unauthorized_key_is_refused(server: Server, repo: Repo, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger").private

    with pytest.raises(UnavailableError) as caught:
        opened(server, repo, tmp_path, Credential("", "", stranger, server.known_hosts)).fetch()

    assert "Cannot read" in str(caught.value)


def test_key_files_come_from_rule_and_environment(server: Server, repo: Repo, tmp_path: Path) -> None:
    url = server.url(repo.path)
    rule = CredentialRule(
        url.removesuffix(str(repo.path)),
        ssh_key_file=str(server.client_key),
        known_hosts_file=str(server.known_hosts),
    )
    variables = {
        "RECONCILER_CONTROL_SSH_KEY_FILE": str(server.client_key),
        "RECONCILER_CONTROL_KNOWN_HOSTS_FILE": str(server.known_hosts),
    }

    for number, find in enumerate(
        [find_credentials(Policy(credentials=(rule,)), {}), control_credential(variables)]
    ):
        mirror = Mirrors(tmp_path / str(number), find).open(url)
        mirror.fetch()
        assert "refs/heads/main" in mirror.refs()


def test_ssh_rule_matches_scp_like_address() -> None:
    rule = CredentialRule("ssh://git@github.com/acme", ssh_key_file="/key")
    find = find_credentials(Policy(credentials=(rule,)), {})

    assert find("git@github.com:acme/edge.git") == Credential("", ssh_key=Path("/key"))
    assert find("git@github.com:acme-two/edge.git") is None
    assert find("/git@github.com/acme/edge.git") is None
    assert find("https://github.com/acme/edge.git") is None


def test_bundled_known_hosts_are_always_used() -> None:
    command = environment({}, Credential("", "", Path("/key's"), Path("/my hosts")))["GIT_SSH_COMMAND"]

    assert {line.split()[0] for line in KNOWN_HOSTS.read_text().splitlines()} == {
        "github.com",
        "gitlab.com",
        "codeberg.org",
    }
    assert "StrictHostKeyChecking=yes" in command
    assert command.count("KnownHostsFile") == 1
    assert f'"/my hosts" "{KNOWN_HOSTS}" "/etc/ssh/ssh_known_hosts"' in command
