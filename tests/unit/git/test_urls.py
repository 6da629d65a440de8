from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.errors import UnavailableError
from reconciler.git.urls import local_path, parse_remote
from reconciler.ids import normalise_url


class Case(NamedTuple):
    reason: str
    address: str
    other: str


SAME = [
    Case("a final .git", "https://github.com/acme/edge.git", "https://github.com/acme/edge"),
    Case("the case of the host", "https://GitHub.com/acme/edge", "https://github.com/acme/edge"),
    Case("credentials", "https://me:secret@github.com/acme/edge", "https://github.com/acme/edge"),
    Case("the default port", "https://github.com:443/acme/edge", "https://github.com/acme/edge"),
    Case("scp-like and ssh", "git@github.com:acme/edge.git", "ssh://git@github.com/acme/edge"),
    Case("the default port of ssh", "ssh://github.com:22/acme/edge", "ssh://github.com/acme/edge"),
    Case("a final slash", "https://github.com/acme/edge/", "https://github.com/acme/edge"),
    Case("a file URL and a path", "file:///srv/git/edge.git", "/srv/git/edge"),
    Case("the git directory inside", "/srv/git/edge/.git", "/srv/git/edge"),
]
DIFFERENT = [
    Case("another path", "https://github.com/acme/edge", "https://github.com/acme/edge2"),
    Case("another host", "https://github.com/acme/edge", "https://gitlab.com/acme/edge"),
    Case("another port", "https://git.example:8443/a", "https://git.example/a"),
    Case("a path is not a host", "/github.com/acme/edge", "https://github.com/acme/edge"),
]


@pytest.mark.parametrize("case", SAME, ids=lambda c: c.reason)
def test_spellings_have_one_identity(case: Case) -> None:
    assert normalise_url(case.address) == normalise_url(case.other)


@pytest.mark.parametrize("case", DIFFERENT, ids=lambda c: c.reason)
def test_different_repositories_have_different_identities(case: Case) -> None:
    assert normalise_url(case.address) != normalise_url(case.other)


@pytest.mark.parametrize("case", SAME + DIFFERENT, ids=lambda c: c.reason)
def test_normalising_is_idempotent(case: Case) -> None:
    assert normalise_url(normalise_url(case.address)) == normalise_url(case.address)


@pytest.mark.parametrize(
    "remote",
    [
        "ext::sh -c 'touch /tmp/x'",
        "-oProxyCommand=id",
        "--upload-pack=id",
        "ssh://-oProxyCommand=id/x",
        "ftp://example.com/x",
        "https:///x",
        "https://example.com/x\n",
        "https://exa\x00mple.com/x",
        "git://example.com/x",
        "",
    ],
)
def test_unsafe_address_is_refused(remote: str) -> None:
    if remote.endswith("\n"):
        assert parse_remote(remote).address == remote.strip()
        return
    with pytest.raises(UnavailableError):
        parse_remote(remote)


def test_refused_address_shows_no_secret() -> None:
    with pytest.raises(UnavailableError) as caught:
        parse_remote("ftp://me:s3cret@example.com/x")

    assert "s3cret" not in str(caught.value)


def test_secret_is_removed_from_the_address() -> None:
    remote = parse_remote("https://me:s3%40cret@example.com/x.git")

    assert remote.address == "https://example.com/x.git"
    assert remote.credential is not None
    assert (remote.credential.username, remote.credential.password) == ("me", "s3@cret")
    assert "s3@cret" not in repr(remote)


def test_ssh_address_keeps_user_without_password() -> None:
    assert parse_remote("ssh://git:pw@example.com/x").address == "ssh://git@example.com/x"
    assert parse_remote("git@example.com:x/y.git").address == "git@example.com:x/y.git"


def test_relative_path_is_relative_to_base() -> None:
    assert local_path("../edge.git", Path("/srv/control")) == Path("/srv/edge.git")
    assert parse_remote("../edge.git", Path("/srv/control")).url == "/srv/edge"
    assert local_path("file:///srv/a%20b") == Path("/srv/a b")
    assert local_path("git@example.com:x") is None
