"""Every sentence of the pages that promise something has a test beside it: `promises.yaml` is the table."""

import ast
import re
from functools import cache

import pytest

from tests.support.promises import PAGES, PROSE, ROOT, read_table, sentences


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def missing(tests: set[str]) -> list[str]:
    """Return the tests, as `path::name`, that do not exist."""
    return sorted(test for test in tests if test.partition("::")[2] not in functions(test.partition("::")[0]))


@pytest.mark.parametrize("page", PAGES)
def test_every_sentence_has_a_test_or_promises_nothing(page: str) -> None:
    rows = read_table()[page]
    named = {f"tests/{test}" for tests in rows.values() for test in tests} - {f"tests/{PROSE}"}

    assert list(rows) == list(dict.fromkeys(sentences(page))), "run `make docs`"
    assert [sentence for sentence, tests in rows.items() if not tests] == [], "promises without a test"
    assert missing(named) == []


def test_every_threat_names_tests() -> None:
    lines = re.findall(r"(?m)^\| \d+ \| .*$", (ROOT / "docs/security.md").read_text(encoding="utf-8"))
    named = [
        {f"{path}::{name}" for path, name in re.findall(r"`(tests/\S+\.py)::(\w+)`", line)} for line in lines
    ]

    assert [line.split(" | ")[0] for line in lines] == [f"| {number}" for number in range(1, 31)]
    assert all(named)
    assert missing({test for tests in named for test in tests}) == []
