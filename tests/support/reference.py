"""What the code has that users may rely on, and what the pages of the reference list of it."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

from reconciler.cli.main import main
from reconciler.names import refs
from tools.docs.cli_reference import walk

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


class Text(NamedTuple):
    """A text in the code, and its place; `{}` stands where a value is put in."""

    place: str
    text: str


class Code(NamedTuple):
    """What tests read of a module, whose syntax tree is not kept: those of the package have 190 MB."""

    path: str
    strings: tuple[str, ...]
    """Every text that is no docstring; a part of a longer one is one, too."""
    texts: tuple[Text, ...]
    """Every sentence that is no docstring, as a whole."""
    fields: tuple[str, ...]
    """The names with an annotation."""
    calls: tuple[tuple[str, str], ...]
    """The constant first arguments, also by the name `type`, of calls: function and argument."""
    refs: tuple[str, ...]
    """The forms of full ref names; `*` is a part that varies."""


@cache
def code() -> tuple[Code, ...]:
    """Return what is read of each module of the package."""
    return tuple(map(_read, sorted(PACKAGE.rglob("*.py"))))


def _read(path: Path) -> Code:
    every = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    place = path.relative_to(ROOT).as_posix()
    inner = {id(part) for node in every if isinstance(node, ast.JoinedStr) for part in node.values}
    described = {id(node.value) for node in every if isinstance(node, ast.Expr)}
    said = [node for node in every if isinstance(node, ast.Constant | ast.JoinedStr)]
    own = [node for node in said if id(node) not in described]
    whole = [node for node in own if id(node) not in inner]
    refs = {_form(node) for node in said if id(node) not in inner}
    return Code(
        place,
        tuple(node.value for node in own if isinstance(node, ast.Constant) and isinstance(node.value, str)),
        tuple(Text(f"{place}:{node.lineno}", text) for node in whole if " " in (text := _text(node))),
        tuple(
            node.target.id
            for node in every
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ),
        tuple(
            (node.func.id, argument)
            for node in every
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            for argument in _first_arguments(node)
        ),
        tuple(form for form in refs if form.startswith("refs/") and " " not in form),
    )


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in values)
    return ""


def _first_arguments(call: ast.Call) -> list[str]:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "type"]
    return [str(arg.value) for arg in [*call.args[:1], *named] if isinstance(arg, ast.Constant)]


def words(pattern: str) -> set[str]:
    """Return every text in the code that is of a pattern."""
    return {text for module in code() for text in module.strings if re.fullmatch(pattern, text)}


def first_arguments(function: str) -> set[str]:
    """Return the constant first arguments, also by the name `type`, of the calls of a function."""
    return {argument for module in code() for name, argument in module.calls if name == function}


def ref_forms() -> set[str]:
    """Return the forms of all full ref names that the code builds; `*` is a part that varies."""
    return {re.sub(r"\*+", _ANY, form) for module in code() for form in module.refs}


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
