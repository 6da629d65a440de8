"""What comes closest to a misspelt name."""

import pytest

from reconciler.base.suggestions import close_names, suggest

PACKAGES = ["edge-1/web", "edge-1/db", "edge-2/web", "team/Monitoring"]


@pytest.mark.parametrize(
    ("word", "close"),
    [
        ("edge-1/wbe", ["edge-1/web", "edge-1/db", "edge-2/web"]),
        ("team/monitoring", ["team/Monitoring"]),
        ("web", ["edge-1/web", "edge-2/web"]),
        ("wbe", ["edge-1/web", "edge-2/web"]),
        ("monitorign", ["team/Monitoring"]),
        ("zzz", []),
        ("", []),
    ],
)
def test_close_names_are_those_that_may_be_meant(word: str, close: list[str]) -> None:
    assert close_names(word, PACKAGES) == close


def test_an_ending_that_all_share_makes_no_name_close() -> None:
    names = ["blog.io", "db.io", "shop.io"]

    assert close_names("nobody.io", names) == []
    assert close_names("shpo.io", names) == ["shop.io"]
    assert close_names("bd.io", names) == ["db.io"]


def test_an_ending_of_several_parts_makes_no_name_close() -> None:
    names = ["blog.acme.io", "cache.acme.io", "postgres.acme.io", "storage.acme.io"]

    assert close_names("postgre.acme.io", names) == ["postgres.acme.io"]
    assert close_names("storge.acme.io", names) == ["storage.acme.io"]
    assert close_names("nobody.acme.io", names) == []


def test_a_package_is_named_once_with_its_ecosystem_only_if_asked_so() -> None:
    names = ["carvel:db.io", "carvel:shop.io", "db.io"]

    assert close_names("bd.io", names) == ["db.io"]
    assert close_names("carvel:bd.io", names) == ["carvel:db.io"]
    both = ["carvel:postgres.io", "postgres.io"]
    assert close_names("carvel:postgres.ioo", both) == both
    assert close_names("postgres.ioo", both) == ["postgres.io"]


def test_a_start_is_enough_of_a_name() -> None:
    assert close_names("label", ["labelSelector", "name"]) == ["labelSelector"]


def test_only_so_many_are_named() -> None:
    assert close_names("web", [f"edge-{n}/web" for n in range(9)], most=2) == ["edge-0/web", "edge-1/web"]


def test_the_hint_names_all_if_none_is_close() -> None:
    assert suggest("zzz", ["b", "a"]) == "Known here: a, b."
    assert suggest("zzz", "abcdefghijklmnop") == "Known here: a, b, c, d, e, f, g, h, i, j, k, l, …."
    assert suggest("zzz", ["a"], otherwise="Look there.") == "Look there."
    assert suggest("zzz", []) == ""
