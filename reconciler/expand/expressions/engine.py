"""What an evaluator is: two of them give the same answers to everything that passes the static check."""

from collections.abc import Mapping
from typing import Any, Protocol

from reconciler.expand.expressions.errors import Failure
from reconciler.expand.expressions.nodes import Node

Inputs = Mapping[str, Any]
"""Variables by name: strings, and maps of strings and maps; an absent one is not bound yet."""

Result = str | Failure


class Engine(Protocol):
    """Evaluates checked expressions. No method raises."""

    name: str

    def compile(self, text: str, tree: Node) -> Any:
        """Return a program, or a `Failure` where the engine itself refuses the text."""

    def bind(self, inputs: Inputs) -> Any:
        """Return the inputs in the engine's own form, to be used by many programs."""

    def evaluate(self, program: Any, bound: Any) -> Result:
        """Return the string that the expression gives, or why it gives none."""


def no_string(kind: str, offset: int | None = None) -> Failure:
    """Return the failure of an expression whose value is of another type than string, in Porch's words."""
    if kind in {"int", "uint"}:
        return Failure(f"unsupported type conversion from '{kind}' to string", offset)
    if kind == "type":
        return Failure("type conversion not supported for 'type'", offset)
    return Failure(f"type conversion error from {_WORDS.get(kind, kind)} to 'string'", offset)


_WORDS = {
    "null": "'null_type'",
    "null_type": "'null_type'",
    "timestamp": "'Timestamp'",
    "duration": "'Duration'",
    "bytes": "Bytes",
    "unordered list": "list",
}
