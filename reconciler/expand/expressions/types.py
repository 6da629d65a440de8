"""CEL's types, and which one may stand where another is asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """A type; lists have one parameter, maps two, types of types one."""

    name: str
    parameters: tuple["Type", ...] = ()

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"


DYN = Type("dyn")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
NULL = Type("null_type")
TIMESTAMP = Type("timestamp")
DURATION = Type("duration")

A = Type("A")
B = Type("B")
VARIABLES = frozenset({A, B})

UNORDERED = "unordered list"


def list_of(element: Type) -> Type:
    """Return the type of lists of `element`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps."""
    return Type("map", (key, value))


def unordered(element: Type) -> Type:
    """Return the type of lists made from the keys of a map, whose order no engine promises."""
    return Type(UNORDERED, (element,))


def type_of(type_: Type) -> Type:
    """Return the type of a type."""
    return Type("type", (type_,))


def join(left: Type, right: Type) -> Type | None:
    """Return the more general of two types if one may stand for the other, else None."""
    if left == right:
        return left
    if DYN in (left, right):
        return DYN
    if left.name == right.name == "type":
        return type_of(DYN)
    if left.name != right.name or len(left.parameters) != len(right.parameters) or not left.parameters:
        return None
    joined = [join(one, other) for one, other in zip(left.parameters, right.parameters, strict=True)]
    if None in joined:
        return None
    return Type(left.name, tuple(one for one in joined if one is not None))


def unify(asked: Type, given: Type, bound: dict[Type, Type]) -> bool:
    """Tell whether `given` may stand for `asked`, binding the type variables of `asked` in `bound`.

    An unordered list stands for nothing else, not even for dyn: its order must never show.
    """
    if UNORDERED in (asked.name, given.name) and asked.name != given.name:
        return False
    if asked in VARIABLES:
        joined = join(bound[asked], given) if asked in bound else given
        if joined is None:
            return False
        bound[asked] = joined
        return True
    if DYN in (asked, given):
        for variable in asked.parameters:
            unify(variable, DYN, bound)
        return True
    if asked.name != given.name or len(asked.parameters) != len(given.parameters):
        return False
    return all(unify(a, g, bound) for a, g in zip(asked.parameters, given.parameters, strict=True))


def substitute(type_: Type, bound: dict[Type, Type]) -> Type:
    """Replace type variables by what they were bound to; an unbound one is dyn."""
    if type_ in VARIABLES:
        return bound.get(type_, DYN)
    return Type(type_.name, tuple(substitute(parameter, bound) for parameter in type_.parameters))
