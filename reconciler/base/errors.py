"""Errors: a Problem is a value of one input, a ReconcilerError ends the run; exit codes (D1)."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Self

from reconciler.base.text import Text


class Exit(IntEnum):
    """Exit codes of every command (design D1)."""

    DONE = 0
    BUG = 1
    USAGE = 2
    INVALID_INPUT = 3
    REFUSED = 4
    UNAVAILABLE = 5
    PARTIAL = 6
    WAITING = 7
    PENDING = 10


_PRECEDENCE = (
    Exit.BUG,
    Exit.USAGE,
    Exit.UNAVAILABLE,
    Exit.REFUSED,
    Exit.INVALID_INPUT,
    Exit.WAITING,
    Exit.PARTIAL,
    Exit.PENDING,
)


def worst(exits: Iterable[Exit]) -> Exit:
    """Return the one code a process can exit with when several classes apply: 5 > 4 > 3 > 7 > 6 > 10."""
    present = frozenset(exits)
    return next((code for code in _PRECEDENCE if code in present), Exit.DONE)


class Location(NamedTuple):
    """A place in a repository: path from its root, line and column from 1; 0 is unknown."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.path]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)


class ReconcilerError(Exception):
    """An error that ends the run, or the work on one repository.

    `hint` is the next step for a person; without one the class has its own, which may be empty. `cause` is
    the part of the message that other errors of the same cause share, empty if there is none.
    """

    exit_code: Exit = Exit.BUG
    hint: Text = ""
    cause: str = ""

    def __init__(self, message: Text, *, hint: Text | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint

    @property
    def parts(self) -> "tuple[ReconcilerError, ...]":
        """The single errors that it is made of, each with its own hint; by default itself."""
        return (self,)


class UsageError(ReconcilerError):
    """The command was called with something that cannot mean anything; the hint tells what would."""

    exit_code = Exit.USAGE

    def __init__(self, message: Text, *, hint: Text) -> None:
        super().__init__(message, hint=hint)


class MissingEngineError(ReconcilerError):
    """A manifest has CEL expressions, and this platform has no engine that evaluates them."""

    exit_code = Exit.USAGE
    hint = "Run on Linux with glibc, macOS or Windows: cel-expr-python has wheels for these."

    def __init__(self) -> None:
        super().__init__("CEL expressions cannot be evaluated: cel-expr-python is not installed")


class ConfigurationError(ReconcilerError):
    """The run's own configuration is wrong, so no part of it can be trusted.

    `message` is the text without its place.
    """

    exit_code = Exit.INVALID_INPUT

    def __init__(self, message: Text, *, location: Location | None = None, hint: Text = "") -> None:
        super().__init__(f"{location}: {message}" if location else message, hint=hint)
        self.message = message
        self.location = location
        self._parts: tuple[ConfigurationError, ...] = ()

    @classmethod
    def join(cls, errors: Sequence[Self]) -> Self:
        """Return one error for several: a line for each, the place of the first, and the hints of all."""
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        joined = cls("\n".join(map(str, errors)), hint=" ".join(map(str, hints)))
        joined.location = errors[0].location
        joined._parts = tuple(errors)
        return joined

    @property
    def parts(self) -> "tuple[ConfigurationError, ...]":
        """The errors of single fields, in the order of their places."""
        return self._parts or (self,)


class UnavailableError(ReconcilerError):
    """A repository or forge could not be reached; the same run may succeed later."""

    exit_code = Exit.UNAVAILABLE
    hint = "Check the URL, the credentials and the network."


class RefusedError(ReconcilerError):
    """Doing what was asked would be unsafe, or is not what was reviewed."""

    exit_code = Exit.REFUSED


class ConflictError(ReconcilerError):
    """Another writer moved a ref first; nothing was written there and a new run decides again."""

    exit_code = Exit.UNAVAILABLE
    hint = "Run again: the next run reads the new state and decides anew."
