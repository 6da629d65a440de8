"""Texts for people: numbers with their nouns, times, and hostile characters made harmless."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from reconciler.base.lazy import regex

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


_VOWELS = "aeiou"
LATEST_S = 253_402_300_799
"""The last second of the year 9999, the last one that has a text."""


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: `1 repository`, `2 repositories`."""
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}s"


def some(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first texts, and how many more there are: `a, b and 3 more`."""
    listed, more = separator.join(texts[:most]), len(texts) - most
    return f"{listed} and {more} more" if more > 0 else listed


def words(name: str) -> str:
    """Return a name in CamelCase as words: `InvalidYAML` as `invalid YAML`."""
    parts = re.findall(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]*", name)
    return " ".join(part if part.isupper() else part.lower() for part in parts)


def verb(number: int, singular: str, otherwise: str) -> str:
    """Return the form of a verb for a number of things: `is` or `are`."""
    return singular if number == 1 else otherwise


def time_text(seconds: int) -> str:
    """Return a time as people read it; what no calendar has is its nearest end. Total."""
    return datetime.fromtimestamp(min(max(seconds, 0), LATEST_S), UTC).strftime("%Y-%m-%d %H:%M UTC")


def age_text(since: int, now: float) -> str:
    """Return how long ago a time was: `<1 h`, `3 h`, `2 d`. Total."""
    hours = max(0, int(now - since)) // 3600
    return f"{hours // 24} d" if hours >= 48 else f"{hours or '<1'} h"  # noqa: PLR2004 - two days


def date_text(since: int, now: float = 0) -> str:
    """Return the date of a time, or with a clock its age; "" for 0, which is unknown."""
    if not since:
        return ""
    return age_text(since, now) if now else str(datetime.fromtimestamp(since, UTC).date())


def iso_time(seconds: int) -> str | None:
    """Return a time as ISO 8601; None for 0, which is unknown."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of what is obeyed or not seen: controls, bidirectional and other marks, lone surrogates."""
_IGNORED: Final = regex(
    r"VARIATION SELECTOR|HANGUL .*FILLER|GRAPHEME JOINER|VOWEL INHERENT|BRAILLE PATTERN BLANK"
)
"""Names of the characters of other categories that are drawn as nothing; a name never changes."""
_RESERVED: Final = (range(0x2060, 0x2070), range(0xFFF0, 0xFFF9), range(0xE0000, 0xE1000))
"""Code points that are drawn as nothing even before Unicode assigns them.

Source: Unicode, DerivedCoreProperties, Default_Ignorable_Code_Point, which Python does not have.
"""


def _is_hidden(code: int) -> bool:
    character = chr(code)
    if unicodedata.category(character) in _HIDDEN or any(code in characters for characters in _RESERVED):
        return True
    return _IGNORED.search(unicodedata.name(character, "")) is not None


class _VisibleCharacters(dict[int, str]):
    """How each character is shown, decided when it is first met: deciding about all takes half a second."""

    def __missing__(self, code: int) -> str:
        visible = self[code] = _visible(code) if _is_hidden(code) else chr(code)
        return visible


def _visible(code: int) -> str:
    if code < 0x100:  # noqa: PLR2004 - two hexadecimal digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - the basic plane


_VISIBLE: Final = _VisibleCharacters()


def visible(text: str) -> str:
    """Return text on one line with every control, bidirectional and invisible character spelled out.

    Total and idempotent: printable text is returned unchanged.
    """
    # Most texts are plain ASCII, with nothing to translate.
    return text if text.isascii() and text.isprintable() else text.translate(_VISIBLE)


class _JsonSpelling(dict[int, str]):
    """How each character is written in JSON text: what `visible` spells out as an escape of JSON."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        units = character.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
        is_kept = character == "\n" or _VISIBLE[code] == character
        spelling = self[code] = character if is_kept else "".join(f"\\u{unit}" for unit in units)
        return spelling


_JSON: Final = _JsonSpelling()


def json_text(text: str) -> str:
    """Return JSON text with escapes of JSON for what `visible` spells out; its value stays the same."""
    return text if text.isascii() and "\x7f" not in text else text.translate(_JSON)


_TICKS = regex("`+")
_COMMAND = regex(r"(?m)^([^\S\n]*)(::|##\[)")


def terminal(text: Text) -> str:
    """Return `text` on one line with every control, bidirectional and invisible character spelled out.

    Total and idempotent: printable text is returned unchanged.
    """
    return visible(str(text))


def is_visible(character: str) -> bool:
    """Return whether a character is shown as itself: printable, and nothing that `terminal` spells out."""
    return character.isprintable() and terminal(character) == character


def message_line(text: Text) -> str:
    """Return a message on one line: its line breaks become spaces, the rest is as `terminal` returns it."""
    return terminal(" ".join(text.splitlines()))


def code(text: str) -> str:
    """Return `text` as a Markdown code span that nothing inside can end.

    Mentions, references, links, HTML and hidden comments are inert in a code span.
    """
    escaped = terminal(text)
    if not escaped:
        return ""
    fence = "`" * (1 + _longest_ticks(escaped))
    pad = " " if escaped[0] in "` " or escaped[-1] in "` " else ""
    return f"{fence}{pad}{escaped}{pad}{fence}"


_MARKUP = regex(r"[\\`*{}\[\]#|~>]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-=+]|(?<=^\d)[.)]")
_LINKED = regex(r"[^\s()\[\]]*(?:@|://|www\.)[^\s()\[\]]*[^\s()\[\].,;:]|@")
"""A word that a forge would make a link or a mention of."""


def prose(text: str) -> str:
    """Return `text` as Markdown that reads as a sentence, with what is between backticks as code.

    Markup and HTML are inert in it, and addresses and mentions are code.
    """
    parts = terminal(text).split("`")
    if len(parts) % 2 == 0 or "" in parts[1::2]:
        return _escaped("`".join(parts))
    return "".join(code(part) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    linked = _LINKED.search(text)
    if linked:
        before, after = text[: linked.start()], text[linked.end() :]
        return f"{_escaped(before)}{code(linked.group())}{_escaped(after)}"
    return _MARKUP.sub(r"\\\g<0>", text.replace("&", "&amp;").replace("<", "&lt;"))


def cell(text: str) -> str:
    """Return `text` as a code span inside a Markdown table, where a bar would end the cell."""
    return code(text).replace("|", "\\|")


def block(text: str, language: str = "") -> str:
    """Return lines as a fenced code block that nothing inside can end; every line stays a line."""
    # Most texts are plain ASCII, with nothing to translate in any line.
    is_plain = text.isascii() and text.replace("\n", "").isprintable()
    escaped = text if is_plain else "\n".join(map(terminal, text.split("\n")))
    fence = "`" * max(3, 1 + _longest_ticks(escaped))
    return f"{fence}{language}\n{escaped}\n{fence}"


def _longest_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0) if "`" in text else 0


def inert(text: str) -> str:
    """Return `text` with no line that a CI runner would take for a command (`::set-output`, `##[group]`).

    Idempotent; a runner looks at the first characters of a line only.
    """
    return _COMMAND.sub(r"\1\\\2", text)
