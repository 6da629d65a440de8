"""Faults of expressions: values with a place in the text, in the words of cel-go."""

from reconciler.base.values import PartlyCompared

_PORCH_NAMES = {
    "null": "'null_type'",
    "timestamp": "'Timestamp'",
    "duration": "'Duration'",
    "bytes": "Bytes",
    "double": "Double",
}
"""Names of types as cel-go's conversion errors spell them."""


class Failure(PartlyCompared, frozen=True):
    """Why an expression was refused, or why its evaluation failed: a value, never raised.

    `offset` counts characters from the start of the expression; None where the whole
    expression is meant, as for every error of an evaluation. What it is where that is known: `undeclared` is
    a name, `missing` a key that an object lacks, and `is_no_string` tells that the value is of another type.
    """

    UNCOMPARED = frozenset({"undeclared", "missing", "is_no_string"})

    message: str
    offset: int | None = None
    undeclared: str = ""
    missing: str = ""
    is_no_string: bool = False


class CelError(Exception):
    """Raised and caught inside this package only; `Environment` returns its `failure`."""

    def __init__(
        self, message: str, offset: int, undeclared: str = "", *, is_no_string: bool = False
    ) -> None:
        self.failure = Failure(message, offset, undeclared, is_no_string=is_no_string)


def not_a_string(kind: str, offset: int | None = None) -> Failure:
    """Return the failure of an expression with a value that is no string, in the wording of Porch."""
    kind = kind.partition("(")[0]
    if kind in {"int", "uint"}:
        message = f"unsupported type conversion from '{kind}' to string"
    elif kind == "type":
        message = "type conversion not supported for 'type'"
    else:
        message = f"type conversion error from {_PORCH_NAMES.get(kind, kind)} to 'string'"
    return Failure(message, offset, is_no_string=True)


def offset_of(text: str, line: int | None, column: int | None) -> int:
    """Return the offset of a place that is given by lines and columns from 1; 0 for no place."""
    return max(0, sum(len(above) + 1 for above in text.split("\n")[: (line or 1) - 1]) + (column or 1) - 1)
