"""`make structure`: how large the project is, counted, and how many files one plan of the demo passes."""

import ast
import io
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType

from reconciler.cli.main import main as reconciler
from tests.support.reference import ROOT, commands, options

PACKAGE = ROOT / "reconciler"
KINDS = ("code", "docstrings", "imports", "blank", "comments")


def sources(folder: str) -> dict[Path, str]:
    """Return the Python files of a folder with their texts."""
    return {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py"))}


def kinds_of_lines(text: str) -> Counter[str]:
    """Count the lines of a source by kind; a blank line in a docstring belongs to it."""
    lines = text.splitlines()
    kinds = ["code" if line.strip() else "blank" for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            kinds[token.start[0] - 1] = "comments"
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                kind = "docstrings"
            case ast.Import() | ast.ImportFrom():
                kind = "imports"
            case _:
                continue
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            kinds[number] = kind
    return Counter(kinds)


def used_once(trees: Iterable[ast.Module]) -> tuple[int, int]:
    """Return how many private functions and methods there are, and how many their module names once."""
    private, once = 0, 0
    for tree in trees:
        nodes = list(ast.walk(tree))
        names = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        names.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
        helpers = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        helpers = [name for name in helpers if name.startswith("_") and not name.endswith("__")]
        private += len(helpers)
        once += sum(names[name] == 1 for name in helpers)
    return private, once


def files_of_a_plan() -> set[str]:
    """Return the files that one plan of the demo enters, with nothing in its cache."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(frame.f_code.co_filename)

    def run(*arguments: str) -> None:
        with redirect_stdout(io.StringIO()):
            reconciler(list(arguments), standalone_mode=False)

    with tempfile.TemporaryDirectory() as scratch:
        run("demo", f"{scratch}/world")
        plan = ("plan", "--control", f"{scratch}/world/control", "--cache-dir")
        run(*plan, f"{scratch}/first")  # what it imports does not count
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            run(*plan, f"{scratch}/second")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return files


def figures() -> Iterator[tuple[str, int]]:
    """Yield each figure by name."""
    texts = sources("reconciler")
    trees = [ast.parse(text) for text in texts.values()]
    lines = sum((kinds_of_lines(text) for text in texts.values()), Counter[str]())
    private, once = used_once(trees)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]
    yield "modules", len(texts)
    yield "lines", lines.total()
    yield from ((f"  {kind}", lines[kind]) for kind in KINDS)
    yield "classes", sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree))
    yield "private helpers", private
    yield "  used once", once
    yield "files that a plan of the demo passes", len(files_of_a_plan())
    yield "commands", len([words for words in commands() if words])
    yield "options", len(set[str]().union(*map(options, commands())))
    yield "dependencies", len(project["dependencies"])
    yield "lines of tests", sum(text.count("\n") for text in sources("tests").values())
    yield "lines of tools", sum(text.count("\n") for text in sources("tools").values())
    yield "pages of docs", len(pages)
    yield "words of docs", sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


if __name__ == "__main__":
    for name, count in figures():
        print(f"{name:38} {count:>8,}")
