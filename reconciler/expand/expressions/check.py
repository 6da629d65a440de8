"""The static check: names, types, homogeneous literals. What passes means the same in every engine."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from reconciler.expand.expressions.errors import ExpressionError
from reconciler.expand.expressions.literals import Uint
from reconciler.expand.expressions.nodes import (
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
from reconciler.expand.expressions.signatures import (
    STANDARD,
    STRING_EXTENSION,
    STRINGS,
    TYPE_NAMES,
    VARIABLES,
    WRAPPERS,
    Overload,
)
from reconciler.expand.expressions.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    UINT,
    UNORDERED,
    Type,
    join,
    list_of,
    map_of,
    substitute,
    unify,
    unordered,
)

Scope = Mapping[str, Type]

_ORDERLESS = frozenset({"size", "_in_"})


class Checked(NamedTuple):
    """What is known of an expression: its type, and whether the order of a map's keys shows in its value."""

    type_: Type
    shows_order: bool


def check(node: Node, extensions: frozenset[str] = frozenset()) -> Checked:
    """Return the type of an expression, and whether the order of keys shows in it.

    Raises:
        ExpressionError: A name is not declared, no overload fits, or a literal mixes types.

    Source: cel-go checker, with HomogeneousAggregateLiterals as Porch sets it.
    """
    functions = {**STANDARD, **STRING_EXTENSION} if STRINGS in extensions else STANDARD
    checker = _Checker(functions)
    type_ = checker.type_of(node, VARIABLES)
    return Checked(type_, checker.shows_order)


class _Checker:
    def __init__(self, functions: Mapping[str, tuple[Overload, ...]]) -> None:
        self.functions = functions
        self.shows_order = False
        self.rules: dict[type, Callable[..., Type]] = {
            Literal: self.literal,
            Name: self.name,
            Select: self.select,
            Call: self.call,
            ListOf: self.list_literal,
            MapOf: self.map_literal,
            Message: self.message,
            Macro: self.macro,
        }

    def type_of(self, node: Node, scope: Scope) -> Type:
        return self.rules[type(node)](node, scope)

    def literal(self, node: Literal, _scope: Scope) -> Type:
        return _LITERALS[type(node.value)]

    def name(self, node: Name, scope: Scope) -> Type:
        name = node.name.removeprefix(".")
        found = (scope if name == node.name else VARIABLES).get(name) or TYPE_NAMES.get(name)
        if found is None:
            raise ExpressionError(f"undeclared reference to '{node.name}'", node.offset)
        return found

    def select(self, node: Select, scope: Scope) -> Type:
        operand = self.type_of(node.operand, scope)
        if operand.name not in {"dyn", "map"}:
            raise ExpressionError(f"type '{operand}' does not support field selection", node.offset)
        if operand.name == "map" and join(operand.parameters[0], STRING) is None:
            raise ExpressionError(f"type '{operand}' does not support field selection", node.offset)
        if node.test:
            return BOOL
        return operand.parameters[1] if operand.name == "map" else DYN

    def call(self, node: Call, scope: Scope) -> Type:
        look = self.type_of if node.function in _ORDERLESS else self.ordered
        arguments = tuple(look(argument, scope) for argument in node.arguments)
        overloads = self.functions.get(node.function)
        if overloads is None:
            raise ExpressionError(f"undeclared reference to '{node.function}'", node.offset)
        results = []
        for overload in overloads:
            bound: dict[Type, Type] = {}
            if overload.method == node.method and len(overload.arguments) == len(arguments):
                pairs = zip(overload.arguments, arguments, strict=True)
                if all(unify(asked, given, bound) for asked, given in pairs):
                    results.append(substitute(overload.result, bound))
        if not results:
            shown = ", ".join(map(str, arguments))
            message = f"found no matching overload for '{node.function}' applied to '({shown})'"
            raise ExpressionError(message, node.offset)
        return results[0] if len(set(results)) == 1 else DYN

    def list_literal(self, node: ListOf, scope: Scope) -> Type:
        return list_of(self.common(node.items, scope))

    def map_literal(self, node: MapOf, scope: Scope) -> Type:
        keys = self.common(tuple(key for key, _ in node.entries), scope)
        if keys not in {DYN, STRING, INT, UINT, BOOL}:
            raise ExpressionError(f"unsupported key type '{keys}'", node.offset)
        return map_of(keys, self.common(tuple(value for _, value in node.entries), scope))

    def common(self, nodes: tuple[Node, ...], scope: Scope) -> Type:
        type_ = None
        for node in nodes:
            given = self.ordered(node, scope)
            joined = given if type_ is None else join(type_, given)
            if joined is None:
                raise ExpressionError(f"expected type '{type_}' but found '{given}'", node.offset)
            type_ = joined
        return type_ or DYN

    def ordered(self, node: Node, scope: Scope) -> Type:
        """Return a type as a list where the order of a map's keys is about to show."""
        given = self.type_of(node, scope)
        if given.name != UNORDERED:
            return given
        self.shows_order = True
        return list_of(*given.parameters)

    def message(self, node: Message, scope: Scope) -> Type:
        wrapper = WRAPPERS.get(node.name)
        if wrapper is None:
            raise ExpressionError(f"undeclared reference to '{node.name}'", node.offset)
        for field, value in node.fields:
            given = self.type_of(value, scope)
            if field != "value" or len(node.fields) > 1:
                raise ExpressionError(f"'{node.name}' has one field, value", value.offset)
            if given != wrapper[0]:
                raise ExpressionError(f"expected type '{wrapper[0]}' but found '{given}'", value.offset)
        return wrapper[0]

    def macro(self, node: Macro, scope: Scope) -> Type:
        operand = self.type_of(node.operand, scope)
        if operand.name not in {"list", "map", "dyn", UNORDERED}:
            message = f"expression of type '{operand}' cannot be the range of a comprehension"
            raise ExpressionError(message, node.offset)
        element = operand.parameters[0] if operand.parameters else DYN
        inner = {**scope, node.variable: element}
        bodies = [self.ordered(argument, inner) for argument in node.arguments]
        tests = bodies[:-1] if node.macro == "map" else bodies
        for argument, given in zip(node.arguments, tests, strict=False):
            if given not in {BOOL, DYN}:
                raise ExpressionError(f"expected type 'bool' but found '{given}'", argument.offset)
        wrap = list_of if operand.name == "list" else unordered
        if node.macro == "map":
            return wrap(bodies[-1])
        return wrap(element) if node.macro == "filter" else BOOL


_LITERALS: Mapping[type, Type] = {
    str: STRING,
    bytes: BYTES,
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    type(None): NULL,
}
