"""Numbers with their nouns, times, and characters that are not seen, as every text writes them."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

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


def some(texts: Sequence[str], most: int) -> str:
    """Return the first texts, and how many more there are: `a, b and 3 more`."""
    listed, more = ", ".join(texts[:most]), len(texts) - most
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


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of what is obeyed or not seen: controls, bidirectional and other marks, lone surrogates."""
_IGNORED: Final = re.compile(
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
