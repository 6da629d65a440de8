"""Split an expression into tokens in linear time, and make a copy of it that is safe to parse.

cel-python's lexer backtracks exponentially on backslashes, so it never sees the inside of a
string: strings and comments are blanked out here, at the same length, and strings are decoded
by `literals`.
"""

import re
from typing import NamedTuple

from reconciler.cel.errors import CelError
from reconciler.policy import Limits

MAX_TOKENS = 1000

_STRING = (
    r'[bB]?[rR]"""(?:[^"]|"(?!""))*"""'
    r"|[bB]?[rR]'''(?:[^']|'(?!''))*'''"
    r'|[bB]?"""(?:[^"\\]|\\.|"(?!""))*"""'
    r"|[bB]?'''(?:[^'\\]|\\.|'(?!''))*'''"
    r'|[bB]?[rR]"[^"\n\r]*"'
    r"|[bB]?[rR]'[^'\n\r]*'"
    r'|[bB]?"(?:[^"\\\n\r]|\\[^\n\r])*"'
    r"|[bB]?'(?:[^'\\\n\r]|\\[^\n\r])*'"
)
_TOKEN = re.compile(
    rf"(?P<blank>[\t\n\f\r ]+|//[^\n]*)|(?P<string>{_STRING})"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)"
    r"|(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)"
    r"|(?P<symbol>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}])",
    re.DOTALL,
)
_OPEN = {")": "(", "]": "[", "}": "{"}


class Token(NamedTuple):
    """One token: its kind (`string`, `number`, `name`, `symbol`), text and offset."""

    kind: str
    text: str
    start: int


def scan(text: str, limits: Limits) -> tuple[Token, ...]:
    """Return the tokens of an expression, without blanks and comments. Linear in the text.

    Raises:
        CelError: The text is too long, nests too deeply, has too many tokens, or a
            character starts none.
    """
    if len(text) <= limits.expression_bytes and any("\ud800" <= character <= "\udfff" for character in text):
        raise CelError("Syntax error: an unpaired surrogate is no character", 0)
    if len(text) > limits.expression_bytes or len(text.encode()) > limits.expression_bytes:
        raise CelError(f"The expression is longer than {limits.expression_bytes} bytes", 0)
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"Syntax error: {_describe_error(text, position)}", position)
        if match.lastgroup != "blank":
            tokens.append(Token(str(match.lastgroup), match.group(), position))
        position = match.end()
    if len(tokens) > MAX_TOKENS:
        raise CelError(f"The expression has more than {MAX_TOKENS} tokens", tokens[MAX_TOKENS].start)
    _check_brackets(tokens, limits.expression_depth, len(text))
    return tuple(tokens)


def mask(text: str, tokens: tuple[Token, ...]) -> str:
    """Blank out strings and comments; the text keeps its length and lines.

    A comma before a closing bracket, which CEL allows in lists, maps and messages, is blanked too.
    """
    out = [character if character in "\r\n" else " " for character in text]
    for index, token in enumerate(tokens):
        masked = _mask_string(token.text) if token.kind == "string" else token.text
        if token.text == "," and index + 1 < len(tokens) and tokens[index + 1].text in {"]", "}"}:
            masked = " " if index and tokens[index - 1].text not in {"[", "{", ","} else ","
        out[token.start : token.start + len(token.text)] = masked
    return "".join(out)


def _mask_string(text: str) -> str:
    prefix = text[0] if text[0] in "bB" else ""
    quote = text[-1]
    fence = quote * 3 if text.endswith(quote * 3) and len(text.lstrip("bBrR")) >= 6 else quote  # noqa: PLR2004
    inside = text[len(prefix) + len(fence) : len(text) - len(fence)]
    blank = "".join(character if character in "\r\n" else "_" for character in inside)
    return f"{prefix}{fence}{blank}{fence}"


def _check_brackets(tokens: list[Token], depth: int, end: int) -> None:
    stack: list[Token] = []
    for token in tokens:
        if token.kind != "symbol":
            continue
        if token.text in "([{":
            stack.append(token)
            if len(stack) > depth:
                raise CelError(f"More than {depth} terms are nested or chained", token.start)
        elif token.text in _OPEN and (not stack or stack.pop().text != _OPEN[token.text]):
            raise CelError(f"Syntax error: '{token.text}' has no opening bracket", token.start)
    if stack:
        raise CelError(f"Syntax error: '{stack[-1].text}' is never closed", min(stack[-1].start, end))


def _describe_error(text: str, position: int) -> str:
    character = text[position]
    if character in "'\"":
        return "a string is never closed"
    return f"unexpected character {character!r}"
