"""Parse the text of an expression into a syntax tree, with cel-python's parser.

cel-python's lexer backtracks exponentially on backslashes, so it never sees the inside of a string:
the text is split into tokens here in linear time, strings and comments are masked at the same length,
and strings are decoded by `syntax`. Importing cel-python's grammar takes a fifth of a second, so this
module is imported for the first expression.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import celpy.celparser
from lark import Token, Tree

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
_TOKEN = re.compile(
    rf"(?P<blank>[\t\n\f\r ]+|//[^\n]*)|(?P<string>{_STRING})"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)"
    r"|(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)"
    r"|(?P<symbol>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}])",
    re.DOTALL,
)
_OPEN = {")": "(", "]": "[", "}": "{"}
_CHAIN = frozenset(
    {
        *("expr", "conditionalor", "conditionaland", "relation", "addition"),
        *("multiplication", "unary", "member", "primary"),
    }
)
_OPERATORS = {
    "relation_lt": "_<_",
    "relation_le": "_<=_",
    "relation_gt": "_>_",
    "relation_ge": "_>=_",
    "relation_eq": "_==_",
    "relation_ne": "_!=_",
    "relation_in": "_in_",
    "addition_add": "_+_",
    "addition_sub": "_-_",
    "multiplication_mul": "_*_",
    "multiplication_div": "_/_",
    "multiplication_mod": "_%_",
}


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
        raise CelError(f"The expression is longer than {limits.expression_bytes} bytes", 0)
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


def mask(text: str, tokens: tuple[Lexeme, ...]) -> str:
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


def parse(text: str, limits: Limits) -> Node:
    """Parse an expression.

    Raises:
        CelError: It is not CEL, or beyond one of the limits.
    """
    tokens = scan(text, limits)
    strings = {token.start: token.text for token in tokens if token.kind == "string"}
    parser = celpy.celparser.CELParser()
    try:
        tree = parser.parse(mask(text, tokens))
    except celpy.celparser.CELParseError as error:
        raise _syntax_error(text, tokens, error) from error
    return _Builder(strings, limits.expression_depth).build(tree)


class _Builder:
    """Convert lark's tree, skipping levels of the grammar that have a single child."""

    def __init__(self, strings: Mapping[int, str], depth: int) -> None:
        self.strings = strings
        self.limit = depth

    def build(self, tree: Tree[Token], depth: int = 0) -> Node:
        # The grammar has one level per operator precedence; a level without operator has one child.
        while tree.data in _CHAIN and len(tree.children) == 1:
            tree = _tree(tree.children[0])
        if depth > self.limit:
            raise CelError(f"More than {self.limit} terms are nested or chained", _start(tree))
        return _BUILDERS[tree.data](self, tree, depth)

    def condition(self, tree: Tree[Token], depth: int) -> Node:
        return Call(
            _start(tree), "_?_:_", tuple(self.build(_tree(child), depth + 1) for child in tree.children)
        )

    def logic(self, tree: Tree[Token], depth: int) -> Node:
        operator = "_||_" if tree.data == "conditionalor" else "_&&_"
        return Call(
            _start(tree), operator, tuple(self.build(_tree(child), depth + 1) for child in tree.children)
        )

    def binary(self, tree: Tree[Token], depth: int) -> Node:
        left, right = _tree(tree.children[0]), _tree(tree.children[1])
        operands = (self.build(_tree(left.children[0]), depth + 1), self.build(right, depth + 1))
        return Call(_start(tree), _OPERATORS[left.data], operands)

    def unary(self, tree: Tree[Token], depth: int) -> Node:
        operator = "!_" if _tree(tree.children[0]).data == "unary_not" else "-_"
        return Call(_start(tree), operator, (self.build(_tree(tree.children[1]), depth + 1),))

    def select(self, tree: Tree[Token], depth: int) -> Node:
        field = _token(tree.children[1])
        return Select(_start(field), self.build(_tree(tree.children[0]), depth + 1), field.value)

    def index(self, tree: Tree[Token], depth: int) -> Node:
        return Call(
            _start(tree), "_[_]", tuple(self.build(_tree(child), depth + 1) for child in tree.children)
        )

    def method(self, tree: Tree[Token], depth: int) -> Node:
        target = self.build(_tree(tree.children[0]), depth + 1)
        name = _token(tree.children[1])
        arguments = self.arguments(tree.children[2:], depth)
        if name.value in MACROS and len(arguments) in ((2, 3) if name.value == "map" else (2,)):
            return _macro(name, target, arguments)
        return Call(_start(name), name.value, (target, *arguments), method=True)

    def function(self, tree: Tree[Token], depth: int) -> Node:
        name = _token(tree.children[0])
        arguments = self.arguments(tree.children[1:], depth)
        if name.value == "has" and len(arguments) == 1:
            if not isinstance(arguments[0], Select):
                raise CelError(
                    "The argument of has() must be a field, as in has(target.labels.x)", _start(name)
                )
            return Select(_start(name), arguments[0].operand, arguments[0].field, test=True)
        return Call(_start(name), name.value, arguments)

    def arguments(self, trees: list[Any], depth: int) -> tuple[Node, ...]:
        return tuple(self.build(_tree(child), depth + 1) for tree in trees for child in tree.children)

    def parentheses(self, tree: Tree[Token], depth: int) -> Node:
        return self.build(_tree(tree.children[0]), depth + 1)

    def sequence(self, tree: Tree[Token], depth: int) -> Node:
        return ListOf(_start(tree), self.arguments(tree.children, depth))

    def mapping(self, tree: Tree[Token], depth: int) -> Node:
        nodes = self.arguments(tree.children, depth)
        return MapOf(_start(tree), tuple(zip(nodes[::2], nodes[1::2], strict=True)))

    def message(self, tree: Tree[Token], depth: int) -> Node:
        name = _dotted(self.build(_tree(tree.children[0]), depth + 1))
        inits = _tree(tree.children[1]).children if len(tree.children) > 1 else []
        fields = tuple(
            (_token(field).value, self.build(_tree(value), depth + 1))
            for field, value in zip(inits[::2], inits[1::2], strict=True)
        )
        return Message(_start(tree), name, fields)

    def name(self, tree: Tree[Token], _depth: int) -> Node:
        token = _token(tree.children[-1])
        if token.value in RESERVED:
            raise CelError(f"Syntax error: reserved identifier '{token.value}'", _start(token))
        return Name(_start(token), f".{token.value}" if tree.data == "dot_ident" else token.value)

    def literal(self, tree: Tree[Token], _depth: int) -> Node:
        token = _token(tree.children[0])
        offset = _start(token)
        if token.type == "BOOL_LIT":
            return Literal(offset, token.value == "true")
        if token.type == "NULL_LIT":
            return Literal(offset, None)
        if offset in self.strings:
            return Literal(offset, decode_string(self.strings[offset], offset))
        return Literal(offset, decode_number(token.value, offset))


