"""Faults of expressions: values with a place in the text, in the words of cel-go."""

from msgspec import Struct

_PORCH_NAMES = {
    "null": "'null_type'",
    "timestamp": "'Timestamp'",
    "duration": "'Duration'",
    "bytes": "Bytes",
    "double": "Double",
}
"""Names of types as cel-go's conversion errors spell them."""


class Failure(Struct, frozen=True):
    """Why an expression was refused, or why its evaluation failed: a value, never raised.

    `offset` counts characters from the start of the expression; None where the whole
    expression is meant, as for every error of an evaluation.
    """

    message: str
    offset: int | None = None


class CelError(Exception):
    """Raised and caught inside this package only; `Environment` returns its `failure`.

    `name` is the name that is not declared, where that is the fault.
    """

    def __init__(self, message: str, offset: int, name: str = "") -> None:
        super().__init__(message)
        self.failure = Failure(message, offset)
        self.name = name


def not_a_string(kind: str, offset: int | None = None) -> Failure:
    """Return the failure of an expression with a value that is no string, in the wording of Porch."""
    kind = kind.partition("(")[0]
    if kind in {"int", "uint"}:
        return Failure(f"unsupported type conversion from '{kind}' to string", offset)
    if kind == "type":
        return Failure("type conversion not supported for 'type'", offset)
    return Failure(f"type conversion error from {_PORCH_NAMES.get(kind, kind)} to 'string'", offset)


def offset_of(text: str, line: int | None, column: int | None) -> int:
    """Return the offset of a place that is given by lines and columns from 1; 0 for no place."""
    return max(0, sum(len(above) + 1 for above in text.split("\n")[: (line or 1) - 1]) + (column or 1) - 1)
