"""Where addresses lead, for checks that must not miss a spelling, and in which way they are read."""

from pathlib import Path

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.git.urls import find_place, parse_remote, reading_of

REMOTE = "https://git.example.com/acme/bp"
SAME = [
    (REMOTE, "https://git.example.com/acme/bp.git"),
    (REMOTE, "https://git.example.com/acme/bp/"),
    (REMOTE, "https://git.example.com//acme//bp.git/"),
    (REMOTE, "HTTPS://GIT.Example.COM/acme/bp"),
    (REMOTE, "https://git.example.com./acme/bp"),
    (REMOTE, "https://git.example.com/Acme/BP.GIT"),
    (REMOTE, "https://git.example.com:443/acme/bp"),
    (REMOTE, "https://git.example.com:8443/acme/bp"),
    (REMOTE, "https://me:secret@git.example.com/acme/bp"),
    (REMOTE, "https://me@x@git.example.com/acme/bp"),
    (REMOTE, "http://git.example.com/acme/bp"),
    (REMOTE, "http://git.example.com:8080/acme/bp"),
    (REMOTE, "ssh://git@git.example.com/acme/bp.git"),
    (REMOTE, "ssh://git@git.example.com:2222/acme/bp.git"),
    (REMOTE, "git@git.example.com:acme/bp.git"),
    (REMOTE, "git.example.com:/acme/bp"),
    (REMOTE, "git.example.com:~/acme/bp"),
    (REMOTE, "https://git.example.com/acme/%62p"),
    (REMOTE, "https://git.example.com/acme%2Fbp"),
    (REMOTE, "https://git.example.com/x/../acme/./bp"),
    (REMOTE, "git@git.example.com:x/../acme/bp"),
    (REMOTE, "https://git.example.com/acme/bp?x=1"),
    (REMOTE, "https://git.example.com/acme/bp#x"),
    (REMOTE, "  https://git.example.com/acme/bp "),
    ("git@git.example.com:acme", REMOTE),
    ("ssh://git.example.com:2222/acme", REMOTE),
    ("https://git.example.com", REMOTE),
    ("https://", REMOTE),
    ("https://bücher.example/bp", "ssh://xn--bcher-kva.example/bp"),
    ("https://git.example.com/caf\u00e9", "https://git.example.com/cafe\u0301"),
    ("https://git.example.com/acme.git", REMOTE),
    ("https://[::1]:8443/bp", "ssh://git@[::1]/bp"),
    ("git@host:123/bp", "ssh://host/123/bp"),
    ("/srv/bp.git", "file:///srv/bp.git"),
    ("file://localhost/srv/bp", "/srv//x/../bp.git/"),
    ("FILE:///srv/b%70", "/srv/bp"),
    ("/srv", "/srv/bp.git/.git"),
    ("/", "/srv/bp"),
]
OTHER = [
    (REMOTE, "https://git.example.com/acme/bp-evil"),
    (REMOTE, "https://git.example.com/acme"),
    (REMOTE, "https://git.example.com.evil/acme/bp"),
    (REMOTE, "https://evil@x/git.example.com/acme/bp"),
    (REMOTE, "/git.example.com/acme/bp"),
    ("https://git.example.com:8443/acme", "https://git.example.com:9443/acme/bp"),
    ("/srv/bp", "https://srv/bp"),
    ("/srv/bp", "/srv/bp2"),
    ("https://", "/srv/bp"),
]


@pytest.mark.parametrize(("prefix", "address"), SAME)
def test_check_finds_a_place_by_any_spelling(prefix: str, address: str) -> None:
    assert find_place(prefix).covers(find_place(address))


@pytest.mark.parametrize(("prefix", "address"), OTHER)
def test_check_does_not_mistake_another_place(prefix: str, address: str) -> None:
    assert not find_place(prefix).covers(find_place(address))


def test_check_follows_links_to_a_repository(tmp_path: Path) -> None:
    (tmp_path / "real/bp.git").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "bp").symlink_to("link/bp.git")

    places = [find_place(str(tmp_path / name)) for name in ("real/bp.git", "link/bp.git", "bp")]

    assert all(one.covers(other) for one in places for other in places)


@pytest.mark.parametrize(
    "text", ["", "https://", "https://[", "ssh://:@:/", "::", "a:", "https://\ud800/x", "%"]
)
def test_place_of_any_text(text: str) -> None:
    assert find_place(text).covers(find_place(text))


@pytest.mark.parametrize("address", ["git@host:acme/../evil", "host:..", "git@host:acme/%2e%2e/evil"])
def test_short_address_of_ssh_that_leaves_its_prefix_is_refused(address: str) -> None:
    with pytest.raises(UnavailableError, match="is not usable"):
        parse_remote(address)


@pytest.mark.parametrize(
    ("address", "way"),
    [
        ("/srv/bp", ("file", "")),
        ("file:///srv/bp", ("file", "")),
        ("HTTPS://h/bp", ("https", "")),
        ("https://me:pw@h/b@p", ("https", "me:pw")),
        ("ssh://git@h:22/bp", ("ssh", "git")),
        ("git@h:b/p@x", ("ssh", "git")),
        ("host:bp", ("ssh", "")),
    ],
)
def test_way_of_reading(address: str, way: tuple[str, str]) -> None:
    assert reading_of(address) == way
