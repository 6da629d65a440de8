"""Lines of a text around a place."""

import re
from typing import Final

ODD_BREAK: Final = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
"""Line breaks of YAML 1.1 that nobody writes: lines are not where we look for them."""


def line_start(text: str, offset: int) -> int:
    """Return where the line of a place starts."""
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """Return where the line of a place ends, before its line break."""
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - 1 if end > offset and text[end - 1] == "\r" else end


def next_line(text: str, offset: int) -> int:
    """Return where the line after a place starts: the end of the text, if it is the last."""
    end = text.find("\n", offset)
    return len(text) if end < 0 else end + 1


def column_of(text: str, offset: int) -> int:
    """Return the column of a place, from 0."""
    return offset - line_start(text, offset)


def starts_line(text: str, offset: int) -> bool:
    """Tell whether nothing but spaces precedes a place on its line."""
    return not text[line_start(text, offset) : offset].strip(" ")
