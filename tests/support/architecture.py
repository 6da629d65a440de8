"""Writes the list of rooms in docs/architecture.md from the modules' own docstrings."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- rooms: begin -->", "<!-- rooms: end -->"


def rooms() -> str:
    """Return the list: folders as headings, modules as lines, each with its first sentence."""
    package = ROOT / "reconciler"
    folders: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        folders.setdefault(str(path.parent.relative_to(package)), []).append(path)
    lines: list[str] = []
    for folder, paths in sorted(folders.items()):
        init = next((p for p in paths if p.name == "__init__.py"), None)
        title = "reconciler" if folder == "." else folder
        lines += ["", f"### `{title}`", "", _sentence(init) if init else "", ""]
        lines += [f"- `{p.name}`: {_sentence(p)}" for p in paths if p.name != "__init__.py"]
    return "\n".join(lines).strip() + "\n"


def document(text: str) -> str:
    """Return the document's text with the list brought up to date."""
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n\n{rooms()}\n{END}{tail}"


def _sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or "(says nothing)"
    return docstring.split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    current = DOCUMENT.read_text()
    DOCUMENT.write_text(document(current))
    sys.stdout.write(f"{DOCUMENT.relative_to(ROOT)} is up to date\n")
