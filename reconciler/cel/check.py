"""Static checks of an expression: types and names, no dependence on map order, and a bound on its cost.

An expression within the bound ends soon, so that evaluation needs no time limit. Sizes that are known
only at run time are assumed; an object far beyond them fails at run time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

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
    Uint,
    children,
)
from reconciler.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    MESSAGES,
    NULL,
    STANDARD,
    STRING,
    STRING_EXTENSION,
    STRINGS,
    TYPE_NAMES,
    UINT,
    UNORDERED,
    VARIABLES,
    Overload,
    Type,
    join,
    list_of,
    map_of,
    substitute,
    unify,
    unordered,
)
from reconciler.policy import Limits

Scope = Mapping[str, Type]
MAP_ORDER = "The value depends on the order of a map's keys, which is random"
ITERATIONS = 5_000
CHARACTERS = 100_000
_ENTRIES = 64
_TEXT = 256
_ORDERLESS = frozenset({"size", "_in_"})
"""Functions with a result independent of the order of their argument."""
_LITERALS: Mapping[type, Type] = {
    str: STRING,
    bytes: BYTES,
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    type(None): NULL,
}


def check(node: Node, extensions: frozenset[str] = frozenset()) -> Type:
    """Return the type of an expression.

    Raises:
        CelError: A name is not declared, no overload fits, a literal mixes types, or the value
            depends on the order of a map's keys.

    Source: cel-go checker, with HomogeneousAggregateLiterals as Porch sets it.
    Differs: cel-go and cel-cpp evaluate expressions that depend on the order of a map's keys, with
        a different value in every process. Such an expression is refused here.
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
        # With an argument of type dyn several overloads may fit; the run decides which.
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
        if node.name not in MESSAGES:
            raise CelError(f"undeclared reference to '{node.name}'", node.offset)
        type_, fields = MESSAGES[node.name]
        for field, value in node.fields:
            value_type = self.type_of(value, scope)
            if field not in fields or len(node.fields) > 1:
                names = ", ".join(fields)
                raise CelError(f"'{node.name}' takes one field ({names})", value.offset)
            if value_type != fields[field]:
                raise CelError(f"expected type '{fields[field]}' but found '{value_type}'", value.offset)
        return type_

    def macro(self, node: Macro, scope: Scope) -> Type:
        operand = self.type_of(node.operand, scope)
        if operand.name not in {"list", "map", "dyn", UNORDERED}:
            message = f"expression of type '{operand}' cannot be the range of a comprehension"
            raise CelError(message, node.offset)
        # A macro over a map iterates over its keys; the second parameter is the type of its values.
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


class Bound(NamedTuple):
    """Upper estimates: elements of a list or map, characters of all its text, steps, iterations."""

    elements: int
    characters: int
    steps: int
    iterations: int = 0


def check_cost(node: Node, limits: Limits) -> None:
    """Refuse an expression with an estimated cost out of bounds.

    Raises:
        CelError: Too many iterations, steps or characters.
    """
    bound = _bound(node, {}, limits)
    if bound.steps > limits.expression_cost:
        raise CelError(
            f"The expression may cost more than {plural(limits.expression_cost, 'step')}", node.offset
        )


def _bound(node: Node, scope: Mapping[str, Bound], limits: Limits) -> Bound:
    """Return the bound of one node; every node is visited once."""
    if isinstance(node, Macro):
        bound = _macro(node, scope, limits)
    else:
        bound = _combine(node, scope, [_bound(child, scope, limits) for child in children(node)])
    if bound.iterations > ITERATIONS:
        raise CelError(f"Comprehensions may turn more than {ITERATIONS} times", node.offset)
    if bound.characters > CHARACTERS or bound.elements > CHARACTERS:
        raise CelError(f"A value may grow beyond {CHARACTERS} characters", node.offset)
    return bound


def _combine(node: Node, scope: Mapping[str, Bound], parts: Sequence[Bound]) -> Bound:
    characters = sum(part.characters for part in parts)
    steps = 1 + sum(part.steps for part in parts)
    iterations = sum(part.iterations for part in parts)
    match node:
        case Literal(value=value):
            size = len(value) if isinstance(value, str | bytes) else 8
            return Bound(size, size, 1)
        case Name(name=name):
            return scope.get(name, Bound(_ENTRIES, _TEXT, 1))
        case Select():
            return Bound(_ENTRIES, min(characters, _TEXT), steps, iterations)
        case Call(function="replace"):
            grown = characters * max(1, parts[-1].characters)
            return Bound(grown, grown, steps + grown // 64, iterations)
        case Call(function=function) if parts:
            sizes = [part.elements for part in parts]
            elements = sum(sizes) if function in {"_+_", "join", "split"} else max(sizes)
            return Bound(elements, characters, steps + characters // 64, iterations)
        case _:
            return Bound(max(1, len(parts)), characters, steps, iterations)


def _macro(node: Macro, scope: Mapping[str, Bound], limits: Limits) -> Bound:
    over = _bound(node.operand, scope, limits)
    turns = max(1, over.elements)
    inner = {**scope, node.variable: Bound(_ENTRIES, -(-over.characters // turns), 1)}
    bodies = [_bound(argument, inner, limits) for argument in node.arguments]
    return Bound(
        turns,
        turns * bodies[-1].characters if node.macro == "map" else over.characters,
        over.steps + turns * (1 + sum(body.steps for body in bodies)),
        over.iterations + turns * (1 + sum(body.iterations for body in bodies)),
    )
