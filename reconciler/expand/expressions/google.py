"""Google's cel-cpp: the evaluator wherever its wheel exists.

It returns run-time errors as values, whose text would otherwise become a package name: the type
of every result is tested.
"""

import re
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from reconciler.expand.expressions.engine import Inputs, Result, no_string
from reconciler.expand.expressions.errors import Failure
from reconciler.expand.expressions.nodes import Node
from reconciler.expand.expressions.signatures import STRINGS, VARIABLES

_STRING = cel.Type.STRING
_ERROR = cel.Type.ERROR
_UNKNOWN = cel.Type.UNKNOWN
_TYPES = {"string": _STRING, "dyn": cel.Type.DYN}

_WORDS = (
    (re.compile(r'Key not found in map : "?(.*?)"?$', re.DOTALL), r"no such key: \1"),
    (re.compile(r'No value with name "(.*?)" found in Activation'), r"no such attribute(s): \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"No matching overloads found : .*", re.DOTALL), "no such overload"),
)
_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")


class GoogleEngine:
    """cel-cpp in the environment of Porch: five variables and the standard library."""

    name = "cel-expr-python"

    def __init__(self, extensions: frozenset[str] = frozenset()) -> None:
        self._env = _environment(extensions)

    def compile(self, text: str, tree: Node) -> Any:
        """Return a program; cel-cpp's own checker has the last word."""
        try:
            return self._env.compile(text)
        except Exception as error:  # noqa: BLE001 - the binding raises RuntimeError, ValueError and its own
            first = str(error).split("\n", 1)[0]
            message = re.sub(r"^.*?ERROR: <input>:-?\d+:-?\d+: ", "", first)
            return Failure(_STATUS.sub("", message), tree.offset)

    def bind(self, inputs: Inputs) -> Any:
        """Return an activation."""
        return self._env.Activation(inputs)

    def evaluate(self, program: Any, bound: Any) -> Result:
        """Return the string, or a failure in cel-go's words where cel-cpp has others."""
        try:
            value = program.eval(activation=bound)
            kind = value.type()
            if kind == _STRING:
                return str(value.plain_value())
            if kind == _ERROR:
                return Failure(_in_go_words(str(value.plain_value())))
        except Exception as error:  # noqa: BLE001 - nothing that one expression does may end the run
            return Failure(_in_go_words(str(error)))
        if kind == _UNKNOWN:
            return Failure("The result depends on something unknown")
        return no_string(_kind(kind.name()))


@cache
def _environment(extensions: frozenset[str]) -> Any:
    variables = {name: _TYPES[type_.name] for name, type_ in VARIABLES.items()}
    loaded = [ext_strings.ExtStrings()] if STRINGS in extensions else []
    return cel.NewEnv(variables=variables, extensions=loaded)


def _kind(name: str) -> str:
    return name.partition("<")[0].lower()


def _in_go_words(text: str) -> str:
    text = _STATUS.sub("", text)
    for pattern, words in _WORDS:
        if match := pattern.search(text):
            return match.expand(words)
    return text.replace("\n", " ")
