"""User documentation is in plain words, without numbers of our design."""

import re
from pathlib import Path

import pytest

from tests.docs.prose import findings

ROOT = Path(__file__).resolve().parents[2]
FOR_CONTRIBUTORS = {"architecture.md", "design.md"}
"""Pages that explain the design by its own numbers; so do the folders `adr` and `contributing`."""
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.name not in FOR_CONTRIBUTORS and not {"adr", "contributing", "_build"} & set(page.parts)
    ),
]


def test_pages_are_in_plain_words() -> None:
    texts = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}

    assert [f"{page}:{finding}" for page, text in texts.items() for finding in findings(text)] == []


USERS_WORDS = 54_979
"""The hand-written words of the user's menu. It only falls: a new page takes its words from another one."""


def hand_written(text: str) -> str:
    return re.sub(r"^<!-- generated: .*?^<!-- end -->$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_the_menu_of_users_has_no_more_words_than_before() -> None:
    contributors = re.findall(
        r"^\.\./([\w-]+)$", (ROOT / "docs/contributing/index.md").read_text("utf-8"), re.MULTILINE
    )
    pages = [
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not {"adr", "contributing", "reference", "_build"} & set(page.parts)
        and page.stem not in contributors
    ]

    assert sum(len(hand_written(page.read_text("utf-8")).split()) for page in pages) <= USERS_WORDS


SHORT = [*PAGES, ROOT / "docs/architecture.md"]
LONGEST_PARAGRAPH = 80


def test_pages_have_short_paragraphs() -> None:
    def paragraphs(page: Path) -> list[str]:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        return [line for line in prose.splitlines() if not line.startswith(("|", "!["))]

    lines = [(page.relative_to(ROOT).as_posix(), line) for page in SHORT for line in paragraphs(page)]
    assert [(page, line[:60]) for page, line in lines if len(line.split()) > LONGEST_PARAGRAPH] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("A package is kept (law 4).", "1: law 4 is a number of ours"),
        ("\n\n- as D18 says", "3: D18 is a number of ours"),
        ("| a | b |\n|---|---|\n| c | via `x` |", "3: via: write by, or through"),
        ("Utilise it.", "1: Utilise: write use"),
    ],
)
def test_a_planted_fault_is_found(text: str, wrong: str) -> None:
    (only,) = findings(text)

    assert only.startswith(wrong)


def test_code_is_no_prose() -> None:
    assert list(findings("`D18 via law 4`\n\n```text\nD18 via law 4\n```\n")) == []
