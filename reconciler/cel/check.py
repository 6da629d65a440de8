"""Static checks that cel-cpp has not, on the tree of cel-python: mixed literals, map order, depth, cost.

An expression within the bounds ends soon, so that evaluation needs no time limit. Sizes that are known
only at run time are assumed; an object far beyond them fails at run time.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.base.values import PartlyCompared
from reconciler.policy import Limits

_PORCH_NAMES = {
    "null": "'null_type'",
    "timestamp": "'Timestamp'",
    "duration": "'Duration'",
    "bytes": "Bytes",
    "double": "Double",
}
"""Names of types as cel-go's conversion errors spell them."""


class Failure(PartlyCompared, frozen=True):
    """Why an expression was refused, or why its evaluation failed: a value, never raised.

    `offset` counts characters from the start of the expression; None where the whole
    expression is meant, as for every error of an evaluation. What it is where that is known: `undeclared` is
    a name, `missing` a key that an object lacks, and `is_no_string` tells that the value is of another type.
    """

    UNCOMPARED = frozenset({"undeclared", "missing", "is_no_string"})

    message: str
    offset: int | None = None
    undeclared: str = ""
    missing: str = ""
    is_no_string: bool = False


class CelError(Exception):
    """Raised and caught inside this package only; `Environment` returns its `failure`."""

    def __init__(
        self, message: str, offset: int, undeclared: str = "", *, is_no_string: bool = False
    ) -> None:
        self.failure = Failure(message, offset, undeclared, is_no_string=is_no_string)


def not_a_string(kind: str) -> Failure:
    """Return the failure of an expression with a value that is no string, in the wording of Porch."""
    kind = kind.partition("(")[0]
    if kind in {"int", "uint"}:
        message = f"unsupported type conversion from '{kind}' to string"
    elif kind == "type":
        message = "type conversion not supported for 'type'"
    else:
        message = f"type conversion error from {_PORCH_NAMES.get(kind, kind)} to 'string'"
    return Failure(message, is_no_string=True)


def offset_of(text: str, line: int | None, column: int | None) -> int:
    """Return the offset of a place that is given by lines and columns from 1; 0 for no place."""
    return max(0, sum(len(above) + 1 for above in text.split("\n")[: (line or 1) - 1]) + (column or 1) - 1)


Node = Any
"""A tree of lark: cel-python's rule in `data`, nodes and tokens in `children`, the place in `meta`."""

MAP_ORDER = "The value depends on the order of a map's keys, which is random"
ITERATIONS = 5_000
CHARACTERS = 100_000
_ENTRIES = 64
_TEXTS = frozenset({"STRING_LIT", "MLSTRING_LIT", "BYTES_LIT"})
_TEXT = 256
_MACROS = dict.fromkeys(("all", "exists", "exists_one", "map", "filter"), 3)
_LEVELS = frozenset(
    {
        *("expr", "conditionalor", "conditionaland", "relation", "addition"),
        *("multiplication", "unary", "member", "primary"),
    }
)
_WRAPPER = regex(r"exprlist|mapinits|fieldinits|(relation|addition|multiplication|unary)_\w+")
_MESSAGES = regex(r"google\.protobuf\.((String|Bool|U?Int(32|64)|Double|Bytes)Value|Value)")
_INSTEAD = {",": " ", "true": "0.00", "false": "0.000"}
_UNREAD = regex(r"\b(?:true|false)\b|,(?=(?:\s|//[^\n]*+)*+[\]}])")


def parse(text: str) -> Node:
    """Return the tree of an expression that cel-cpp parsed.

    cel-python loses the place of true and false, and refuses a comma after the last element of a list: it
    reads numbers of the same length, and no comma. It must not see what is no expression: it reads
    `str ing(x)` as `str in g(x)`, and an open string in time exponential in its backslashes.

    Raises:
        CelError: cel-python does not know the syntax: a field in backquotes.
    """
    from celpy.celparser import CELParseError  # noqa: PLC0415 - loaded with the first expression

    try:
        return _parser().parse(_UNREAD.sub(lambda match: _INSTEAD[match[0]], text))
    except CELParseError as error:
        offset = offset_of(text, error.line, error.column)
        raise CelError(f"Syntax error: unexpected {text[offset : offset + 1]!r}", offset) from None


@cache
def _parser() -> Any:
    from celpy.celparser import CELParser  # noqa: PLC0415

    return CELParser()


