"""Worlds, tests and files that the documentation names are there."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md"), *(PROJECT / "fixtures").glob("*.md")]
)
WORLDS = {world.name for world in (PROJECT / "fixtures/worlds").iterdir()}


def names_of_tests(folder: Path) -> set[str]:
    """Return the names of all tests below a folder."""
    files = folder.rglob("test_*.py")
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


TESTS = names_of_tests(PROJECT / "tests")


def missing(page: str, worlds_by_name: bool = True) -> list[str]:
    """Return the worlds, tests and files that a page names in code spans, and that are not there.

    Vectors have names of the form of worlds, so not every page names worlds without their folder.
    """
    spans = re.findall(r"`([^`\n]+)`", page)
    pattern = r"(?:^|fixtures/worlds/)" if worlds_by_name else "fixtures/worlds/"
    worlds = [s for span in spans for s in re.findall(rf"{pattern}(\d\d-[a-z0-9-]+)$", span)]
    paths = [s for s in spans if re.fullmatch(r"(?:tests|fixtures|docs/schemas)/[\w./-]+(?:::\w+)?", s)]
    names = [s for s in spans if re.fullmatch(r"test_\w+", s)] + [p.partition("::")[2] for p in paths]
    return [
        *(world for world in worlds if world not in WORLDS),
        *(path for path in paths if not (PROJECT / path.partition("::")[0]).exists()),
        *(name for name in names if name and name not in TESTS),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_names_only_worlds_and_tests_that_exist(page: Path) -> None:
    assert missing(page.read_text(), page.name == "dependencies.md") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("| `99-no-world` |", ["99-no-world"]),
        ("`fixtures/worlds/99-no-world`", ["99-no-world", "fixtures/worlds/99-no-world"]),
        ("`test_no_such_thing`", ["test_no_such_thing"]),
        ("`tests/unit/test_documented_names.py::test_no`", ["test_no"]),
        ("`94-every-parent-named`", []),
    ],
)
def test_name_of_nothing_is_found(text: str, names: list[str]) -> None:
    assert missing(text) == names


def test_every_report_that_cannot_happen_has_a_world_with_a_story() -> None:
    page = (PROJECT / "docs/contributing/dependencies.md").read_text()
    rows = page.partition("## What cannot happen")[2].partition("\n## ")[0]
    reports = [row for row in rows.splitlines() if "https://" in row]
    worlds = {row: re.findall(r"`(\d\d-[a-z-]+)`", row) for row in reports}

    assert reports
    assert [row for row in reports if not worlds[row]] == []
    stories = [
        PROJECT / f"fixtures/worlds/{world}/expected/story.txt" for own in worlds.values() for world in own
    ]
    assert [story for story in stories if not story.is_file()] == []
