"""Evaluate expressions with Google's cel-cpp, with the error messages of cel-go.

cel-cpp returns run-time errors as values, which would otherwise become package names, and
unbound names as UNKNOWN: the type of every result is tested.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from reconciler.base.lazy import lazy_pattern
from reconciler.cel.syntax import Failure, Node, not_a_string
from reconciler.cel.types import STRINGS, VARIABLES

_STRING = cel.Type.STRING
_ERROR = cel.Type.ERROR
_UNKNOWN = cel.Type.UNKNOWN
_TYPES = {"string": _STRING, "dyn": cel.Type.DYN}

_CEL_GO_MESSAGES = (
    (lazy_pattern(r'Key not found in map : "?(.*?)"?$', re.DOTALL), r"no such key: \1"),
    (re.compile(r'No value with name "(.*?)" found in Activation'), r"no such attribute(s): \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"No matching overloads found : .*", re.DOTALL), "no such overload"),
)
_STATUS = lazy_pattern(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_LOCATION = re.compile(r"^.*?ERROR: <input>:-?\d+:-?\d+: ")


class Evaluator:
    """cel-cpp in the environment of Porch: five variables and the standard library. No method raises."""

    def __init__(self, extensions: frozenset[str] = frozenset()) -> None:
        self._env = _environment(extensions)

    def compile(self, text: str, tree: Node) -> Any:
        """Return a program, or a `Failure` where cel-cpp's own checker refuses the text."""
        try:
            return self._env.compile(text)
        except Exception as error:  # noqa: BLE001 - the binding raises RuntimeError, ValueError and its own
            first = str(error).split("\n", 1)[0]
            return Failure(_STATUS.sub("", _LOCATION.sub("", first)), tree.offset)

    def bind(self, variables: Mapping[str, Any]) -> Any:
        """Return an activation, which many programs can share."""
        return self._env.Activation(variables)

    def evaluate(self, program: Any, activation: Any) -> str | Failure:
        """Return the string value of a program, or the failure."""
        try:
            value = program.eval(activation=activation)
            kind = value.type()
            if kind == _STRING:
                return str(value.plain_value())
            if kind == _ERROR:
                return Failure(_cel_go_message(str(value.plain_value())))
        except Exception as error:  # noqa: BLE001 - one bad expression must not end the run
            return Failure(_cel_go_message(str(error)))
        if kind == _UNKNOWN:
            return Failure("The result depends on something unknown")
        return not_a_string(kind.name().partition("<")[0].lower())


@cache
def _environment(extensions: frozenset[str]) -> Any:
    variables = {name: _TYPES[type_.name] for name, type_ in VARIABLES.items()}
    loaded = [ext_strings.ExtStrings()] if STRINGS in extensions else []
    return cel.NewEnv(variables=variables, extensions=loaded)


def _cel_go_message(text: str) -> str:
    text = _STATUS.sub("", text)
    for pattern, replacement in _CEL_GO_MESSAGES:
        if match := pattern.search(text):
            return match.expand(replacement)
    return text.replace("\n", " ")
