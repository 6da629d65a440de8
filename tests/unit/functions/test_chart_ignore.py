"""Rules of `.helmignore` as Helm reads them: what is part of a chart's directory."""

from typing import NamedTuple

import pytest

from reconciler.functions.charts import IgnoreError, kept_files


class Case(NamedTuple):
    """Rules, and the paths that stay and go."""

    reason: str
    rules: str
    stay: tuple[str, ...]
    go: tuple[str, ...]


CASES = [
    Case("hidden templates", "", ("templates/a/.x", ".x"), ("templates/._a.yaml", "templates/.git/x")),
    Case("a name at any depth", "*.bak", ("a.bak.txt",), ("a.bak", "b/a.bak")),
    Case("a directory", " local/\r", ("b/local", "local.txt"), ("local/x", "b/local/x/y")),
    Case("a path from the root", "/a.txt\nb/*.txt", ("b/a/c.txt", "c/a.txt"), ("a.txt", "b/x.txt")),
    Case("comments and blank lines", "# a\n\n  b\n", ("# a", "a"), ("b",)),
    Case("letters", "[a-c^]?\n[^x]z\n\\*", ("d1", "xz", "q*"), ("a1", "^1", "yz", "*")),
    Case("all that a pattern with ! does not match", "!*.md", ("a.md",), ("a.txt", "b/a.md")),
    Case("directories that ! does not match, and all files", "!b/", (), ("b/x", "a/x", "x")),
    Case("a byte order mark", "\ufeffa", ("b",), ("a",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_what_is_part_of_a_chart(case: Case) -> None:
    assert kept_files((*case.go, *case.stay), case.rules.encode()) == [*case.stay]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("a\nb/**", ":2: Helm knows no `**`"),
        *((rule, f":1: {rule} is no pattern") for rule in ("[a", "[]", "x\\", "[-a]")),
        ("a\n" * 2000, " has too many patterns, or too long ones"),
    ],
)
def test_what_helm_refuses(rules: str, why: str) -> None:
    with pytest.raises(IgnoreError) as caught:
        kept_files(["a"], rules.encode())

    assert str(caught.value) == why
