"""Identities in texts, and addresses of repositories in files that are shared."""

import pytest

from reconciler.names.ids import GroupKind, NamedObject, ObjectKey, RolloutKey, shareable_address


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
def test_a_shared_address_is_absolute_unless_it_is_of_this_machine(registered, remote, shown) -> None:
    assert shareable_address(registered, remote) == shown


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        (RolloutKey("default", "fleet"), "default/fleet"),
        (RolloutKey("default", "fleet", "web"), "default/fleet/web"),
        (ObjectKey("apps", "Deployment", "shop", "web"), "Deployment.apps shop/web"),
        (ObjectKey("", "Node", "", "n1"), "Node n1"),
    ],
)
def test_identity_is_written_without_what_it_has_not(identity: object, text: str) -> None:
    assert str(identity) == text


@pytest.mark.parametrize("text", ["Node n1", "Repository default/edge"])
def test_object_of_a_record_is_read_as_it_was_written(text: str) -> None:
    found = NamedObject.parse(text)

    assert str(found) == text
    assert (found is not None and found.name) == text.rpartition(" ")[2].rpartition("/")[2]


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Endpoints", "endpoints"),
        ("Gateway", "gateways"),
        ("NetworkPolicy", "networkpolicies"),
        ("Ingress", "ingresses"),
        ("Pod", "pods"),
        ("", ""),
    ],
)
def test_plural_of_a_kind_is_that_which_kubernetes_guesses(kind: str, plural: str) -> None:
    assert GroupKind("", kind).plural == plural
