"""CEL in the environment of Porch: parse, check and compile an expression once, then evaluate it.

`parser` gives the tree for the static check; Google's cel-cpp (cel-expr-python) evaluates.
The static check refuses expressions with different results in cel-cpp and cel-go, which Porch uses.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from reconciler.base.errors import MissingEngineError
from reconciler.cel.check import check, check_cost
from reconciler.cel.parser import parse
from reconciler.cel.syntax import CelError, Failure, Literal, not_a_string
from reconciler.cel.types import DYN, STRING, STRINGS
from reconciler.policy import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.cel.engine import Evaluator

__all__ = ["EXTENSIONS", "Environment", "Failure", "Program"]

EXTENSIONS = frozenset({STRINGS})
"""Extension libraries that a set may enable by annotation."""


class Program(Struct, frozen=True):
    """A checked and compiled expression; `constant` is its value where it is a string literal."""

    text: str
    code: Any
    constant: str | None = None


class Environment:
    """The variables and functions that expressions of one set see, and a cache of compiled programs.

    Each distinct text is compiled once. `compile` and `evaluate` return a `Failure` instead of raising.

    Raises:
        MissingEngineError: cel-expr-python has no wheel for this platform.

    Source: porch packagevariantset render.go, compileExpr and evalExpr.
    """

    def __init__(self, limits: Limits, extensions: frozenset[str] = frozenset()) -> None:
        self._limits = limits
        self._extensions = extensions
        self._evaluator = _load_evaluator(extensions)
        self._programs: dict[str, Program | Failure] = {}

    def compile(self, text: str) -> Program | Failure:
        """Return the program of an expression, or the failure and its place in the text."""
        program = self._programs.get(text)
        if program is None:
            program = self._programs[text] = self._compile(text)
        return program

    def bind(self, variables: "Mapping[str, Any]") -> Any:
        """Convert variables (strings, and maps of strings and maps) once for many evaluations.

        An expression that reads an absent variable fails.
        """
        return self._evaluator.bind(variables)

    def evaluate(self, program: Program, activation: Any) -> str | Failure:
        """Return the string value of a program for bound variables, or the failure."""
        return self._evaluator.evaluate(program.code, activation)

    def run(self, text: str, variables: "Mapping[str, Any]") -> str | Failure:
        """Compile and evaluate one expression."""
        program = self.compile(text)
        return program if isinstance(program, Failure) else self.evaluate(program, self.bind(variables))

    def _compile(self, text: str) -> Program | Failure:
        try:
            tree = parse(text, self._limits)
            type_ = check(tree, self._extensions)
            check_cost(tree, self._limits)
        except CelError as error:
            return error.failure
        if type_ not in {STRING, DYN}:
            return not_a_string(type_.name, tree.offset)
        code = self._evaluator.compile(text, tree)
        if isinstance(code, Failure):
            return code
        constant = tree.value if isinstance(tree, Literal) and isinstance(tree.value, str) else None
        return Program(text, code, constant)


def _load_evaluator(extensions: frozenset[str]) -> "Evaluator":
    """Import the evaluator when the first set needs it; not every platform has it."""
    try:
        from reconciler.cel.engine import Evaluator  # noqa: PLC0415
    except ImportError as error:
        raise MissingEngineError from error
    return Evaluator(extensions)
