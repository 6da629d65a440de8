"""Bound the cost of an expression before it runs: iterations of comprehensions and length of strings.

An expression within the bound ends soon, so that evaluation needs no time limit. Sizes that are known
only at run time are assumed; an object far beyond them fails at run time.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reconciler.cel.errors import CelError
from reconciler.cel.syntax import (
    Call,
    Literal,
    Macro,
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
    """Refuse an expression with an estimated cost out of bounds.

    Raises:
        CelError: Too many iterations, steps or characters.
    """
    bound = _bound(node, {}, limits)
    if bound.steps > limits.expression_cost:
        raise CelError(f"The expression may cost more than {limits.expression_cost} steps", node.offset)


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
