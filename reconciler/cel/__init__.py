"""CEL in the environment of Porch: compile and check an expression once, then evaluate it.

Google's cel-cpp (cel-expr-python) decides what is an expression, types it and evaluates it; cel-python
parses it for the checks that cel-cpp has not (`check`). Both are loaded with the first set that needs them.
"""

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from reconciler.base.errors import MissingEngineError
from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.cel.check import CelError, Failure, not_a_string
from reconciler.policy import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EXTENSIONS", "STRING_FUNCTIONS", "Environment", "Failure", "Program"]

EXTENSIONS = frozenset({"strings"})
"""Extension libraries that a set may enable by annotation."""
STRING_FUNCTIONS = frozenset(
    {
        *("charAt", "indexOf", "join", "lastIndexOf", "lowerAscii"),
        *("replace", "split", "substring", "trim", "upperAscii"),
    }
)
"""The methods that the extension `strings` adds."""
_PATH = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_TEXT = r"'[^'\\\r\n]*'|\"[^\"\\\r\n]*\""
_PLAIN = regex(rf"{_PATH}|(?:{_PATH}|{_TEXT})(?: ?\+ ?(?:{_PATH}|{_TEXT})){{1,3}}", re.ASCII)
_LONGEST = 500


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
        # The engine has no wheel for some platforms: it is imported when the first set needs it.
        try:
            from reconciler.cel.engine import Engine  # noqa: PLC0415
        except ImportError as error:
            raise MissingEngineError from error
        self._engine = Engine(extensions)
        self._programs: dict[str, Program | Failure] = {}

    def compile(self, text: str) -> Program | Failure:
        """Return the program of an expression, or the failure and its place in the text."""
        program = self._programs.get(text)
        if program is None:
            try:
                program = self._compile(text)
            except CelError as error:
                program = error.failure
            self._programs[text] = program
        return program

    def bind(self, variables: "Mapping[str, Any]") -> Any:
        """Convert variables (strings, and maps of strings and maps) once for many evaluations.

        An expression that reads an absent variable fails.
        """
        return self._engine.bind(variables)

    def evaluate(self, program: Program, activation: Any) -> str | Failure:
        """Return the string value of a program for bound variables, or the failure."""
        return self._engine.evaluate(program.code, activation)

    def run(self, text: str, variables: "Mapping[str, Any]") -> str | Failure:
        """Compile and evaluate one expression."""
        program = self.compile(text)
        return program if isinstance(program, Failure) else self.evaluate(program, self.bind(variables))

    def _compile(self, text: str) -> Program:
        from reconciler.cel.check import check, is_string_literal, parse, place_of  # noqa: PLC0415 - slow to load

        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:  # JSON can escape a lone surrogate
            raise CelError("Syntax error: an unpaired surrogate is no character", error.start) from None
        if size > (most := self._limits.expression_bytes):
            raise CelError(f"The expression is longer than {plural(most, 'byte')}", 0)
        try:
            code = self._engine.compile(text)
        except CelError as error:
            if not (name := error.failure.undeclared):
                raise
            raise CelError(error.failure.message, place_of(error, parse(text)), name) from None
        # A few names and texts, as most expressions are, have nothing to check; to load the grammar is slow.
        depth, is_cheap = text.count(".") + text.count("+"), self._limits.expression_cost > 2 * _LONGEST
        is_plain = len(text) < _LONGEST and is_cheap and depth < self._limits.expression_depth
        tree = None if is_plain and _PLAIN.fullmatch(text) else parse(text)
        if tree is not None:
            check(tree, text, self._engine.type_of, self._limits)
        kind = self._engine.type_of(text)
        if kind not in {"string", "dyn"}:
            start = 0 if tree is None else tree.meta.start_pos
            raise CelError(not_a_string(kind).message, start, is_no_string=True)
        is_constant = kind == "string" and tree is not None and is_string_literal(tree)
        return Program(text, code, str(self._engine.evaluate(code, self.bind({}))) if is_constant else None)
