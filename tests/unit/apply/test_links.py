"""Links in the text of pull requests: the pages of each forge, and none where they are not known."""

import pytest

from reconciler.apply.links import find_web
from reconciler.policy import ForgeKind, ForgeRule

RULES = (
    ForgeRule("https://git.example.com:3000/acme", ForgeKind.GITEA),
    ForgeRule("https://git.example.com/acme", ForgeKind.GITLAB),
    ForgeRule("https://git.example.com/local", ForgeKind.LOCAL),
    ForgeRule("https://ghe.example.com/", ForgeKind.GITHUB),
    ForgeRule("ssh://git@git.example.com/acme", ForgeKind.GITLAB),
)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/acme/web.git", "https://github.com/acme/web"),
        ("https://token@github.com/acme/web", "https://github.com/acme/web"),
        ("git@github.com:acme/web.git", "https://github.com/acme/web"),
        ("ssh://git@codeberg.org/acme/web.git", "https://codeberg.org/acme/web"),
        ("https://git.example.com/acme/a/b.git", "https://git.example.com/acme/a/b"),
        ("https://git.example.com:3000/acme/web/", "https://git.example.com:3000/acme/web"),
        ("ssh://git@git.example.com/acme/web", ""),
        ("https://git.example.com/local/web", ""),
        ("https://other.example.com/acme/web", ""),
        ("/srv/git/web.git", ""),
        ("https://ghe.example.com/acme/we(b", ""),
    ],
)
def test_pages_are_known_by_the_rule_or_the_public_host(remote: str, address: str) -> None:
    web = find_web(remote, RULES)

    assert (web.address if web else "") == address


@pytest.mark.parametrize(
    ("remote", "compare", "directory", "line"),
    [
        (
            "https://ghe.example.com/acme/web",
            "/compare/a...b",
            "/tree/c/x%20y/web",
            "/blob/c/m%5B1%5D.yaml#L7",
        ),
        (
            "https://git.example.com/acme/web",
            "/-/compare/a...b",
            "/-/tree/c/x%20y/web",
            "/-/blob/c/m%5B1%5D.yaml#L7",
        ),
        (
            "https://git.example.com:3000/acme/web",
            "/compare/a...b",
            "/src/commit/c/x%20y/web",
            "/src/commit/c/m%5B1%5D.yaml#L7",
        ),
    ],
)
def test_addresses_are_those_of_the_forge(remote: str, compare: str, directory: str, line: str) -> None:
    web = find_web(remote, RULES)

    assert web is not None
    assert web.compare("a", "b") == remote + compare
    assert web.directory("c", "x y/web") == remote + directory
    assert web.line("c", "m[1].yaml", 7) == remote + line
    assert web.line("c", "m", 0) == web.line("c", "m", 7).removesuffix("#L7")
