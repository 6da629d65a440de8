"""A section that promises something ends with `<!-- holds: NAME -->`: `promises.yaml` has its tests."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMISES: dict[str, list[str]] = yaml.safe_load((ROOT / "tests/docs/promises.yaml").read_text())
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
SHOWN = ("guarantees", "package-variant-sets", "rollouts", "security")
"""Pages that promise something in every larger section."""


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def missing(tests: set[str]) -> list[str]:
    """Return the tests, as `path::name`, that do not exist."""
    return sorted(test for test in tests if test.partition("::")[2] not in functions(test.partition("::")[0]))


def named(text: str) -> list[str]:
    return re.findall(r"^<!-- holds: ([\w-]+) -->$", text, re.MULTILINE)


def test_every_promise_of_a_page_has_tests_and_every_row_its_place() -> None:
    places = Counter(name for page in PAGES for name in named(page.read_text(encoding="utf-8")))

    assert places == dict.fromkeys(PROMISES, 1)
    assert [name for name, tests in PROMISES.items() if not tests] == []
    assert missing({f"tests/{test}" for tests in PROMISES.values() for test in tests}) == []


def test_pages_that_promise_something_have_tests() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "docs"}

    assert [name for name in SHOWN if not named(pages[name])] == []


def test_every_threat_names_tests() -> None:
    lines = re.findall(r"(?m)^\| \d+ \| .*$", (ROOT / "docs/contributing/threats.md").read_text("utf-8"))
    rows = [
        {f"{path}::{name}" for path, name in re.findall(r"`(tests/\S+\.py)::(\w+)`", line)} for line in lines
    ]

    assert [line.split(" | ")[0] for line in lines] == [f"| {number}" for number in range(1, 31)]
    assert all(rows)
    assert missing({test for tests in rows for test in tests}) == []
