"""The one door to CEL: parse, check and compile once per distinct text, evaluate with either engine.

cel-python's parser gives the tree for the static check, Google's cel-cpp evaluates where its wheel
exists, a portable walk elsewhere. What passes the check has the same answer in both.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.expand.expressions.check import check
from reconciler.expand.expressions.cost import check_cost
from reconciler.expand.expressions.engine import Engine, Inputs, Result, no_string
from reconciler.expand.expressions.errors import ExpressionError, Failure
from reconciler.expand.expressions.nodes import Literal
from reconciler.expand.expressions.signatures import STRINGS
from reconciler.expand.expressions.types import DYN, STRING
from reconciler.policy import Limits

__all__ = ["EXTENSIONS", "EngineName", "Expressions", "Failure", "Program"]

EXTENSIONS = frozenset({STRINGS})
"""Extension libraries that a set may ask for by annotation."""


class EngineName(StrEnum):
    """Which engine evaluates."""

    BEST = "best"
    GOOGLE = "google"
    PORTABLE = "portable"


@dataclass(frozen=True, slots=True)
class Program:
    """A checked and compiled expression; `constant` is its value where it is a string literal.

    `is_sorted` marks one whose value depends on the order of a map's keys, which is random in
    cel-cpp and in cel-go: the portable engine evaluates it, with the keys sorted.
    """

    text: str
    code: Any
    constant: str | None = None
    is_sorted: bool = False


class Bound(NamedTuple):
    """Variables, as they were given and in the form of the engine."""

    inputs: Inputs
    native: Any


class Expressions:
    """The expressions of one set: compiled once per distinct text, in the environment of Porch.

    Neither method raises. Source: porch packagevariantset render.go, compileExpr and evalExpr.
    """

    def __init__(
        self,
        limits: Limits,
        extensions: frozenset[str] = frozenset(),
        engine: EngineName = EngineName.BEST,
    ) -> None:
        self._limits = limits
        self._extensions = extensions
        self._engine = _engine(engine, extensions)
        self._programs: dict[str, Program | Failure] = {}

    @property
    def engine(self) -> str:
        """The name of the engine in use."""
        return self._engine.name

    def compile(self, text: str) -> Program | Failure:
        """Return the program for an expression, or why it is refused and where."""
        found = self._programs.get(text)
        if found is None:
            found = self._programs[text] = self._compile(text)
        return found

    def bind(self, inputs: Inputs) -> Bound:
        """Return variables in a form that many evaluations can share."""
        return Bound(inputs, self._engine.bind(inputs))

    def evaluate(self, program: Program, bound: Bound) -> Result:
        """Return the string that the program gives for bound variables, or why it gives none."""
        if program.is_sorted:
            sorting = _engine(EngineName.PORTABLE, self._extensions)
            return sorting.evaluate(program.code, sorting.bind(bound.inputs))
        return self._engine.evaluate(program.code, bound.native)

    def run(self, text: str, inputs: Inputs) -> Result:
        """Compile and evaluate one expression."""
        program = self.compile(text)
        return program if isinstance(program, Failure) else self.evaluate(program, self.bind(inputs))

    def _compile(self, text: str) -> Program | Failure:
        from reconciler.expand.expressions.tree import parse  # noqa: PLC0415 - only who has expressions pays

        try:
            tree = parse(text, self._limits)
            checked = check(tree, self._extensions)
            check_cost(tree, self._limits)
        except ExpressionError as error:
            return error.failure
        if checked.type_ not in {STRING, DYN}:
            return no_string(checked.type_.name, tree.offset)
        if checked.shows_order:
            return Program(text, tree, is_sorted=True)
        code = self._engine.compile(text, tree)
        if isinstance(code, Failure):
            return code
        constant = tree.value if isinstance(tree, Literal) and isinstance(tree.value, str) else None
        return Program(text, code, constant)


def _engine(name: EngineName, extensions: frozenset[str]) -> Engine:
    """Return an engine; both are imported only when there is a set, and cel-cpp not on every platform."""
    if name is not EngineName.PORTABLE:
        try:
            from reconciler.expand.expressions.google import GoogleEngine  # noqa: PLC0415
        except ImportError:
            pass
        else:
            return GoogleEngine(extensions)
    from reconciler.expand.expressions.portable import PortableEngine  # noqa: PLC0415

    return PortableEngine(extensions)
