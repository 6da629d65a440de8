"""Every page with commands does what it says, run by a new user in an empty home."""

import os
import re
from pathlib import Path

import pytest

from tests.support.guides import run_guide
from tests.support.pages import corrected, matches, read_steps, run_page
from tests.support.samples import sample

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDES = [page for page in sorted((DOCS / "guides").glob("*.md")) if page.name != "index.md"]
PAGES = [DOCS.parent / "README.md", DOCS / "tutorial.md", DOCS / "merging.md", *sample(GUIDES, 2)]
"""Pages that run: `make docs-test` runs all of them, and so does CI where one changed."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, update_golden: bool) -> None:
    wrong = run_guide(page, tmp_path / "machine", os.environ["PATH"])

    if update_golden and wrong:
        page.write_text(corrected(page.read_text(encoding="utf-8"), wrong), encoding="utf-8")
    assert not wrong, "\n".join(map(str, wrong))
    assert left_behind(tmp_path / "machine/ada") == []


def left_behind(home: Path) -> list[str]:
    """Return what `git add .` would take by mistake: a repository in a working copy, a stray HTML page."""
    copies = [git.parent for git in home.rglob(".git")]
    nested = [str(c) for c in copies for other in copies if c != other and c.is_relative_to(other)]
    return nested + [str(page) for copy in copies for page in copy.glob("*.html")]


def test_a_page_that_leaves_things_in_a_working_copy_is_found(tmp_path: Path) -> None:
    for name in ("control", "control/tour/control"):
        (tmp_path / name / ".git").mkdir(parents=True)
    (tmp_path / "control/plan.html").touch()

    assert left_behind(tmp_path) == [
        str(tmp_path / "control/tour/control"),
        str(tmp_path / "control/plan.html"),
    ]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_has_its_parts_and_runs_what_it_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    parts = re.findall(r"^## (You need|Undo|Next)$", text, re.MULTILINE)

    assert parts == ["You need", "Undo", "Next"]
    assert not re.findall(r"^```(?:sh|bash|shell)$", text, re.MULTILINE), "commands stand in blocks `console`"


PAGE = """\
Words, and `inline`.

```console
$ echo one; echo 0123456789abcdef
one
fedcba9876543210
$ echo two \\
> three
two three
```

Write a file:

```console
$ mkdir sub
```

<!-- file: sub/a.txt -->
```text
first
```

<!-- append: sub/a.txt -->
```text
second
```

```console
$ cd sub && cat a.txt
first
...
```

<!-- exits: 3 -->
```console
$ (exit 3)
```

<!-- not run: it would be a pity -->
```console
$ rm -rf everything
```

<!-- runs: echo quietly > done.txt -->

<!-- prints: cat done.txt -->
```text
quietly
```

```yaml
only: read
```
"""


def test_commands_files_codes_and_outputs_of_a_page_are_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")

    assert run_page(page, tmp_path / "right", os.environ["PATH"]) == []


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("two three\n", "two tree\n", "echo two \\\nthree"),
        ("two three\n", "", "echo two \\\nthree"),
        ("exits: 3", "exits: 4", "(exit 3)"),
        ("first\n...", "...\nfirst", "cd sub && cat a.txt"),
    ],
)
def test_a_page_that_says_something_else_is_found(old: str, new: str, at: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(old, new), encoding="utf-8")

    wrong = run_page(page, tmp_path / "machine", os.environ["PATH"])

    assert [one.step.script for one in wrong] == [at]


def test_a_file_in_a_directory_that_a_page_never_makes_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- file: sub/a.txt -->\n```text\nfirst\n```\n", encoding="utf-8")

    (wrong,) = run_page(page, tmp_path / "machine", os.environ["PATH"])

    assert wrong.code == 1
    assert "sub/a.txt" in wrong.printed[0]


def test_what_commands_printed_can_be_written_into_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("two three\n", "old\nlines\n"), encoding="utf-8")

    wrong = run_page(page, tmp_path / "machine", os.environ["PATH"])

    assert corrected(page.read_text(encoding="utf-8"), wrong) == PAGE


def test_an_elision_stands_for_any_lines() -> None:
    assert matches(["a", "...", "d"], ["a", "b", "c", "d"])
    assert not matches(["a", "...", "d"], ["a", "b", "c"])


def test_a_block_without_end_and_output_without_a_command_are_refused() -> None:
    with pytest.raises(ValueError, match="line 1: the block does not end"):
        read_steps("```console\n$ true\n")
    with pytest.raises(ValueError, match="line 2: output without a command"):
        read_steps("```console\nhello\n```\n")
