"""CEL's types, and which one is assignable to another."""

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
    """Return the type of lists made from the keys of a map: their order is random."""
    return Type(UNORDERED, (element,))


def type_of(type_: Type) -> Type:
    """Return the type of a type."""
    return Type("type", (type_,))


def join(left: Type, right: Type) -> Type | None:
    """Return the more general of two types if one is assignable to the other, else None."""
    if left == right:
        return left
    if DYN in (left, right):
        return DYN
    if left.name == right.name == "type":
        return type_of(DYN)
    if left.name != right.name or len(left.parameters) != len(right.parameters) or not left.parameters:
        return None
    joined = [join(*pair) for pair in zip(left.parameters, right.parameters, strict=True)]
    if None in joined:
        return None
    return Type(left.name, tuple(parameter for parameter in joined if parameter is not None))


def unify(parameter: Type, argument: Type, bound: dict[Type, Type]) -> bool:
    """Tell whether an argument's type is assignable to a parameter's, binding type variables in `bound`.

    A list of a map's keys is assignable to nothing else, not even to dyn: its order must not show.
    """
    if UNORDERED in (parameter.name, argument.name) and parameter.name != argument.name:
        return False
    if parameter in VARIABLES:
        joined = join(bound[parameter], argument) if parameter in bound else argument
        if joined is None:
            return False
        bound[parameter] = joined
        return True
    if DYN in (parameter, argument):
        for variable in parameter.parameters:
            unify(variable, DYN, bound)
        return True
    if parameter.name != argument.name or len(parameter.parameters) != len(argument.parameters):
        return False
    return all(unify(*pair, bound) for pair in zip(parameter.parameters, argument.parameters, strict=True))


def substitute(type_: Type, bound: dict[Type, Type]) -> Type:
    """Replace type variables by what they are bound to; an unbound one is dyn."""
    if type_ in VARIABLES:
        return bound.get(type_, DYN)
    return Type(type_.name, tuple(substitute(parameter, bound) for parameter in type_.parameters))
