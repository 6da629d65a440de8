"""What a reader can rely on everywhere in the house."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support import architecture

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(p for p in (ROOT / "reconciler").rglob("*.py"))
LINES = 600


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_short_enough_to_hold_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


def test_the_architecture_names_every_module_as_it_is() -> None:
    text = architecture.DOCUMENT.read_text()

    assert text == architecture.document(text), "run `make docs`"


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
