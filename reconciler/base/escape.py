"""Make hostile names harmless: what a terminal, Markdown or a CI log would obey is shown, not sent."""

import re

from reconciler.base.text import Text
from reconciler.base.wording import visible

_TICKS = re.compile("`+")
_COMMAND = re.compile(r"(?m)^([^\S\n]*)(::|##\[)")


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
