"""The sentences of the pages that promise something, and the tests that stand beside each.

`tests/docs/promises.yaml` is the table: of each page the first words of every sentence and row, in their
order, and tests, or `prose` for what promises nothing of its own. `make docs` writes it anew: it keeps what
is there, follows the order of the pages, and leaves a new sentence without a test, which fails the build.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/docs/promises.yaml"
PAGES = ("docs/guarantees.md", "docs/security.md", "docs/rollouts.md")
PROSE = "prose"
WORDS = 12
_GENERATED = re.compile(r"<!-- faults: begin -->.*<!-- faults: end -->", re.DOTALL)
"""The table of faults is made of a registry that names a test for every row."""
_THREAT = re.compile(r"\d+ \| ")
"""A row of the table of threats names its own tests (`tests/docs/test_promises.py`)."""
_END = re.compile(r"(?<=[.!?])[)*\"”]*\s+(?=[\[*\"“(`]*[A-Z0-9]|`)")


def sentences(page: str) -> Iterator[str]:
    """Yield the first words of every sentence and every row of a table of a page."""
    text = _GENERATED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells: list[str] = []
    for before, token in zip(["", *(token.type for token in tokens)], tokens, strict=False):
        if token.type == "inline" and before in {"td_open", "th_open"}:
            cells.append(token.content)
        elif token.type == "inline" and before != "heading_open":
            yield from (_head(each) for each in _END.split(token.content))
        elif token.type == "tr_close":
            row, cells = " | ".join(cells), []
            if before != "th_close" and not _THREAT.match(row):
                yield _head(row)


def _head(sentence: str) -> str:
    return " ".join(sentence.split()[:WORDS])


def read_table() -> dict[str, dict[str, list[str]]]:
    """Return the tests of each sentence of each page: `prose` where it promises nothing."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {page: {head: tests.split() for head, tests in rows.items()} for page, rows in table.items()}


def write_table() -> None:
    """Follow the pages: keep the tests of sentences that are still there."""
    kept = read_table()
    lines = []
    for page in PAGES:
        lines.append(f"{page}:")
        for head in sentences(page):
            tests = " ".join(kept.get(page, {}).get(head, ())) or '""'
            lines.append(f"  {json.dumps(head, ensure_ascii=False)}: {tests}")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_table()
