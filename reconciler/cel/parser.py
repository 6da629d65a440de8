"""Parse the text of an expression into a syntax tree, by cel-python's parser.

Importing this module costs a fifth of a second, so it is imported when the first expression comes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import celpy.celparser
from lark import Token, Tree

from reconciler.cel import literals
from reconciler.cel.errors import CelError
from reconciler.cel.lexer import Token as Lexeme
from reconciler.cel.lexer import mask, scan
from reconciler.cel.syntax import (
    Call,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Message,
    Name,
    Node,
    Select,
)
from reconciler.policy import Limits

MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "in"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)


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
            return Literal(offset, literals.decode_string(self.strings[offset], offset))
        return Literal(offset, literals.decode_number(token.value, offset))


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
    at_end = getattr(getattr(error.__context__, "token", None), "type", "") == "$END"
    if not at_end and 1 <= line <= len(lines) and column >= 1:
        offset = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
    unexpected = next((token for token in tokens if token.start >= offset), None)
    if unexpected is None:
        return CelError("Syntax error: unexpected end of the expression", len(text))
    return CelError(f"Syntax error: unexpected {unexpected.text[:20]}", unexpected.start)
