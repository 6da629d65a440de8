"""What can be wrong with an expression: a message, and where in its text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an expression was refused, or why its evaluation failed: a value, never raised.

    `offset` counts characters from the start of the expression; None where only the whole
    expression is to blame, as for everything that goes wrong during evaluation.
    """

    message: str
    offset: int | None = None


class ExpressionError(Exception):
    """Raised and caught inside this package only; its door turns it into a `Failure`."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.failure = Failure(message, offset)
