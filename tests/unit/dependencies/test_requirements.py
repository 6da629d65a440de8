"""The table of requirements is whole, and every test that it names exists."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"\| R(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
NOT_HERE = {16, 27, 42, 44, 46, 69, 111}
NEXT = {
    *range(2, 6),
    *range(10, 18),
    *range(22, 41),
    *range(56, 61),
    67,
    71,
    72,
    *range(112, 122),
} - NOT_HERE
ROWS = [
    found.groups()
    for found in map(ROW.fullmatch, (PROJECT / "docs/requirements.md").read_text().splitlines())
    if found
]


def test_every_requirement_has_its_row() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 127))


@pytest.mark.parametrize("row", ROWS, ids=[f"R{row[0]}" for row in ROWS])
def test_a_row_says_where_and_names_a_test_that_exists(row: tuple[str, str, str, str]) -> None:
    number, what, where, test = int(row[0]), row[1].strip(), row[2].strip(), row[3].strip()

    assert what
    assert where
    if test == "does not apply":
        assert number in NOT_HERE
    elif test == "the next issue":
        assert number in NEXT
    else:
        path, _, name = test.strip("`").partition("::")
        assert re.search(rf"^def {name}\(", (PROJECT / path).read_text(), re.MULTILINE), test
