"""Static check of an expression: declared names, types, homogeneous literals, no dependence on map order."""

from collections.abc import Callable, Mapping

from reconciler.cel.errors import CelError
from reconciler.cel.functions import (
    STANDARD,
    STRING_EXTENSION,
    STRINGS,
    TYPE_NAMES,
    VARIABLES,
    WRAPPERS,
    Overload,
)
from reconciler.cel.literals import Uint
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
from reconciler.cel.types import (
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

MAP_ORDER = "The value depends on the order of a map's keys, which is random"

_ORDERLESS = frozenset({"size", "_in_"})
"""Functions with a result independent of the order of their argument."""


def check(node: Node, extensions: frozenset[str] = frozenset()) -> Type:
    """Return the type of an expression.

    Raises:
        CelError: A name is not declared, no overload fits, a literal mixes types, or the value
            depends on the order of a map's keys.

    Source: cel-go checker, with HomogeneousAggregateLiterals as Porch sets it.
    Differs: cel-go and cel-cpp evaluate what depends on the order of a map's keys, and give another
        answer in every process. Such an expression is refused here.
    """
    functions = {**STANDARD, **STRING_EXTENSION} if STRINGS in extensions else STANDARD
    return _Checker(functions).type_of(node, VARIABLES)


class _Checker:
    def __init__(self, functions: Mapping[str, tuple[Overload, ...]]) -> None:
        self.functions = functions
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
        # A leading dot skips the variables of comprehensions and names a variable of the environment.
        type_ = (scope if name == node.name else VARIABLES).get(name) or TYPE_NAMES.get(name)
        if type_ is None:
            raise CelError(f"undeclared reference to '{node.name}'", node.offset)
        return type_

    def select(self, node: Select, scope: Scope) -> Type:
        operand = self.type_of(node.operand, scope)
        if operand.name not in {"dyn", "map"}:
            raise CelError(f"type '{operand}' does not support field selection", node.offset)
        if operand.name == "map" and join(operand.parameters[0], STRING) is None:
            raise CelError(f"type '{operand}' does not support field selection", node.offset)
        if node.test:
            return BOOL
        return operand.parameters[1] if operand.name == "map" else DYN

    def call(self, node: Call, scope: Scope) -> Type:
        argument_type = self.type_of if node.function in _ORDERLESS else self.ordered
        arguments = tuple(argument_type(argument, scope) for argument in node.arguments)
        overloads = self.functions.get(node.function)
        if overloads is None:
            raise CelError(f"undeclared reference to '{node.function}'", node.offset)
        results = []
        for overload in overloads:
            bound: dict[Type, Type] = {}
            if overload.method == node.method and len(overload.arguments) == len(arguments):
                pairs = zip(overload.arguments, arguments, strict=True)
                if all(unify(parameter, argument, bound) for parameter, argument in pairs):
                    results.append(substitute(overload.result, bound))
        if not results:
            types = ", ".join(map(str, arguments))
            message = f"found no matching overload for '{node.function}' applied to '({types})'"
            raise CelError(message, node.offset)
        return results[0] if len(set(results)) == 1 else DYN

    def list_literal(self, node: ListOf, scope: Scope) -> Type:
        return list_of(self.common(node.items, scope))

    def map_literal(self, node: MapOf, scope: Scope) -> Type:
        keys = self.common(tuple(key for key, _ in node.entries), scope)
        if keys not in {DYN, STRING, INT, UINT, BOOL}:
            raise CelError(f"unsupported key type '{keys}'", node.offset)
        return map_of(keys, self.common(tuple(value for _, value in node.entries), scope))

    def common(self, nodes: tuple[Node, ...], scope: Scope) -> Type:
        type_ = None
        for node in nodes:
            element = self.ordered(node, scope)
            joined = element if type_ is None else join(type_, element)
            if joined is None:
                raise CelError(f"expected type '{type_}' but found '{element}'", node.offset)
            type_ = joined
        return type_ or DYN

    def ordered(self, node: Node, scope: Scope) -> Type:
        """Return the type of a node if its value would depend on the order of its elements.

        Raises:
            CelError: The elements are the keys of a map, which have no order.
        """
        type_ = self.type_of(node, scope)
        if type_.name == UNORDERED:
            raise CelError(MAP_ORDER, node.offset)
        return type_

    def message(self, node: Message, scope: Scope) -> Type:
        wrapper = WRAPPERS.get(node.name)
        if wrapper is None:
            raise CelError(f"undeclared reference to '{node.name}'", node.offset)
        for field, value in node.fields:
            value_type = self.type_of(value, scope)
            if field != "value" or len(node.fields) > 1:
                raise CelError(f"'{node.name}' has one field, value", value.offset)
            if value_type != wrapper:
                raise CelError(f"expected type '{wrapper}' but found '{value_type}'", value.offset)
        return wrapper

    def macro(self, node: Macro, scope: Scope) -> Type:
        operand = self.type_of(node.operand, scope)
        if operand.name not in {"list", "map", "dyn", UNORDERED}:
            message = f"expression of type '{operand}' cannot be the range of a comprehension"
            raise CelError(message, node.offset)
        element = operand.parameters[0] if operand.parameters else DYN
        inner = {**scope, node.variable: element}
        bodies = [self.ordered(argument, inner) for argument in node.arguments]
        tests = bodies[:-1] if node.macro == "map" else bodies
        for argument, type_ in zip(node.arguments, tests, strict=False):
            if type_ not in {BOOL, DYN}:
                raise CelError(f"expected type 'bool' but found '{type_}'", argument.offset)
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
