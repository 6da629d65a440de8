"""Kept mutants: where each stands, by module, function and expression, and the source with the change in it.

A mutant is a table of `tools/mutants/*.toml`: `why` says what is broken, `tests` which tests must fail, `at`
names module and function (`PATH::Class.method`, or the path alone for the level of the module), and `find` is
the expression, or the statements, that become `replace`. What is compared is the syntax tree, so a mutant
stands through moves of lines, comments and formatting. A second place of one mutant is a table `also`. A file
that is not Python is compared as text.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
_CONTEXT = re.compile(r"(?:, )?ctx=(?:Load|Store|Del)\(\)")


class Edit(NamedTuple):
    """One place that a mutant changes."""

    path: str
    function: str
    find: str
    replace: str


class Mutant(NamedTuple):
    """A fault, and the tests that must notice it."""

    name: str
    tests: Sequence[str]
    edits: Sequence[Edit]


def read_mutants(directory: Path = HERE) -> list[Mutant]:
    """Return the mutants in the order of their names."""
    tables: dict[str, Any] = {}
    for path in sorted(directory.glob("*.toml")):
        for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in tables:
                raise ValueError(f"{path.name}: {name} is there twice")
            tables[name] = table
    return [
        Mutant(name, table["tests"], [_edit(each) for each in (table, *table.get("also", ()))])
        for name, table in sorted(tables.items())
    ]


def _edit(table: dict[str, str]) -> Edit:
    path, _, function = table["at"].partition("::")
    return Edit(path, function, table["find"], table["replace"])


def changed(source: str, edit: Edit) -> str:
    """Return a source with one edit made.

    Raises:
        ValueError: The function is not there, or what is looked for does not stand in it exactly once.
    """
    if not edit.path.endswith(".py"):
        if source.count(edit.find) != 1:
            raise ValueError(f"{edit.path} has the text {source.count(edit.find)} times")
        return source.replace(edit.find, edit.replace)
    tree = ast.parse(source)
    owner, field, first, last, new = place(tree, edit)
    held = getattr(owner, field)
    if isinstance(held, list):
        held[first:last] = new
    else:
        setattr(owner, field, new[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def place(tree: ast.AST, edit: Edit) -> tuple[ast.AST, str, int, int, Sequence[ast.AST]]:
    """Return owner, field and span of what is looked for, and what replaces it. Raises: as `changed`."""
    places = list(_places(_scope(tree, edit), edit))
    if len(places) != 1:
        raise ValueError(f"{edit.path}::{edit.function} has it {len(places)} times: {edit.find}")
    return places[0]


def _scope(tree: ast.AST, edit: Edit) -> ast.AST:
    for name in filter(None, edit.function.split(".")):
        named = [node for node in getattr(tree, "body", ()) if getattr(node, "name", "") == name]
        if not named:
            raise ValueError(f"{edit.path} has no {edit.function}")
        tree = named[-1]
    return tree


def _places(scope: ast.AST, edit: Edit) -> Iterator[tuple[ast.AST, str, int, int, Sequence[ast.AST]]]:
    find: Sequence[ast.AST] = ast.parse(edit.find).body
    replace = ast.parse(edit.replace).body
    if len(find) == len(replace) == 1 and isinstance(find[0], ast.Expr) and isinstance(replace[0], ast.Expr):
        find = [find[0].value]
        new: Sequence[ast.AST] = [replace[0].value]
    else:
        new = replace or [ast.Pass()]
    sought = [_form(node) for node in find]
    for owner in ast.walk(scope):
        for field, held in ast.iter_fields(owner):
            nodes = held if isinstance(held, list) else [held]
            for first in range(len(nodes) - len(sought) + 1):
                pairs = zip(nodes[first : first + len(sought)], find, sought, strict=True)
                if all(type(node) is type(other) and _form(node) == form for node, other, form in pairs):
                    yield owner, field, first, first + len(sought), new


def _form(node: ast.AST) -> str:
    """Return the text of a syntax tree that is the same wherever its source stands."""
    return _CONTEXT.sub("", ast.dump(node))
