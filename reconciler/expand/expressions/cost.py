"""A bound on what an expression may cost: how often its comprehensions turn, how long its strings grow.

The bound is the reason why evaluation needs no watch: what passes ends soon in every engine.
Sizes that are only known at run time are assumed; an object far beyond them fails at run time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from reconciler.expand.expressions.errors import ExpressionError
from reconciler.expand.expressions.tree import (
    Call,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Name,
    Node,
    Select,
    children,
)
from reconciler.policy import Limits

ITERATIONS = 5_000
CHARACTERS = 100_000
_ENTRIES = 64
_TEXT = 256


class Bound(NamedTuple):
    """Upper estimates: elements of a list or map, characters of all its text, steps, iterations."""

    elements: int
    characters: int
    steps: int
    iterations: int = 0


def check_cost(node: Node, limits: Limits) -> None:
    """Refuse an expression whose estimated cost is out of bounds.

    Raises:
        ExpressionError: Too many iterations, steps or characters.
    """
    bound = _bound(node, {}, limits)
    if bound.steps > limits.expression_cost:
        raise ExpressionError(
            f"The expression may cost more than {limits.expression_cost} steps", node.offset
        )


def _bound(node: Node, scope: Mapping[str, Bound], limits: Limits) -> Bound:
    bound = _estimate(node, scope, limits)
    if bound.iterations > ITERATIONS:
        raise ExpressionError(f"Comprehensions may turn more than {ITERATIONS} times", node.offset)
    if bound.characters > CHARACTERS or bound.elements > CHARACTERS:
        raise ExpressionError(f"A value may grow beyond {CHARACTERS} characters", node.offset)
    return bound


def _estimate(node: Node, scope: Mapping[str, Bound], limits: Limits) -> Bound:  # noqa: PLR0911
    match node:
        case Literal(value=value):
            size = len(value) if isinstance(value, str | bytes) else 8
            return Bound(size, size, 1)
        case Name(name=name):
            return scope.get(name, Bound(_ENTRIES, _TEXT, 1))
        case Select(operand=operand):
            below = _bound(operand, scope, limits)
            return Bound(_ENTRIES, min(below.characters, _TEXT), below.steps + 1, below.iterations)
        case ListOf() | MapOf():
            return _sum(node, scope, limits, elements=max(1, len(tuple(children(node)))))
        case Macro():
            return _macro(node, scope, limits)
        case Call(function=function):
            total = _sum(node, scope, limits, elements=0)
            operands = [_bound(argument, scope, limits) for argument in node.arguments]
            elements = sum(b.elements for b in operands) if function in {"_+_", "join"} else 0
            if function == "replace":
                total = total._replace(characters=total.characters * max(1, operands[-1].characters))
            return total._replace(
                elements=max(elements, *(b.elements for b in operands)) if operands else 0,
                steps=total.steps + total.characters // 64,
            )
        case _:
            return _sum(node, scope, limits, elements=1)


def _sum(node: Node, scope: Mapping[str, Bound], limits: Limits, *, elements: int) -> Bound:
    parts = [_bound(child, scope, limits) for child in children(node)]
    return Bound(
        elements,
        sum(part.characters for part in parts),
        1 + sum(part.steps for part in parts),
        sum(part.iterations for part in parts),
    )


def _macro(node: Macro, scope: Mapping[str, Bound], limits: Limits) -> Bound:
    over = _bound(node.operand, scope, limits)
    turns = max(1, over.elements)
    inner = {**scope, node.variable: Bound(_ENTRIES, -(-over.characters // turns), 1)}
    bodies = [_bound(argument, inner, limits) for argument in node.arguments]
    grown = turns * bodies[-1].characters if node.macro == "map" else over.characters
    return Bound(
        turns,
        grown,
        over.steps + turns * (1 + sum(body.steps for body in bodies)),
        over.iterations + turns * (1 + sum(body.iterations for body in bodies)),
    )
