"""Values of its own by which a package differs from others that are otherwise alike: mask and fill them."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, Self

import orjson
from msgspec import Struct

from reconciler.base.lazy import regex

_WORD: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_BEFORE: Final = _WORD | frozenset(b"\\!%")
"""Before a word: part of it, or a sign that makes an escape or a tag of YAML of it."""
_RUN: Final = regex(rb"[A-Za-z0-9_-]+")
_LONGEST_ESCAPE: Final = len("\\u0000")
"""Of JSON, in bytes."""
_SEARCHED_DEPTH: Final = 8
"""Of a definition, its properties: below, a search takes longer than it saves."""
_SEARCHED: Final = (
    *("Secret", "CustomResourceDefinition", "binary", "metadata", "kpt-merge", "kpt.dev"),
    *("pipeline", "validators", "reconciler.dev"),
)
"""Words that files are searched for; a value with one of them decides about more than itself."""
_SIMPLE: Final = regex(
    r"(?=[A-Za-z]|[0-9][A-Za-z0-9-]*[g-npqrsuvwyG-NPQRSUVWY])[A-Za-z0-9](?:[A-Za-z0-9./-]*[A-Za-z0-9])?"
)
"""Words that start with a letter, or have one that no number or time has."""
_READ_OTHERWISE: Final = regex(
    r"y|n|yes|no|on|off|true|false|null|inf|nan|e[0-9]+(?:\.[0-9]*)?"
    r"|kind|items|image|name|namespace|annotations|apiVersion|.*List",
    re.IGNORECASE,
)
"""Texts that YAML does not take for strings, by themselves or behind a dot; keys of manifests, and kinds."""


class OwnValues(Struct, frozen=True):
    """The own values of a package, such as the name of its repository: each once, in the order of roles.

    They are letters, digits, dots, slashes and hyphens, and part of a string wherever YAML has them:
    replacing one by another changes neither types nor quotes. Others are left out.
    """

    values: tuple[bytes, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> Self:
        """Return these values without those that YAML may read otherwise, or that files are searched for."""
        simple = (
            value
            for value in values
            if _SIMPLE.fullmatch(value) and not _READ_OTHERWISE.fullmatch(value)
            if not any(word in value for word in _SEARCHED)
        )
        return cls(tuple(dict.fromkeys(value.encode() for value in simple)))

    def mask(self, data: bytes) -> bytes:
        """Return the data with the place of its value for each whole word that is one.

        Of several at one place the longest counts. Data with a zero byte stays.
        """
        # A pattern would do the same, but compiling one for each package takes longer than all the rest.
        places = sorted(
            (start, -len(value), number)
            for number, value in enumerate(self.values)
            if value in data  # for most texts that is all
            for start in _words(data, value)
        )
        if not places or b"\0" in data:
            return data
        parts: list[bytes] = []
        end = 0
        for start, length, number in places:
            if start >= end:
                parts += (data[end:start], b"%d" % number)
                end = start - length
        return b"\0".join([*parts, data[end:]])

    def meets(self, words: Container[bytes]) -> bool:
        """Tell whether data may have any of these values, by its words."""
        return any(all(part in words for part in re.split(b"[./]", value)) for value in self.values)

    def fill(self, masked: bytes) -> bytes:
        """Return masked data with these values; data with zero bytes of its own, which `mask` left, stays."""
        parts = masked.split(b"\0")
        try:
            parts[1::2] = [self.values[int(number)] for number in parts[1::2]]
        except (ValueError, IndexError):
            return masked
        return b"".join(parts)

    def mask_text(self, text: str) -> str:
        """Return a text as `mask` returns its bytes."""
        return self.mask(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def mask_value(self, value: Any, depth: int = 0) -> Any:
        """Return a value with all texts masked, those of keys as well; a part without any is shared."""
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, Mapping):
            if depth < _SEARCHED_DEPTH and not self.may_be_in(value):
                return value
            return {self.mask_text(str(key)): self.mask_value(part, depth + 1) for key, part in value.items()}
        return [self.mask_value(part, depth + 1) for part in value] if isinstance(value, list) else value

    def may_be_in(self, value: object) -> bool:
        """Tell whether `mask_text` may change a text in a value: one search is faster than one of each."""
        try:
            data = orjson.dumps(value)
        except orjson.JSONEncodeError:
            return True
        # An escape in front of a word ends with a letter.
        return any(
            data[start - 1] not in _BEFORE or b"\\" in data[max(0, start - _LONGEST_ESCAPE) : start]
            for own_value in self.values
            for start in _found(data, own_value)
            if start + len(own_value) >= len(data) or data[start + len(own_value)] not in _WORD
        )

    def fill_text(self, masked: str) -> str:
        """Return a masked text with these values."""
        return self.fill(masked.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def fill_value(self, masked: Any) -> Any:
        """Return a value that `mask_value` made with these values; a text without any is shared."""
        if isinstance(masked, str):
            return self.fill_text(masked) if "\0" in masked else masked
        if isinstance(masked, Mapping):
            return {self.fill_value(str(key)): self.fill_value(part) for key, part in masked.items()}
        return [self.fill_value(part) for part in masked] if isinstance(masked, list) else masked


def words_in(data: bytes) -> frozenset[bytes]:
    """Return the words of data: a value can only be a word there if each of its parts is among them."""
    return frozenset(_RUN.findall(data))


def _words(data: bytes, value: bytes) -> Iterator[int]:
    """Yield the start of each occurrence of a value that is a word of its own."""
    for start in _found(data, value):
        end = start + len(value)
        if not (start and data[start - 1] in _BEFORE) and not (end < len(data) and data[end] in _WORD):
            yield start


def _found(data: bytes, value: bytes) -> Iterator[int]:
    start = data.find(value)
    while start >= 0:
        yield start
        start = data.find(value, start + 1)
