"""Make hostile names harmless: what a terminal, Markdown or a CI log would obey is shown, not sent."""

import re
from functools import cache

_HIDDEN = (
    *range(0x20),  # C0: escape sequences, carriage returns, bells
    *range(0x7F, 0xA0),  # DEL and C1
    0x00AD,  # soft hyphen
    0x061C,  # Arabic letter mark
    *range(0x200B, 0x2010),  # zero width, left-to-right and right-to-left marks
    *range(0x2028, 0x202F),  # line separators, bidirectional embeddings and overrides
    *range(0x2060, 0x2070),  # word joiners, bidirectional isolates
    0xFEFF,  # byte order mark
    *range(0xFFF9, 0xFFFC),  # interlinear annotation
    *range(0xD800, 0xE000),  # lone surrogates of undecodable bytes
    *range(0xE0000, 0xE0080),  # tags
)


def _visible(code: int) -> str:
    if code < 0x100:  # noqa: PLR2004 - two hexadecimal digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - the basic plane


@cache
def _visible_characters() -> dict[int, str]:
    return {code: _visible(code) for code in _HIDDEN}


_TICKS = re.compile("`+")
_COMMAND = re.compile(r"(?m)^([^\S\n]*)(::|##\[)")


def terminal(text: str) -> str:
    """Return `text` on one line with every control, bidirectional and invisible character spelled out.

    Total and idempotent: printable text is returned unchanged.
    """
    # Most texts are plain ASCII, with nothing to translate.
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_visible_characters())


def message_line(text: str) -> str:
    """Return a message on one line: its line breaks become spaces, the rest is as `terminal` returns it."""
    return terminal(" ".join(text.splitlines()))


def code(text: str) -> str:
    """Return `text` as a Markdown code span that nothing inside can end.

    Mentions, references, links, HTML and hidden comments are inert in a code span.
    """
    shown = terminal(text)
    if not shown:
        return ""
    fence = "`" * (1 + _longest_ticks(shown))
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def cell(text: str) -> str:
    """Return `text` as a code span inside a Markdown table, where a bar would end the cell."""
    return code(text).replace("|", "\\|")


def block(text: str, language: str = "") -> str:
    """Return lines as a fenced code block that nothing inside can end; every line stays a line."""
    # Most texts are plain ASCII, with nothing to translate in any line.
    is_plain = text.isascii() and text.replace("\n", "").isprintable()
    shown = text if is_plain else "\n".join(map(terminal, text.split("\n")))
    fence = "`" * max(3, 1 + _longest_ticks(shown))
    return f"{fence}{language}\n{shown}\n{fence}"


def _longest_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0) if "`" in text else 0


def inert(text: str) -> str:
    """Return `text` with no line that a CI runner would take for a command (`::set-output`, `##[group]`).

    Idempotent; a runner looks at the first characters of a line only.
    """
    return _COMMAND.sub(r"\1\\\2", text)
