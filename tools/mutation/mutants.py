"""Enumerate the functions of a package and the mutants of each.

The operators are those of mutmut and four more: one operand of `and` or `or` is dropped, a condition is
negated, a call without use of its value is removed, and `min`, `any` and the first element become `max`,
`all` and the last.

Not mutated: signatures, decorators, annotations, the level of modules and classes, calls of `len` and
`isinstance` (a rule of mutmut), and string literals with a space, which are text for people.
"""

import ast
import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

UNMUTATED_CALLS = frozenset({"len", "isinstance"})
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Function:
    """A function or method of a module, with the lines that it occupies."""

    path: str
    name: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}::{self.name}"

    @property
    def is_of_worker(self) -> bool:
        """Whether it runs in a worker, a fresh interpreter that forks of this one cannot change."""
        return self.path.endswith("_worker.py")


@dataclass(frozen=True)
class Mutant:
    """One changed node of one function."""

    function: Function
    operator: str
    line: int
    source: str
    """The whole module with the change."""
    change: str
    """The lines that differ, `-` before `+`, without indentation: what identifies the mutant."""
    diff: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Identify the mutant independently of where in the file its function is."""
        return (self.function.path, self.function.name, self.change)


def rank(*parts: object) -> bytes:
    """Return a key that orders things at random, but always alike and independently of the other ones."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()


def list_functions(root: Path, package: str) -> list[Function]:
    """Return the functions of modules and the methods of classes, in the order of the files."""
    functions = []
    for path in sorted((root / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions += _functions_in(tree.body, str(path.relative_to(root)), "")
    return functions


def _functions_in(body: Sequence[ast.stmt], path: str, prefix: str) -> Iterator[Function]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                yield Function(path, prefix + node.name, first, node.end_lineno or first)
            case ast.ClassDef():
                yield from _functions_in(node.body, path, f"{prefix}{node.name}.")


def list_mutants(root: Path, function: Function) -> list[Mutant]:
    """Return every mutant of a function that differs from it and compiles, one per change."""
    lines = (root / function.path).read_text(encoding="utf-8").splitlines()
    own = lines[function.first - 1 : function.last]
    header = ["class _:"] if own[0].startswith(" ") else []
    wrapper = MetadataWrapper(cst.parse_module("\n".join([*header, *own])), unsafe_skip_copy=True)
    changes = _Changes()
    wrapper.visit(changes)
    mutants = {}
    for operator, line, old, new in changes.made:
        mutated = wrapper.module.visit(_Replace(old, new))
        assert isinstance(mutated, cst.Module)
        text = mutated.code.splitlines()[len(header) :]
        source = "\n".join([*lines[: function.first - 1], *text, *lines[function.last :], ""])
        diff = list(difflib.unified_diff(own, text, n=1, lineterm=""))[3:]
        change = "\n".join(row[0] + row[1:].strip() for row in diff if row[0] != " ")
        if change and change not in mutants and _compiles(mutated.code):
            at = function.first + line - len(header) - 1
            mutants[change] = Mutant(function, operator, at, source, change, "\n".join(diff))
    return list(mutants.values())


def choose_mutant(mutants: Iterable[Mutant], seed: int) -> Mutant | None:
    """Draw an operator, so that those with many mutants weigh no more, then one of its mutants."""
    return min(
        mutants,
        key=lambda m: (rank(seed, *m.key[:2], m.operator), rank(seed, *m.key)),
        default=None,
    )


def _compiles(source: str) -> bool:
    try:
        compile(source, "<mutant>", "exec")
    except SyntaxError:
        return False
    return True


class _Replace(cst.CSTTransformer):
    def __init__(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        self.old, self.new = old, new

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node is not self.old

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override] # as mutmut's
        return self.new if original_node is self.old else updated_node


class _Changes(cst.CSTVisitor):
    """Collect (operator, line, old node, new node) in one function."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.made: list[tuple[str, int, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Parameters) or _is_unmutated_call(node):
            return False
        position = self.get_metadata(PositionProvider, node, None)
        if position:
            made = ((operator, position.start.line, node, new) for operator, new in _mutations(node))
            self.made.extend(made)
        return True


def _is_unmutated_call(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in UNMUTATED_CALLS
    )


def _mutations(node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
    for kind, operator in [*mutation_operators, *OPERATORS]:
        if isinstance(node, kind) and not (operator is operator_string and _is_text(node)):
            for new in operator(node):
                yield operator.__name__.removeprefix("operator_"), new


def _is_text(node: cst.CSTNode) -> bool:
    """Tell whether a string is what people read, or a codec, whose case is of no account."""
    return isinstance(node, cst.SimpleString) and (" " in node.raw_value or node.raw_value == "utf-8")


def operator_drop_operand(node: cst.BooleanOperation) -> Iterable[cst.BaseExpression]:
    """Keep one side of `and` and `or`."""
    yield node.left
    yield node.right


def operator_negate(node: cst.If | cst.CompIf) -> Iterable[cst.CSTNode]:
    """Negate the condition of a statement or of a filter."""
    test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test), **_spaced(node))


def _spaced(node: cst.If | cst.CompIf) -> dict[str, cst.SimpleWhitespace]:
    name = "whitespace_before_test"
    return {name: cst.SimpleWhitespace(" ")} if hasattr(node, name) else {}


def operator_drop_statement(node: cst.Expr) -> Iterable[cst.BaseSmallStatement]:
    """Remove a call whose value is unused."""
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def operator_opposite(node: cst.Call | cst.Index) -> Iterable[cst.CSTNode]:
    """Swap least and greatest, some and all, first and last."""
    match node:
        case cst.Call(func=cst.Name(value=name)) if name in OPPOSITES:
            yield node.with_changes(func=cst.Name(OPPOSITES[name]))
        case cst.Index(value=cst.Integer(value="0")):
            yield node.with_changes(value=cst.UnaryOperation(cst.Minus(), cst.Integer("1")))
        case cst.Index(value=cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer(value="1"))):
            yield node.with_changes(value=cst.Integer("0"))


OPERATORS: Sequence[tuple[type | tuple[type, ...], Callable[..., Iterable[cst.CSTNode]]]] = (
    (cst.BooleanOperation, operator_drop_operand),
    ((cst.If, cst.CompIf), operator_negate),
    (cst.Expr, operator_drop_statement),
    ((cst.Call, cst.Index), operator_opposite),
)
