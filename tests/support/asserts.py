"""Find tests that cannot fail, or not for their reason."""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

FAILS = frozenset({"raises", "warns", "fail"})
"""Functions of pytest that fail a test."""
OR, LOOP, LETTER, ITSELF, ANY_ERROR, NOTHING = (
    "an `or` without a comment that says when each half holds",
    "every assert is in a loop that may not run once",
    "a letter is looked for in a text",
    "a value is compared with itself",
    "any error will do",
    "nothing is asserted",
)


class WeakTest(NamedTuple):
    """A line of a test and what is wrong with it."""

    line: int
    test: str
    reason: str


def find_judges(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the names of functions that can fail a test: they assert, raise, or call one that does."""
    calls: dict[str, set[str]] = {}
    for function in _functions(trees):
        if not function.name.startswith("test_"):
            names = calls.setdefault(function.name, set())
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    names.add(_name(node))
                elif isinstance(node, ast.Assert | ast.Raise):
                    names |= FAILS
    judges = {*FAILS, "TARGETS"}  # the functions that fuzzing calls, by name
    while more := {name for name, called in calls.items() if called & judges} - judges:
        judges |= more
    return frozenset(judges)


def weak_tests(tree: ast.Module, source: str, judges: frozenset[str]) -> Iterator[WeakTest]:
    """Yield what is weak in the tests of a module."""
    lines = source.splitlines()
    for function in _functions([tree]):
        if function.name.startswith("test_"):
            yield from (
                WeakTest(line, function.name, reason) for line, reason in _weak(function, lines, judges)
            )


def _weak(function: ast.FunctionDef, lines: list[str], judges: frozenset[str]) -> Iterator[tuple[int, str]]:
    asserts = [node for node in ast.walk(function) if isinstance(node, ast.Assert)]
    is_drawn = any(isinstance(each, ast.Call) and _name(each) == "given" for each in function.decorator_list)
    if not asserts and not any(_name(node) in judges for node in _calls(function)):
        yield function.lineno, NOTHING
    elif not is_drawn and not any(_certain(function.body, _literals(function), judges)):
        yield function.lineno, LOOP
    for node in asserts:
        yield from ((node.lineno, reason) for reason in _weak_assert(node, lines))
    for node in _calls(function):
        if _name(node) == "raises" and ast.unparse(node.args[0]) in {"Exception", "BaseException"}:
            yield node.lineno, ANY_ERROR


def _weak_assert(node: ast.Assert, lines: list[str]) -> Iterator[str]:
    test = node.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        written = lines[node.lineno - 2 : node.end_lineno]
        if not any("# " in line for line in written):
            yield OR
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        is_letter = isinstance(left, ast.Constant) and isinstance(left.value, str) and len(left.value) < 2
        if is_letter and isinstance(test.ops[0], ast.In) and isinstance(right, ast.Call | ast.Attribute):
            yield LETTER
        if isinstance(test.ops[0], ast.Eq) and ast.dump(left) == ast.dump(right):
            yield ITSELF


def _certain(body: Iterable[ast.AST], literals: frozenset[str], judges: frozenset[str]) -> Iterator[ast.AST]:
    """Yield what judges in every run of a test: asserts and calls of judges in no loop that may be empty."""
    for node in body:
        match node:
            case ast.Assert():
                yield node
            case ast.Call() as call if _name(call) in judges:
                yield node
            case ast.FunctionDef() | ast.Lambda():
                continue
            case ast.For(iter=iterated) if not _runs(iterated, literals):
                continue
            case _:
                yield from _certain(ast.iter_child_nodes(node), literals, judges)


def _literals(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names to which a function assigns a collection that is written out and not empty."""
    assigned = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    return frozenset(
        target.id
        for node in assigned
        for target in node.targets
        if isinstance(target, ast.Name) and _runs(node.value, frozenset())
    )


def _runs(iterated: ast.expr, literals: frozenset[str]) -> bool:
    """Tell whether a loop certainly has an item: a literal, a constant of the module, or made of these."""
    match iterated:
        case ast.Call(func=ast.Name(id="range")) | ast.List(elts=[_, *_]) | ast.Tuple(elts=[_, *_]):
            return True
        case ast.Set() | ast.Dict(keys=[_, *_]):
            return True
        case ast.Constant(value=str(text)):
            return bool(text)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper() or name in literals
        case (
            ast.Subscript(value=source)
            | ast.Call(func=ast.Attribute(value=source, attr="items" | "values" | "keys"))
            | ast.Call(
                func=ast.Name(id="enumerate" | "list" | "sorted" | "zip" | "permutations"), args=[source, *_]
            )
        ):
            return _runs(source, literals)
    return False


def _functions(trees: Iterable[ast.Module]) -> Iterator[ast.FunctionDef]:
    for tree in trees:
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(function) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    """Return the name of what is called; of an item of a mapping, the mapping's."""
    called = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