_BUILDERS: dict[str, Callable[[_Builder, Tree[Token], int], Node]] = {
    "expr": _Builder.condition,
    "conditionalor": _Builder.logic,
    "conditionaland": _Builder.logic,
    "relation": _Builder.binary,
    "addition": _Builder.binary,
    "multiplication": _Builder.binary,
    "unary": _Builder.unary,
    "member_dot": _Builder.select,
    "member_dot_arg": _Builder.method,
    "member_index": _Builder.index,
    "member_object": _Builder.message,
    "dot_ident_arg": _Builder.function,
    "dot_ident": _Builder.name,
    "ident_arg": _Builder.function,
    "ident": _Builder.name,
    "paren_expr": _Builder.parentheses,
    "list_lit": _Builder.sequence,
    "map_lit": _Builder.mapping,
    "literal": _Builder.literal,
}


def _macro(name: Token, target: Node, arguments: tuple[Node, ...]) -> Macro:
    variable, *rest = arguments
    if not isinstance(variable, Name) or variable.name.startswith("__"):
        raise CelError(f"The first argument of {name.value}() must be a simple name", variable.offset)
    return Macro(_start(name), name.value, target, variable.name, tuple(rest))


def _dotted(node: Node) -> str:
    match node:
        case Name(name=name):
            return name
        case Select(operand=operand, field=field, test=False):
            return f"{_dotted(operand)}.{field}"
    raise CelError("Syntax error: '{' follows something that is not a message name", node.offset)


def _tree(child: Any) -> Tree[Token]:
    return child  # type: ignore[no-any-return]


def _token(child: Any) -> Token:
    return child  # type: ignore[no-any-return]


def _start(child: Tree[Token] | Token) -> int:
    start = child.start_pos if isinstance(child, Token) else getattr(child.meta, "start_pos", 0)
    return start or 0


def _syntax_error(text: str, tokens: tuple[Lexeme, ...], error: Any) -> CelError:
    lines = text.split("\n")
    line, column = error.line or -1, error.column or -1
    offset = len(text)
    # lark gives the end of the text the position of the last token; only its type tells them apart.
    at_end = getattr(getattr(error.__context__, "token", None), "type", "") == "$END"
    if not at_end and 1 <= line <= len(lines) and column >= 1:
        offset = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
    unexpected = next((token for token in tokens if token.start >= offset), None)
    if unexpected is None:
        return CelError("Syntax error: unexpected end of the expression", len(text))
    return CelError(f"Syntax error: unexpected {unexpected.text[:20]}", unexpected.start)


def _mask_string(text: str) -> str:
    prefix = text[0] if text[0] in "bB" else ""
    quote = text[-1]
    fence = quote * 3 if text.endswith(quote * 3) and len(text.lstrip("bBrR")) >= 6 else quote  # noqa: PLR2004
    inside = text[len(prefix) + len(fence) : len(text) - len(fence)]
    blank = "".join(character if character in "\r\n" else "_" for character in inside)
    return f"{prefix}{fence}{blank}{fence}"


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
