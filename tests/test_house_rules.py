"""Conventions that hold in every file of the project."""

import configparser
import itertools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(p for p in (ROOT / "reconciler").rglob("*.py"))
LINES = 600


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_short_enough_to_hold_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


def test_architecture_describes_every_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    folders = {str(path.parent.relative_to(ROOT / "reconciler")) for path in MODULES} - {"."}
    sections = re.findall(r"^### `(\S+)`\n\n(?=[A-Z])", text, re.MULTILINE)

    assert sorted(sections) == sorted(folders)


def test_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()

    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (ROOT / "reconciler" / name).is_file(), name


def test_arrows_of_the_architecture_point_down_the_layers() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    lines = contracts["importlinter:contract:layers"]["layers"].strip().splitlines()
    height = {name.strip(): -row for row, line in enumerate(lines) for name in line.split(":")}
    arrows = re.findall(r"^    ([\w &]+) --> ([\w &]+)$", text.partition("flowchart TB")[2], re.MULTILINE)

    assert arrows
    for above, below in arrows:
        for first, second in itertools.product(above.split(" & "), below.split(" & ")):
            assert height[first] > height[second], f"{first} --> {second}"


def test_every_adr_fits_one_page() -> None:
    for path in (ROOT / "docs/adr").glob("*.md"):
        text = path.read_text()
        assert len(text.split()) <= 450, path.name
        assert re.match(r"# \d+\. ", text), path.name


def test_no_absolute_path_of_a_machine_is_committed() -> None:
    for path in [*MODULES, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        assert "/work/" not in path.read_text(), path
        assert "/root/" not in path.read_text(), path


def test_every_kept_mutant_applies_and_names_tests_that_exist() -> None:
    for patch in sorted((ROOT / "tests/mutants").glob("*.patch")):
        command = ["git", "apply", "--check", "--whitespace=nowarn", str(patch)]
        checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{patch.name}: {checked.stderr}"
        names = re.findall(r"^# test: ([^\s:]+)(?:::(?:\w+::)?(\w+))?", patch.read_text(), re.MULTILINE)
        assert names, f"{patch.name} names no test"
        for path, function in names:
            text = (ROOT / path).read_text()
            assert f"def {function}" in text, f"{patch.name}: {path} has no {function or 'test'}"
