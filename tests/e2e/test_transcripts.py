"""Commands with all that they print, as reviewed pages of tests/goldens/commands (--update-golden)."""

import os
from pathlib import Path

import pytest

from tests.support.guides import run_guide
from tests.support.pages import corrected

PAGES = sorted((Path(__file__).resolve().parents[1] / "goldens/commands").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_their_page_shows(page: Path, tmp_path: Path, *, update_golden: bool) -> None:
    wrong = run_guide(page, tmp_path / "machine", os.environ["PATH"])

    if update_golden and wrong:
        page.write_text(corrected(page.read_text(encoding="utf-8"), wrong), encoding="utf-8")
    assert not wrong, "\n".join(map(str, wrong))
