"""Compile and evaluate expressions with Google's cel-cpp, with the error messages of cel-go.

cel-cpp returns run-time errors as values, which would otherwise become package names, and
unbound names as UNKNOWN: the type of every result is tested.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from reconciler.base.lazy import regex
from reconciler.cel.check import CelError, Failure, not_a_string, offset_of

_STRING = cel.Type.STRING
_ERROR = cel.Type.ERROR
_UNKNOWN = cel.Type.UNKNOWN
_VARIABLES = {
    "repoDefault": _STRING,
    "packageDefault": _STRING,
    "upstream": cel.Type.DYN,
    "target": cel.Type.DYN,
    "repository": cel.Type.DYN,
}
_POSITION = regex(r"ERROR: <input>:(\d+):(\d+): (.*)")
_STATUS = regex(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_PROTOBUF = regex(r"\bgoogle\.protobuf\.(Timestamp|Duration)\b")
_UNDECLARED = regex(r"undeclared reference to '(\.?\w+).*")
_CEL_GO_MESSAGES = (
    (regex(r'Key not found in map : "?(?P<missing>.*?)"?$', re.DOTALL), r"no such key: \1"),
    (regex(r'No value with name "(.*?)" found in Activation'), r"no such attribute(s): \1"),
    (regex(r"divide by zero"), "division by zero"),
    (regex(r"No matching overloads found : .*", re.DOTALL), "no such overload"),
    (_UNDECLARED, r"undeclared reference to '\1'"),
    (
        regex(r"expression of (type '.*') cannot be the operand of .*"),
        r"\1 does not support field selection",
    ),
    (
        regex(r".*recursion (depth of|limit exceeded. limit:) 32.*"),
        "More than 31 terms are nested or chained",
    ),
    (
        regex(r"Syntax error: mismatched input '<EOF>' .*"),
        "Syntax error: unexpected end of the expression",
    ),
    (regex(r"(Syntax error: .*?) expecting .*"), r"\1"),
)


class Engine:
    """cel-cpp in the environment of Porch: five variables and the standard library."""

    def __init__(self, extensions: frozenset[str] = frozenset()) -> None:
        self._env = _environment(extensions)

    def compile(self, text: str) -> Any:
        """Return a program.

        Raises:
            CelError: The text is no expression, or its types do not fit.
        """
        try:
            return self._env.compile(text)
        except Exception as error:  # noqa: BLE001 - the binding raises RuntimeError, ValueError and its own
            # cel-go tells the first fault of the text first, cel-cpp the one that it found first.
            places = [
                (offset_of(text, int(line), int(column)), fault)
                for line, column, fault in _POSITION.findall(str(error))
            ]
            offset, message = min(places, default=(0, str(error).partition("\n")[0]))
            undeclared = _UNDECLARED.match(message)
            raise CelError(_failure(message).message, offset, undeclared[1] if undeclared else "") from None

    def type_of(self, text: str) -> str:
        """Return the type of a correct expression as CEL writes it: `list(string)`."""
        name = self.compile(text).return_type().name()
        return _PROTOBUF.sub(r"\1", name).lower().replace("<", "(").replace(">", ")")

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
                return _failure(str(value.plain_value()))
        except Exception as error:  # noqa: BLE001 - one bad expression must not end the run
            return _failure(str(error))
        if kind == _UNKNOWN:
            return Failure("The result depends on something unknown")
        return not_a_string(kind.name().partition("<")[0].lower())


@cache
def _environment(extensions: frozenset[str]) -> Any:
    loaded = [ext_strings.ExtStrings(version=2)] if extensions else []
    return cel.NewEnv(variables=_VARIABLES, extensions=loaded)


def _failure(text: str) -> Failure:
    """Return the failure of an evaluation in the words of cel-go."""
    text = _PROTOBUF.sub(lambda match: match[1].lower(), _STATUS.sub("", text))
    for pattern, replacement in _CEL_GO_MESSAGES:
        if match := pattern.search(text):
            return Failure(match.expand(replacement), missing=match.groupdict().get("missing", ""))
    return Failure(text.replace("\n", " "))
