"""Rules for the words of user documentation: no internal numbers, plain words."""

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

INTERNAL = re.compile(r"\b(?:D\d{1,2}|[Ll]aws? \d|[Dd]ecisions? \d|[Ss]eed(?:s|'s)?|R\d{2,3})\b")
"""Numbers of our design and requirements, which mean nothing to a user."""

PLAIN = {
    r"e\.g\.": "for example",
    r"etc\.": "and what else, or nothing",
    r"for ever": "forever, or how long",
    r"hence": "so",
    r"i\.e\.": "that is",
    r"in order to": "to",
    r"leverages?": "use",
    r"obviously": "nothing",
    r"please": "nothing",
    r"simply": "nothing",
    r"thereof": "of it",
    r"thus": "so",
    r"utili[sz]es?": "use",
    r"via": "by, or through",
    r"whoever": "a person who, or what",
}
"""Words that are never needed, each with what to write instead."""
_PLAIN = re.compile("|".join(rf"(?<![\w.])(?:{word})(?!\w)" for word in PLAIN), re.IGNORECASE)


def findings(text: str) -> Iterator[str]:
    """Yield what is wrong with the prose of a page, each with its line."""
    for line, prose in _blocks(text):
        for match in INTERNAL.finditer(prose):
            yield f"{line}: {match[0]} is a number of ours"
        for match in _PLAIN.finditer(prose):
            yield f"{line}: {match[0]}: write {_instead(match[0])}"


def _instead(word: str) -> str:
    return next(text for pattern, text in PLAIN.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every paragraph, item and cell; `§` stands for a span of code."""
    line = 0
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        line = token.map[0] + 1 if token.map else line
        if token.type == "inline":
            yield line, "".join(_spans(token.children or []))


def _spans(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "text":
            yield token.content
        elif token.type == "code_inline":
            yield "§"
        elif token.type in {"softbreak", "hardbreak"}:
            yield " "
