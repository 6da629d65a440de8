"""The table of requirements is whole, and every test and world that it names exists."""

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"\| R(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
NOT_HERE = {16, 27, 42, 44, 69, 111}
ROWS = [
    found.groups()
    for found in map(ROW.fullmatch, (PROJECT / "docs/contributing/requirements.md").read_text().splitlines())
    if found
]
FOLDERS = (PROJECT / "reconciler/dependencies", PROJECT / "reconciler", PROJECT)


def test_every_requirement_has_its_row() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 127))


def test_every_row_says_where_and_names_a_test_that_exists() -> None:
    for row in ROWS:
        number, what, where, test = int(row[0]), row[1].strip(), row[2].strip(), row[3].strip()

        assert what, row
        assert where, row
        if test == "does not apply":
            assert number in NOT_HERE, row
        else:
            path, _, name = test.strip("`").partition("::")
            place = PROJECT / path
            if name:
                assert re.search(rf"^def {name}\(", place.read_text(), re.MULTILINE), test
            else:
                assert (place / "story").exists(), test


def test_what_has_no_place_in_git_is_exactly_what_was_agreed() -> None:
    assert {int(number) for number, _, _, test in ROWS if test.strip() == "does not apply"} == NOT_HERE


def test_the_modules_that_the_rows_name_exist() -> None:
    names = {
        name for row in ROWS for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*)(?:\.[a-zA-Z_]+)?`", row[2])
    }

    found = {
        name
        for name in names
        if any((folder / f"{name}.py").exists() or (folder / name).is_dir() for folder in FOLDERS)
    }

    assert names
    assert names - found == set()