def place_of(error: CelError, tree: Node) -> int:
    """Return where the undeclared name starts; cel-cpp gives the place of a dot or a bracket beside it."""
    failure_offset, name = error.failure.offset or 0, error.failure.undeclared.removeprefix(".")
    nodes = tree.find_pred(lambda node: node.data != "member_dot")
    places = (child.start_pos for node in nodes for child in node.children if child == name)
    return min(places, key=lambda offset: abs(offset - failure_offset), default=failure_offset)


def is_string_literal(tree: Node) -> bool:
    """Tell whether an expression of type string is nothing but a literal."""
    kinds = [token.type for token in tree.scan_values(lambda _: True)]
    return len(kinds) == 1 and kinds[0] in _TEXTS


def check(tree: Node, text: str, type_of: Callable[[str], str], limits: Limits) -> None:
    """Refuse an expression that cel-cpp compiled and that yet has no place in a template.

    Raises:
        CelError: A literal mixes types, the value depends on the order of a map's keys, a message or a
            time zone is used, terms are nested too deeply, or there may be too many iterations, steps
            or characters.

    Source: cel-go with HomogeneousAggregateLiterals, as Porch sets it.
    Differs: cel-go and cel-cpp evaluate expressions that depend on the order of a map's keys, with
        a different value in every process. Such an expression is refused here.
    """
    bound = _Check(text, type_of, limits.expression_depth).walk(tree, _Scope({}), 0)
    if bound.steps > limits.expression_cost:
        message = f"The expression may cost more than {plural(limits.expression_cost, 'step')}"
        raise CelError(message, tree.meta.start_pos)


class _Bound(NamedTuple):
    """Upper estimates: elements of a list or map, characters of all its text, steps, iterations.

    `is_unordered` marks a list made of the keys of a map.
    """

    elements: int
    characters: int
    steps: int
    iterations: int = 0
    is_unordered: bool = False


_UNKNOWN = _Bound(_ENTRIES, _TEXT, 1)


class _Scope(NamedTuple):
    """The variables of macros with the bounds of their values, and the text of the macros that bind them."""

    bounds: Mapping[str, _Bound]
    macros: tuple[str, ...] = ()


