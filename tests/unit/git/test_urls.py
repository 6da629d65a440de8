from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.base.redact import mask_credentials
from reconciler.git.urls import is_loopback, local_path, parse_remote, without_user
from reconciler.names.ids import is_prefix, normalise_url


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
        "ext::sh -c 'touch /tmp/x'", "-oProxyCommand=id", "--upload-pack=id", "ssh://-oProxyCommand=id/x",
        "ftp://example.com/x", "https:///x", "https://example.com/x\n", "https://exa\x00mple.com/x",
        "git://example.com/x", "", "https://[example.com]/x", "https://[::1/x", "https://[::1].example.com/x",
        "https://example.com[::1]/x", "https://example.com:port/x", "https://\u2100.example.com/x",
    ],
)  # fmt: skip
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
    assert parse_remote("ssh://git:p:w@example.com:22/x").address == "ssh://git@example.com:22/x"
    assert parse_remote("ssh://example.com/x").address == "ssh://example.com/x"
    assert parse_remote("ssh://git@example.com/x").credential is None
    assert parse_remote("git@example.com:x/y.git").address == "git@example.com:x/y.git"


def test_relative_path_is_relative_to_base() -> None:
    assert local_path("../edge.git", Path("/srv/control")) == Path("/srv/edge.git")
    assert parse_remote("../edge.git", Path("/srv/control")).url == "/srv/edge"
    assert local_path("file:///srv/a%20b") == Path("/srv/a b")
    assert local_path("git@example.com:x") is None
    assert local_path("FILE://localhost/srv/a") == Path("/srv/a")
    assert local_path("https://example.com/x") is None
    assert local_path("a/./b/..") == Path.cwd() / "a"


@pytest.mark.parametrize(
    ("address", "username", "password"),
    [
        ("https://kim@example.com/x", "kim", ""),
        ("https://:t0k@example.com/x", "", "t0k"),
        ("https://kim:@example.com/x", "kim", ""),
        ("HTTPS://a%40b:c%3Ad@example.com/x", "a@b", "c:d"),
    ],
)
def test_user_and_password_of_an_address_are_its_credential(address, username, password) -> None:
    remote = parse_remote(address)

    assert remote.credential is not None
    assert (remote.credential.username, remote.credential.password) == (username, password)
    assert remote.address == f"{address.partition('//')[0]}//example.com/x"


def test_address_without_user_has_no_credential() -> None:
    assert parse_remote("https://example.com/x").credential is None
    assert parse_remote("https://@example.com/x").credential is None


@pytest.mark.parametrize("step", ["..", ".", "%2e%2e", "%2E"])
def test_address_with_relative_steps_is_refused(step: str) -> None:
    with pytest.raises(UnavailableError, match="is not usable") as caught:
        parse_remote(f"https://me:s3cret@example.com/a/{step}/b")

    assert (caught.value.hint, "s3cret" in str(caught.value)) == ("Drop `..`.", False)
    assert parse_remote("https://example.com/a/..b/c.").address == "https://example.com/a/..b/c."


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("-x", "Give a URL or a path."),
        ("ftp://h/x", "Use https, ssh, http, file or a path."),
        ("https://h:port/x", "Write a slash in a password as %2F."),
        ("https://h:99999/x", "Write a slash in a password as %2F."),
    ],
)
def test_refused_address_is_named_with_what_to_use(address: str, hint: str) -> None:
    with pytest.raises(UnavailableError, match=repr(address)) as caught:
        parse_remote(address)

    assert caught.value.hint == hint


def test_address_that_is_only_read_teaches_nothing() -> None:
    for address in (
        "https://word-of-a-user@h/x",
        "https://kim:word-of-a-password@h/x",
        "ftp://word-of-a-user@h/x",
    ):
        with suppress(UnavailableError):
            parse_remote(address)

    assert mask_credentials("word-of-a-user word-of-a-password") == "word-of-a-user word-of-a-password"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@h/x", "https://h/x"),
        ("https://me@h/a@b", "https://h/a@b"),
        ("https://h/a@b", "https://h/a@b"),
        ("https://me:p/w@h/x", "https://h/x"),
        ("https://me:8/w@h/x", "https://me:8/w@h/x"),
        ("https://h:8443/a@b", "https://h:8443/a@b"),
        ("https://[::1]/a@b", "https://[::1]/a@b"),
        ("git@h:x", "git@h:x"),
    ],
)
def test_user_of_a_url_is_not_shown(url: str, shown: str) -> None:
    assert without_user(url) == shown


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://localhost/x", True),
        ("https://127.0.0.1:80/x", True),
        ("http://[::1]:80/x", True),
        ("http://127.0.0.1.example/x", False),
        ("http://[::1].example/x", False),
        ("http://example[::1]/x", False),
        ("http://127.0.0.1:80@example/x", False),
        ("http://[x]/", False),
        ("http://git.example/localhost", False),
        ("localhost", False),
        ("localhost:x", False),
    ],
)
def test_this_machine_is_recognised_by_its_host(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize(
    ("prefix", "remote", "is_below"),
    [
        ("ssh://git.acme.io", "git@git.acme.io:shop/web", True),
        ("https://git.acme.io", "git@git.acme.io:shop/web", False),
        ("ssh://srv/git", "srv/git/web", False),
        ("git.acme.io/shop", "HTTPS://git.acme.io/shop/web.git", True),
        ("git.acme.io/shop", "https://git.acme.io/shopping", False),
        ("", "https://git.acme.io/shop", True),
    ],
)
def test_prefix_with_a_scheme_is_for_that_scheme_alone(prefix: str, remote: str, *, is_below: bool) -> None:
    assert is_prefix(prefix, remote) is is_below
