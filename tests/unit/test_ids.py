"""Addresses of repositories in files that are shared."""

import pytest

from reconciler.names.ids import shareable_address


@pytest.mark.parametrize(
    ("registered", "remote", "shown"),
    [
        ("../catalog.git", "https://example.com/org/catalog.git", "https://example.com/org/catalog.git"),
        ("../catalog.git", "https://me:pw@example.com/catalog.git", "https://example.com/catalog.git"),
        ("../catalog.git", "git@example.com:org/catalog.git", "git@example.com:org/catalog.git"),
        ("../catalog.git", "/srv/clones/catalog.git", "../catalog.git"),
        ("../catalog.git", "file:///srv/clones/catalog.git", "../catalog.git"),
        ("https://example.com/a", "https://mirror.example.com/a", "https://example.com/a"),
        ("/srv/a.git", "/srv/a.git", "/srv/a.git"),
        ("", "/srv/a.git", "/srv/a.git"),
    ],
)
def test_a_shared_address_is_absolute_unless_it_is_of_this_machine(
    registered: str, remote: str, shown: str
) -> None:
    assert shareable_address(registered, remote) == shown
