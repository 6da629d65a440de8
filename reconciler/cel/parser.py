"""Parse the text of an expression into a syntax tree: tokens in linear time, then recursive descent.

Source: langdef.md of cel-spec, "Syntax".
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from reconciler.base.lazy import lazy_pattern
from reconciler.base.wording import plural
from reconciler.cel.syntax import (
    Call,
    CelError,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Message,
    Name,
    Node,
    Select,
    decode_number,
    decode_string,
)
from reconciler.policy import Limits

MAX_TOKENS = 1000
MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "in"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
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
_TOKEN = lazy_pattern(
    rf"(?P<blank>[\t\n\f\r ]+|//[^\n]*)|(?P<string>{_STRING})"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)"
    r"|(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)"
    r"|(?P<symbol>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}])",
    re.DOTALL,
)
_KEYWORDS = {"true": True, "false": False, "null": None}
_OPEN = {")": "(", "]": "[", "}": "{"}
_LEVELS = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
"""How tightly a binary operator binds."""
_END = ""


class Lexeme(NamedTuple):
    """One token: its kind (`string`, `number`, `name`, `symbol`), text and offset."""

    kind: str
    text: str
    start: int


def scan(text: str, limits: Limits) -> tuple[Lexeme, ...]:
    """Return the tokens of an expression, without blanks and comments. Linear in the text.

    Raises:
        CelError: The text is too long, nests too deeply, has too many tokens, or a
            character starts none.
    """
    # JSON can escape a lone surrogate, which cannot be encoded as UTF-8.
    if len(text) <= limits.expression_bytes and any("\ud800" <= character <= "\udfff" for character in text):
        raise CelError("Syntax error: an unpaired surrogate is no character", 0)
    if len(text) > limits.expression_bytes or len(text.encode()) > limits.expression_bytes:
        raise CelError(f"The expression is longer than {plural(limits.expression_bytes, 'byte')}", 0)
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"Syntax error: {_describe_error(text, position)}", position)
        if match.lastgroup != "blank":
            tokens.append(Lexeme(str(match.lastgroup), match.group(), position))
        position = match.end()
    if len(tokens) > MAX_TOKENS:
        raise CelError(f"The expression has more than {MAX_TOKENS} tokens", tokens[MAX_TOKENS].start)
    _check_brackets(tokens, limits.expression_depth, len(text))
    return tuple(tokens)


def parse(text: str, limits: Limits) -> Node:
    """Parse an expression.

    Raises:
        CelError: It is not CEL, or beyond one of the limits.
    """
    tokens = (*scan(text, limits), Lexeme("end", _END, len(text)))
    return _Parser(tokens, limits.expression_depth).parse()


class _Term(NamedTuple):
    """A part of the expression: where its text starts, parentheses included, and how many levels it has."""

    start: int
    node: Node
    height: int = 0


class _Parser:
    """One method per level of the grammar; `depth` counts the levels above."""

    def __init__(self, tokens: tuple[Lexeme, ...], limit: int) -> None:
        self.tokens = tokens
        self.place = 0
        self.limit = limit

    def parse(self) -> Node:
        term = self.conditional(0)
        self.expect(_END)
        return term.node

    def conditional(self, depth: int) -> _Term:
        condition = self.binary(1, depth)
        if not self.accept("?"):
            return condition
        yes = self.binary(1, depth + 1)
        self.expect(":")
        no = self.conditional(depth + 1)
        return self.call(depth, "_?_:_", condition, yes, no)

    def binary(self, least: int, depth: int) -> _Term:
        """Parse operators that bind at least so tightly; those of one level from the left."""
        left = self.unary(depth)
        while (level := _LEVELS.get(self.token.text, 0)) >= least:
            operator = self.advance().text
            left = self.call(depth, f"_{operator}_", left, self.binary(level + 1, depth + 1))
        return left

    def unary(self, depth: int) -> _Term:
        if self.token.text not in {"!", "-"} or self.is_negative_number():
            return self.member(depth)
        operator = self.advance()
        operand = self.unary(self.deeper(depth, operator))
        return self.call(depth, f"{operator.text}_", operand._replace(start=operator.start))

    def member(self, depth: int) -> _Term:
        term = self.primary(depth)
        while True:
            if self.accept("."):
                term = self.field(term, depth)
            elif self.accept("["):
                index = self.conditional(depth + 1)
                self.expect("]")
                term = self.call(depth, "_[_]", term, index)
            elif self.accept("{"):
                term = self.message(term, depth)
            else:
                return term

    def field(self, operand: _Term, depth: int) -> _Term:
        name = self.identifier()
        if not self.accept("("):
            return self.term(depth, operand.start, Select(name.start, operand.node, name.text), operand)
        arguments = tuple(self.list_until(")", depth))
        nodes = tuple(argument.node for argument in arguments)
        if name.text in MACROS and len(nodes) in ((2, 3) if name.text == "map" else (2,)):
            node: Node = _macro(name, operand.node, nodes)
        else:
            node = Call(name.start, name.text, (operand.node, *nodes), method=True)
        return self.term(depth, operand.start, node, operand, *arguments)

    def message(self, operand: _Term, depth: int) -> _Term:
        name = _dotted(operand.node)
        fields: list[tuple[str, Node]] = []
        values = []
        while not self.accept("}"):
            if fields:
                self.expect(",")
                if self.accept("}"):
                    break
            field = self.identifier()
            self.expect(":")
            values.append(self.conditional(depth + 1))
            fields.append((field.text, values[-1].node))
        return self.term(depth, operand.start, Message(operand.start, name, tuple(fields)), operand, *values)

    def primary(self, depth: int) -> _Term:
        token = self.token
        self.deeper(depth - 1, token)
        if token.kind in {"number", "string"} or token.text in {"-", *_KEYWORDS}:
            return _Term(token.start, self.literal())
        if self.accept("("):
            inner = self.conditional(depth + 1)
            self.expect(")")
            return self.term(depth, token.start, inner.node, inner)
        if self.accept("["):
            items = tuple(self.list_until("]", depth))
            node = ListOf(token.start, tuple(item.node for item in items))
            return self.term(depth, token.start, node, *items)
        if self.accept("{"):
            return self.mapping(token.start, depth)
        self.accept(".")
        return self.name(token.start, depth)

    def literal(self) -> Literal:
        start = self.token.start
        sign = "-" if self.accept("-") else ""
        token = self.advance()
        if token.kind == "number":
            return Literal(start, decode_number(sign + token.text, start))
        if token.kind == "string":
            return Literal(start, decode_string(token.text, start))
        return Literal(start, _KEYWORDS[token.text])

    def mapping(self, start: int, depth: int) -> _Term:
        entries: list[tuple[_Term, _Term]] = []
        while not self.accept("}"):
            if entries:
                self.expect(",")
                if self.accept("}"):
                    break
            key = self.conditional(depth + 1)
            self.expect(":")
            entries.append((key, self.conditional(depth + 1)))
        node = MapOf(start, tuple((key.node, value.node) for key, value in entries))
        return self.term(depth, start, node, *(term for entry in entries for term in entry))

    def name(self, start: int, depth: int) -> _Term:
        """Parse a name or a call; one that starts with a dot is no variable of a macro."""
        name = self.identifier()
        if self.accept("("):
            arguments = tuple(self.list_until(")", depth))
            return self.term(depth, start, _call(name, arguments), *arguments)
        if name.text in RESERVED:
            raise CelError(f"Syntax error: reserved identifier '{name.text}'", name.start)
        return _Term(start, Name(name.start, name.text if start == name.start else f".{name.text}"))

    def list_until(self, end: str, depth: int) -> Iterator[_Term]:
        """Yield what commas separate; a list may end with one, the arguments of a call may not."""
        if self.accept(end):
            return
        yield self.conditional(depth + 1)
        while not self.accept(end):
            self.expect(",")
            if end == "]" and self.accept(end):
                return
            yield self.conditional(depth + 1)

    def call(self, depth: int, function: str, *operands: _Term) -> _Term:
        start = operands[0].start
        node = Call(start, function, tuple(operand.node for operand in operands))
        return self.term(depth, start, node, *operands)

    def term(self, depth: int, start: int, node: Node, *parts: _Term) -> _Term:
        height = max((part.height + 1 for part in parts), default=0)
        if depth + height > self.limit:
            raise CelError(f"More than {self.limit} terms are nested or chained", start)
        return _Term(start, node, height)

    def deeper(self, depth: int, token: Lexeme) -> int:
        if depth >= self.limit:
            raise CelError(f"More than {self.limit} terms are nested or chained", token.start)
        return depth + 1

    @property
    def token(self) -> Lexeme:
        return self.tokens[self.place]

    def is_negative_number(self) -> bool:
        token = self.token
        following = self.tokens[self.place + 1] if token.text == "-" else token
        return token.text == "-" and following.kind == "number" and following.start == token.start + 1

    def advance(self) -> Lexeme:
        self.place += 1
        return self.tokens[self.place - 1]

    def accept(self, text: str) -> bool:
        if self.token.text != text:
            return False
        self.place += 1
        return True

    def expect(self, text: str) -> None:
        if self.token.text != text:
            raise self.unexpected()
        self.place += 1

    def identifier(self) -> Lexeme:
        if self.token.kind != "name" or self.token.text == "in" or self.token.text in _KEYWORDS:
            raise self.unexpected()
        return self.advance()

    def unexpected(self) -> CelError:
        what = self.token.text[:20] or "end of the expression"
        return CelError(f"Syntax error: unexpected {what}", self.token.start)


def _call(name: Lexeme, arguments: tuple[_Term, ...]) -> Node:
    nodes = tuple(argument.node for argument in arguments)
    if name.text != "has" or len(nodes) != 1:
        return Call(name.start, name.text, nodes)
    if not isinstance(nodes[0], Select):
        raise CelError("The argument of has() must be a field, as in has(target.labels.x)", name.start)
    return Select(name.start, nodes[0].operand, nodes[0].field, test=True)


def _macro(name: Lexeme, operand: Node, arguments: tuple[Node, ...]) -> Macro:
    variable, *rest = arguments
    if not isinstance(variable, Name) or variable.name.startswith("__"):
        raise CelError(f"The first argument of {name.text}() must be a simple name", variable.offset)
    return Macro(name.start, name.text, operand, variable.name, tuple(rest))


def _dotted(node: Node) -> str:
    match node:
        case Name(name=name):
            return name
        case Select(operand=operand, field=field, test=False):
            return f"{_dotted(operand)}.{field}"
    raise CelError("Syntax error: '{' follows something that is not a message name", node.offset)


def _check_brackets(tokens: list[Lexeme], depth: int, end: int) -> None:
    stack: list[Lexeme] = []
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
