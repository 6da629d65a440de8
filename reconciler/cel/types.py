"""Types of CEL, and the signatures of the functions and variables that expressions may use.

Functions of Porch's environment that are missing here are refused: time zones, and conversions with
different results in cel-cpp and cel-go (docs/divergences.md).
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct


class Type(Struct, frozen=True):
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
TYPE_VARIABLES = frozenset({A, B})
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
    if parameter in TYPE_VARIABLES:
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
    """Replace type variables by their bound types; an unbound one is dyn."""
    if type_ in TYPE_VARIABLES:
        return bound.get(type_, DYN)
    return Type(type_.name, tuple(substitute(parameter, bound) for parameter in type_.parameters))


STRINGS = "strings"


class Overload(NamedTuple):
    """One signature; a method's target is its first argument."""

    arguments: tuple[Type, ...]
    result: Type
    method: bool = False


def _each(result: Type | None, arity: int, *types: Type) -> tuple[Overload, ...]:
    return tuple(Overload((type_,) * arity, result or type_) for type_ in types)


def _to(result: Type, *types: Type) -> tuple[Overload, ...]:
    return tuple(Overload((type_,), result) for type_ in types)


def _method(result: Type, *arguments: Type) -> Overload:
    return Overload(arguments, result, method=True)


_NUMBERS = (INT, UINT, DOUBLE)
_ORDERED = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
_SIZED = (STRING, BYTES, list_of(A), map_of(A, B), unordered(A))
_DATES = (
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getMilliseconds",
)
_CLOCK = ("getHours", "getMinutes", "getSeconds")
STANDARD: Mapping[str, tuple[Overload, ...]] = {
    "_+_": (
        *_each(None, 2, *_NUMBERS, STRING, BYTES, DURATION, list_of(A)),
        Overload((TIMESTAMP, DURATION), TIMESTAMP),
        Overload((DURATION, TIMESTAMP), TIMESTAMP),
    ),
    "_-_": (
        *_each(None, 2, *_NUMBERS, DURATION),
        Overload((TIMESTAMP, DURATION), TIMESTAMP),
        Overload((TIMESTAMP, TIMESTAMP), DURATION),
    ),
    "_*_": _each(None, 2, *_NUMBERS),
    "_/_": _each(None, 2, *_NUMBERS),
    "_%_": _each(None, 2, INT, UINT),
    "-_": _each(None, 1, INT, DOUBLE),
    "!_": (Overload((BOOL,), BOOL),),
    "_<_": _each(BOOL, 2, *_ORDERED),
    "_<=_": _each(BOOL, 2, *_ORDERED),
    "_>_": _each(BOOL, 2, *_ORDERED),
    "_>=_": _each(BOOL, 2, *_ORDERED),
    "_==_": (Overload((A, A), BOOL),),
    "_!=_": (Overload((A, A), BOOL),),
    "_&&_": (Overload((BOOL, BOOL), BOOL),),
    "_||_": (Overload((BOOL, BOOL), BOOL),),
    "_?_:_": (Overload((BOOL, A, A), A),),
    "_in_": (
        Overload((A, list_of(A)), BOOL),
        Overload((A, map_of(A, B)), BOOL),
        Overload((A, unordered(A)), BOOL),
    ),
    "_[_]": (Overload((list_of(A), INT), A), Overload((map_of(A, B), A), B)),
    "size": (
        *(Overload((type_,), INT) for type_ in _SIZED),
        *(_method(INT, type_) for type_ in _SIZED),
    ),
    "startsWith": (_method(BOOL, STRING, STRING),),
    "endsWith": (_method(BOOL, STRING, STRING),),
    "contains": (_method(BOOL, STRING, STRING),),
    "matches": (_method(BOOL, STRING, STRING), Overload((STRING, STRING), BOOL)),
    "dyn": (Overload((A,), DYN),),
    "type": (Overload((A,), type_of(A)),),
    "int": _to(INT, INT, UINT, DOUBLE, STRING, TIMESTAMP),
    "uint": _to(UINT, UINT, INT, DOUBLE, STRING),
    "double": _to(DOUBLE, DOUBLE, INT, UINT, STRING),
    "string": _to(STRING, STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION),
    "bytes": _to(BYTES, BYTES, STRING),
    "bool": _to(BOOL, BOOL, STRING),
    "timestamp": _to(TIMESTAMP, TIMESTAMP, STRING, INT),
    "duration": _to(DURATION, DURATION, STRING),
    **{name: (_method(INT, TIMESTAMP),) for name in _DATES},
    **{name: (_method(INT, TIMESTAMP), _method(INT, DURATION)) for name in _CLOCK},
}
STRING_EXTENSION: Mapping[str, tuple[Overload, ...]] = {
    "charAt": (_method(STRING, STRING, INT),),
    "indexOf": (_method(INT, STRING, STRING), _method(INT, STRING, STRING, INT)),
    "lastIndexOf": (_method(INT, STRING, STRING),),
    "join": (_method(STRING, list_of(STRING)), _method(STRING, list_of(STRING), STRING)),
    "lowerAscii": (_method(STRING, STRING),),
    "upperAscii": (_method(STRING, STRING),),
    "replace": (_method(STRING, STRING, STRING, STRING), _method(STRING, STRING, STRING, STRING, INT)),
    "split": (_method(list_of(STRING), STRING, STRING), _method(list_of(STRING), STRING, STRING, INT)),
    "substring": (_method(STRING, STRING, INT), _method(STRING, STRING, INT, INT)),
    "trim": (_method(STRING, STRING),),
}
TYPE_NAMES: Mapping[str, Type] = {
    "bool": type_of(BOOL),
    "int": type_of(INT),
    "uint": type_of(UINT),
    "double": type_of(DOUBLE),
    "string": type_of(STRING),
    "bytes": type_of(BYTES),
    "list": type_of(list_of(DYN)),
    "map": type_of(map_of(DYN, DYN)),
    "null_type": type_of(NULL),
}
_WRAPPED: Mapping[str, Type] = {
    "String": STRING,
    "Bool": BOOL,
    "Int32": INT,
    "Int64": INT,
    "UInt32": UINT,
    "UInt64": UINT,
    "Double": DOUBLE,
    "Bytes": BYTES,
}
MESSAGES: Mapping[str, tuple[Type, Mapping[str, Type]]] = {
    **{f"google.protobuf.{name}Value": (type_, {"value": type_}) for name, type_ in _WRAPPED.items()},
    "google.protobuf.Value": (
        DYN,
        {"string_value": STRING, "bool_value": BOOL, "number_value": DOUBLE},
    ),
}
"""Message types that expressions may build: the type of the message as a value, and of its fields."""
VARIABLES: Mapping[str, Type] = {
    "repoDefault": STRING,
    "packageDefault": STRING,
    "upstream": DYN,
    "target": DYN,
    "repository": DYN,
}
