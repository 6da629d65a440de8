"""What the documentation site is made of: its contents, and a picture for each diagram."""

import hashlib
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts]


def test_every_diagram_has_its_picture_and_every_picture_its_diagram() -> None:
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    ]

    wanted = {f"{hashlib.sha256(block.encode()).hexdigest()[:12]}.svg" for block in blocks}

    assert {path.name for path in (DOCS / "pictures").glob("*.svg")} == wanted, "run `make docs-pictures`"
    assert len(wanted) == len(blocks)


def test_every_diagram_is_described_for_those_who_cannot_see_it() -> None:
    described = {
        f"{page.name}: {block[:60]}": re.findall(r"^ *(accTitle|accDescr): \S", block, re.MULTILINE)
        for page in PAGES
        for block in re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    }

    assert all(found == ["accTitle", "accDescr"] for found in described.values()), described


def test_every_picture_of_a_page_is_there_and_says_what_it_shows() -> None:
    alone, tag = r"!\[([^\]]*)\]\(([^)]+\.png)\)", r'<img alt="([^"]*)" src="([^"]+\.png)"'
    shown = [
        (page, alt, page.parent / source)
        for page in (*PAGES, DOCS.parent / "README.md")
        for form in (alone, tag)
        for alt, source in re.findall(form, page.read_text())
    ]

    assert {"pull-request.png", "check-comment.png", "dashboard.png"} <= {path.name for _, _, path in shown}
    assert [(page.name, path.name) for page, _, path in shown if not path.is_file()] == []
    assert [(page.name, path.name) for page, alt, path in shown if len(alt.split()) < 5] == []


def test_every_page_is_in_the_contents() -> None:
    listed = {
        page.resolve().relative_to(DOCS).as_posix()
        for index in DOCS.rglob("index.md")
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", index.read_text(), re.MULTILINE | re.DOTALL)
        for name in tree.splitlines()
        if name and not name.startswith(":")
        for page in index.parent.glob(f"{name}.md")
    }

    assert {page.relative_to(DOCS).as_posix() for page in PAGES} - {"index.md"} == listed
