"""Syntax tree of an expression: frozen nodes with their offset in the text."""

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.cel import literals


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    offset: int
    value: literals.Value


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a type; one with a leading dot is not a macro's variable."""

    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, or `has(operand.field)` where `test` is set."""

    offset: int
    operand: "Node"
    field: str
    test: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, method or operator as CEL spells it (`_+_`); a method's target is its first argument."""

    offset: int
    function: str
    arguments: tuple["Node", ...]
    method: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list literal."""

    offset: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map literal."""

    offset: int
    entries: tuple[tuple["Node", "Node"], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A message literal: only the well-known wrappers of strings and numbers have a use here."""

    offset: int
    name: str
    fields: tuple[tuple[str, "Node"], ...]


@dataclass(frozen=True, slots=True)
class Macro:
    """A comprehension; `arguments` are one body, or the filter and the body of a three-way `map`."""

    offset: int
    macro: str
    operand: "Node"
    variable: str
    arguments: tuple["Node", ...]


Node = Literal | Name | Select | Call | ListOf | MapOf | Message | Macro


def children(node: Node) -> Iterator[Node]:
    """Yield the direct children of a node."""
    match node:
        case Select(operand=operand):
            yield operand
        case Call(arguments=arguments) | ListOf(items=arguments):
            yield from arguments
        case MapOf(entries=entries):
            for key, value in entries:
                yield key
                yield value
        case Message(fields=fields):
            yield from (value for _, value in fields)
        case Macro(operand=operand, arguments=arguments):
            yield operand
            yield from arguments
