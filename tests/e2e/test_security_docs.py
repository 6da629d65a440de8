"""docs/security.md: every threat names tests, and every named test is there."""

import ast
import re
from pathlib import Path


def test_every_threat_names_tests_that_exist(project_root: Path) -> None:
    text = (project_root / "docs/security.md").read_text()
    rows = re.findall(r"(?m)^\| (\d+) \| .*$", text)
    lines = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]

    named = {line.split("|")[1].strip(): re.findall(r"`(tests/\S+\.py)::(\w+)`", line) for line in lines}

    assert rows == [str(number) for number in range(1, 27)]
    assert [number for number, tests in named.items() if not tests] == []
    for path, name in {test for tests in named.values() for test in tests}:
        defined = {node.name for node in ast.walk(ast.parse((project_root / path).read_text()))
                   if isinstance(node, ast.FunctionDef)}  # fmt: skip
        assert name in defined, f"{path}::{name}"
