"""Texts for people: what code asks is a field, an enum or a record, never the words of a text (D40)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:

    class Text(Protocol):
        """A text that is printed and joined; mypy refuses to search it or to take it apart.

        Every `str` is one. A function that takes a `str` does not take it, so its words decide nothing.
        """

        def __str__(self) -> str: ...
        def __len__(self) -> int: ...
        def splitlines(self) -> list[str]:
            """Return its lines, which a printer indents."""
            ...

else:
    Text = str


def join_texts(separator: str, texts: Iterable[Text]) -> str:
    """Return the texts that are not empty as one."""
    return separator.join(str(text) for text in texts if text)