class _Check:
    def __init__(self, text: str, type_of: Callable[[str], str], depth: int) -> None:
        self.text = text
        self.type_of_text = type_of
        self.depth = depth

    def walk(self, node: Node, scope: _Scope, depth: int) -> _Bound:
        """Check a node and all below it, each once, and return its bound."""
        node = _simplest(node)
        start = _offset_of(node)
        if depth > self.depth:
            raise CelError(f"More than {self.depth} terms are nested or chained", start)
        name, parts = _function(node), list(_parts(node))
        if (
            node.data == "member_dot_arg"
            and name in _MACROS
            and len(parts) in ((3, 4) if name == "map" else (3,))
        ):
            bound = self.macro(name, parts, scope, depth)
        else:
            bounds = [self.walk(part, scope, depth + 1) for part in parts]
            if node.data == "paren_expr":
                return bounds[0]
            is_test = name in {"size", "relation_in"}
            for part, bound in zip(parts[:-1] if is_test else parts, bounds, strict=False):
                _check_order(part, bound)
            self.check_form(node, name, parts, scope)
            bound = _combine(node, name, scope, bounds)
        if bound.iterations > ITERATIONS:
            raise CelError(f"Comprehensions may turn more than {ITERATIONS} times", start)
        if bound.characters > CHARACTERS or bound.elements > CHARACTERS:
            raise CelError(f"A value may grow beyond {CHARACTERS} characters", start)
        return bound

    def macro(self, name: str, parts: Sequence[Node], scope: _Scope, depth: int) -> _Bound:
        range_, variable, *bodies = parts
        over = self.walk(range_, scope, depth + 1)
        turns = max(1, over.elements)
        variable_name = self.text_of(variable)
        inner = _Scope(
            {**scope.bounds, variable_name: _Bound(_ENTRIES, -(-over.characters // turns), 1)},
            (*scope.macros, f"{self.text_of(range_)}.map({variable_name}, "),
        )
        bounds = [self.walk(body, inner, depth + 1) for body in bodies]
        for body, bound in zip(bodies, bounds, strict=True):
            _check_order(body, bound)
        # A macro over a map iterates over its keys; what a value of type dyn is, only the run knows.
        is_list = self.type_of(range_, scope).startswith("list(") and not over.is_unordered
        return _Bound(
            turns,
            turns * bounds[-1].characters if name == "map" else over.characters,
            over.steps + turns * (1 + sum(bound.steps for bound in bounds)),
            over.iterations + turns * (1 + sum(bound.iterations for bound in bounds)),
            name in {"map", "filter"} and not is_list,
        )

    def check_form(self, node: Node, name: str, parts: Sequence[Node], scope: _Scope) -> None:
        match node.data:
            case "list_lit":
                self.check_mixture(parts, scope)
            case "map_lit":
                self.check_mixture(parts[::2], scope)
                self.check_mixture(parts[1::2], scope)
            case "member_object" if not _MESSAGES.fullmatch(message := self.text_of(parts[0])):
                raise CelError(f"undeclared reference to '{message}'", _offset_of(node), message)
            case "member_dot_arg" if name in {"format", "quote"}:
                raise CelError(f"undeclared reference to '{name}'", _offset_of(node), name)
            case "member_dot_arg" if name.startswith("get") and len(parts) > 1:
                raise CelError(f"{name}() takes no time zone", _offset_of(node))
            case "member_dot_arg" if (
                name == "getMilliseconds" and self.type_of(parts[0], scope) == "duration"
            ):
                raise CelError("A duration has no getMilliseconds()", _offset_of(node))

    def check_mixture(self, elements: Sequence[Node], scope: _Scope) -> None:
        """Refuse elements of two types; a part of type dyn goes with everything."""
        list_type = ""
        for element in elements if len(elements) > 1 else ():
            type_ = self.type_of(element, scope)
            if not list_type or _fits(type_, list_type):
                list_type = type_
            elif not _fits(list_type, type_):
                raise CelError(f"expected type '{list_type}' but found '{type_}'", element.meta.start_pos)

    def type_of(self, node: Node, scope: _Scope) -> str:
        """Return the type of a part; macros give its variables their types, and make it a list of lists."""
        type_ = self.type_of_text("".join(scope.macros) + self.text_of(node) + ")" * len(scope.macros))
        for _ in scope.macros:
            type_ = type_.removeprefix("list(").removesuffix(")")
        return type_

    def text_of(self, node: Node) -> str:
        return self.text[node.meta.start_pos : node.meta.end_pos]


def _offset_of(node: Node) -> int:
    """Return where a node starts, and of a call of a method where its name does."""
    return int(node.children[1].start_pos if node.data == "member_dot_arg" else node.meta.start_pos)


def _simplest(node: Node) -> Node:
    """Return the node below the levels of the grammar that have one operand and no meaning."""
    while len(node.children) == 1 and node.data in _LEVELS:
        node = node.children[0]
    return node


def _parts(node: Node) -> Iterator[Node]:
    """Yield the operands of a node."""
    for child in node.children:
        if not isinstance(child, str):
            if _WRAPPER.fullmatch(child.data):
                yield from _parts(child)
            else:
                yield child


def _function(node: Node) -> str:
    """Return the function or method that a node calls, or its operator where there are several."""
    operator = node.children[0].data if node.children and not isinstance(node.children[0], str) else ""
    return str(next((child for child in node.children if isinstance(child, str)), operator))


def _fits(general: str, type_: str) -> bool:
    """Tell whether `general` becomes `type_` where its parts of type dyn are filled in."""
    pattern = ".*".join(map(re.escape, re.sub(r"type\(\w+\)", "type", general).split("dyn")))
    return re.fullmatch(pattern, re.sub(r"type\(\w+\)", "type", type_)) is not None


def _check_order(node: Node, bound: _Bound) -> None:
    if bound.is_unordered:
        raise CelError(MAP_ORDER, _offset_of(_simplest(node)))


def _combine(node: Node, name: str, scope: _Scope, bounds: Sequence[_Bound]) -> _Bound:
    characters = sum(bound.characters for bound in bounds)
    steps = 1 + sum(bound.steps for bound in bounds)
    iterations = sum(bound.iterations for bound in bounds)
    match node.data:
        case "literal":
            size = len(name) - 2 if node.children[0].type in _TEXTS else 8
            return _Bound(size, size, 1)
        case "ident" | "dot_ident":
            return scope.bounds.get(name, _UNKNOWN)
        case "member_dot":
            return _Bound(_ENTRIES, min(characters, _TEXT), steps, iterations)
        case "list_lit" | "map_lit" | "member_object":
            return _Bound(max(1, len(bounds)), characters, steps, iterations)
    if name == "replace":
        grown = characters * max(1, bounds[-1].characters)
        return _Bound(grown, grown, steps + grown // 64, iterations)
    sizes = [bound.elements for bound in bounds]
    elements = sum(sizes) if name in {"addition_add", "join", "split"} else max(sizes)
    return _Bound(elements, characters, steps + characters // 64, iterations)
