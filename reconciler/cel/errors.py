"""Why an expression is refused or gives no string: a message, and its place in the text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an expression was refused, or why its evaluation failed: a value, never raised.

    `offset` counts characters from the start of the expression; None where the whole
    expression is meant, as for every error of an evaluation.
    """

    message: str
    offset: int | None = None


class CelError(Exception):
    """Raised and caught inside this package only; `Environment` returns its `failure`."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.failure = Failure(message, offset)


def not_a_string(kind: str, offset: int | None = None) -> Failure:
    """Return the failure of an expression with a value that is no string, in the wording of Porch."""
    if kind in {"int", "uint"}:
        return Failure(f"unsupported type conversion from '{kind}' to string", offset)
    if kind == "type":
        return Failure("type conversion not supported for 'type'", offset)
    return Failure(f"type conversion error from {_PORCH_NAMES.get(kind, kind)} to 'string'", offset)


_PORCH_NAMES = {
    "null": "'null_type'",
    "null_type": "'null_type'",
    "timestamp": "'Timestamp'",
    "duration": "'Duration'",
    "bytes": "Bytes",
    "double": "Double",
    "unordered list": "list",
}
"""Names of types as cel-go's conversion errors spell them."""
