"""File globs: `*` within a directory, `**` over directories, `?`, `[a-z]`, `{a,b}`."""

import re
from typing import Final

_TOKENS: Final = re.compile(r"(/\*\*/|\*\*/|/\*\*|\*\*|\*|\?|\[[^\]]*\]|\{[^{}]*\})")
_WILD: Final = {
    "/**/": "/(?:.*/)?",
    "**/": "(?:.*/)?",
    "/**": "(?:/.*)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
}


def glob_pattern(text: str) -> str:
    """Return the regular expression of a glob, without nested braces.

    Source: bmatcuk/doublestar.
    """
    return "".join(_translated(token) for token in _TOKENS.split(text) if token)


def _translated(token: str) -> str:
    if token in _WILD:
        return _WILD[token]
    if token[0] == "[" and token[-1] == "]" and len(token) > 2:  # noqa: PLR2004 - more than the brackets
        body = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^{body[1:]}]" if body[0] in "!^" else f"[{body}]"
    if token[0] == "{" and token[-1] == "}":
        return f"(?:{'|'.join(glob_pattern(part) for part in token[1:-1].split(','))})"
    return re.escape(token)
