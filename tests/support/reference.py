"""What the code has that users may rely on, and what the pages of the reference list of it."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import click

from reconciler.cli.main import main
from reconciler.names import refs
from tests.support.cli_reference import walk

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "reconciler"
_SPAN = re.compile(r"`([^`\n]+)`")
_ANY = "*"


def page(name: str) -> str:
    """Return the text of a page of the documentation."""
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Return a section of a page with all below it, without its title."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert found, f"no section {title}"
    rest = text[found.end() :]
    following = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of the tables in a text, without heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    rules = [number for number, row in enumerate(cells) if all(set(cell) <= set(" :-") for cell in row)]
    heads = {number - 1 for number in rules} | set(rules)
    return [[cell.strip() for cell in row] for number, row in enumerate(cells) if number not in heads]


def names(cell: str) -> list[str]:
    """Return the code spans of a cell."""
    return _SPAN.findall(cell)


def listed(text: str, column: int = 0) -> list[str]:
    """Return the code spans in one column of the tables of a text."""
    return [name for row in rows(text) for name in names(row[column])]


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax trees of the package by path."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Return all nodes of the package by path, in the order of `ast.walk`."""
    return {path: list(ast.walk(tree)) for path, tree in modules().items()}


@cache
def strings() -> tuple[str, ...]:
    """Return every text in the code that is no docstring."""
    texts = []
    for every in nodes().values():
        described = {
            id(node.value)
            for node in every
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        texts += [
            node.value
            for node in every
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described
        ]
    return tuple(texts)


def words(pattern: str) -> set[str]:
    """Return every text in the code that is of a pattern."""
    return {text for text in strings() if re.fullmatch(pattern, text)}


def first_arguments(function: str) -> set[str]:
    """Return the constant first arguments, also by the name `type`, of the calls of a function."""
    found = set()
    for every in nodes().values():
        for node in every:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                named = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
                found |= {str(arg.value) for arg in [*node.args[:1], *named] if isinstance(arg, ast.Constant)}
    return found


def ref_forms() -> set[str]:
    """Return the forms of all full ref names that the code builds; `*` is a part that varies."""
    forms = set()
    for every in nodes().values():
        inner = {id(part) for node in every if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in every:
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in inner):
                form = _form(node)
                if form.startswith("refs/") and " " not in form:
                    forms.add(form)
    return {re.sub(r"\*+", _ANY, form) for form in forms}


_REF_CONSTANTS = {
    name: getattr(refs, name) for name in ("HEADS", "TAGS", "DRAFTS", "PROPOSED", "DELETION_PROPOSED")
}


def _form(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.FormattedValue):
        return _REF_CONSTANTS.get(node.value.id, _ANY) if isinstance(node.value, ast.Name) else _ANY
    if isinstance(node, ast.JoinedStr):
        return "".join(_form(part) for part in node.values)
    return ""


@cache
def commands() -> dict[tuple[str, ...], click.Command]:
    """Return every command by its words after `reconciler`."""
    return {
        tuple(context.command_path.split()[1:]): command
        for command, context in walk(main, click.Context(main, info_name="reconciler"))
    }


@cache
def options(path: tuple[str, ...]) -> set[str]:
    """Return the options of a command and of the groups above it."""
    every = commands()
    above = [every[path[:length]] for length in range(len(path) + 1)]
    return {"--help"} | {
        name
        for command in above
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def unknown(every: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return what is in the first and not in the second, sorted."""
    return sorted(set(every) - set(known))
