"""Pages say what to write for whoever hosts a copy, and how to install before there is a release."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACEHOLDER = re.compile(r"(?i)your-org/reconciler")
HOST = "host-your-copy.md"
PAGES = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in p.parts)]
WITH_PLACEHOLDER = [page for page in PAGES if PLACEHOLDER.search(page.read_text()) and page.name != HOST]
INSTALL = re.compile(r"(?:pipx|pip|uv tool) install [^`\n]*")
NAME = "package-reconciler"


@pytest.mark.parametrize("page", WITH_PLACEHOLDER, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_with_a_placeholder_leads_to_what_replaces_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    needs = re.search(r"^## You need$(.*?)^## ", text, re.MULTILINE | re.DOTALL)

    assert re.search(rf"{re.escape(HOST)}[)#]", needs[1] if needs else text)


def test_the_page_to_host_a_copy_explains_every_placeholder() -> None:
    spelled = r"(?i)(?:https://github\.com/|ghcr\.io/)?your-org/reconciler(?:@|:)?"
    table = (ROOT / "docs/guides" / HOST).read_text().partition("\n## ")[0]
    pages = [
        *WITH_PLACEHOLDER,
        *(ROOT / ".github/examples").glob("*.yml"),
        *(ROOT / "deploy").rglob("*.y*ml"),
    ]

    used = {spelling for page in pages for spelling in re.findall(spelled, page.read_text())}

    assert used
    assert {spelling for spelling in used if f"`{spelling}" not in table} == set()


def test_pages_install_from_a_clone_until_a_release_names_what_is_on_the_index(tmp_path: Path) -> None:
    texts = {page.relative_to(ROOT): page.read_text(encoding="utf-8") for page in PAGES}
    found = {page: INSTALL.findall(text) for page, text in texts.items()}
    for name in (*texts, Path("pyproject.toml")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)

    assert [(page, line) for page, lines in found.items() for line in lines if NAME in line] == []
    stamp = [sys.executable, "-I", ROOT / ".ci/stamp", "Acme/reconciler", "1" * 40, tmp_path]
    subprocess.run(stamp, capture_output=True, check=True)

    released = {page: (tmp_path / page).read_text(encoding="utf-8") for page in texts}
    from_clone = re.compile(r"install ['\"]?\.(?=['`\s\[])")
    assert [page for page, text in released.items() if from_clone.search(text)] == []
    assert "git clone https://github.com/Acme/reconciler && cd" not in released[Path("docs/install.md")]
    for page in (Path("README.md"), Path("docs/install.md"), Path("docs/tutorial.md")):
        assert f"pipx install {NAME}" in released[page]


def test_a_fleet_is_stamped_without_its_own_words_on_installing(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Use YOUR-ORG/reconciler; then `pipx install .`\n")

    stamp = [sys.executable, "-I", ROOT / ".ci/stamp", "acme/reconciler", "1" * 40, tmp_path]
    subprocess.run(stamp, capture_output=True, check=True)

    assert (tmp_path / "README.md").read_text() == "Use acme/reconciler; then `pipx install .`\n"
