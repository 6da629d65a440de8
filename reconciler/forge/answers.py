"""Answers of a forge that are not what its API describes: of one pull request, or of the whole forge."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, cast

from reconciler.errors import UnavailableError
from reconciler.forge.remote import Dialect, Seen
from reconciler.inventory import PullState

_WRONG = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What reading fields that are missing, or of another type, raises."""


def read_seen(item: Any, read: Callable[[Any], Seen], number: str, head: Callable[[Any], Any]) -> Seen:
    """Return a pull request of a list; one with wrong fields keeps its number and head alone.

    Args:
        item: The answer.
        read: Reads a right one.
        number: The field that numbers it.
        head: Returns the name of its branch.

    Raises: whatever reading raises, if not even its head is legible: then the list means nothing.
    """
    try:
        return _well_typed(read(item))
    except _WRONG as error:
        name = head(item)
        if not isinstance(name, str) or not isinstance(item[number], int):
            raise
        why = f"the forge's answer is not as its API describes it ({_words(error)})"
        return Seen(item[number], name, "", "", "", False, PullState.CLOSED, "", unreadable=why)


def _well_typed(seen: Seen) -> Seen:
    """Return a pull request whose fields have the types that everything after relies on."""
    texts = [seen.head, seen.base, seen.title, seen.body, seen.head_oid, seen.merge_oid, seen.url, seen.key]
    wrong = [type(value).__name__ for value in (*texts, *seen.labels) if type(value) is not str]
    if wrong or type(seen.number) is not int:
        raise TypeError(f"{wrong[0]} instead of text" if wrong else "its number is none")
    return seen


def checked(dialect: Dialect) -> Dialect:
    """Return a dialect whose every answer is read or makes its forge unavailable, never a traceback."""
    return cast("Dialect", _Checked(dialect))


class _Checked:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._dialect, name)
        return _guarded(found, self._dialect.name) if callable(found) else found


def _guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def guarded(*arguments: Any, **named: Any) -> Any:
        try:
            result = call(*arguments, **named)
        except _WRONG as error:
            raise _unavailable(name, error) from error
        return _items(result, name) if isinstance(result, Iterator) else result

    return guarded


def _items(result: Iterator[Any], name: str) -> Iterator[Any]:
    try:
        yield from result
    except _WRONG as error:
        raise _unavailable(name, error) from error


def _unavailable(name: str, error: Exception) -> UnavailableError:
    message = f"{name}: the forge's answer is not as its API describes it ({_words(error)})"
    return UnavailableError(message, hint="Check spec.forges: is the API of this kind, at this address?")


def _words(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
