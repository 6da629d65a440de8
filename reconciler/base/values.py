"""The decorator of value types: dataclasses to readers and type checkers, msgspec structs when they run.

The standard decorator writes the source of each method and compiles it: half a millisecond per class,
a third of the start of a run. A struct takes a fortieth of that, and its objects are made, compared
and hashed in C. `dataclasses.replace`, `fields` and `asdict` work on them.

`settled_dataclass` is for values of which a run makes few, and for those that pydantic models hold: a
standard dataclass with methods that read its fields when they are called, so that none is compiled.

`record_dataclass` is for values on disk, of which a run reads thousands: camelCase there, and unknown
fields are refused. msgspec reads one in a tenth of the time and memory of a pydantic model.

Differs: a class may inherit only from `object` and `Generic`; assigning to a field of a frozen value
raises AttributeError, not its subclass FrozenInstanceError; and a pydantic model cannot hold a struct,
so the few values that records hold are not structs.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec


def _make_value_type(cls: type[Any] | None = None, /, **settings: Any) -> Any:
    """Return the value type of a class with annotated fields, as `dataclasses.dataclass` does."""
    if cls is None:
        return lambda cls: _make_value_type(cls, **settings)
    namespace = {k: v for k, v in vars(cls).items() if k not in _MADE_BY_PYTHON}
    declared = {k: v for k, v in namespace.items() if isinstance(v, dataclasses.Field)}
    if not all(field.init for field in declared.values()):  # a struct has no field that only methods set
        return dataclasses.dataclass(cls, **settings)
    settings.pop("slots", None)
    return _make_struct(cls, namespace, declared, settings)


# From Python 3.14 on a class holds a function that returns its annotations, and what it returned.
_MADE_BY_PYTHON = {"__dict__", "__weakref__", "__annotations__", "__annotate_func__", "__annotations_cache__"}


def _replace(value: Any, /, **changes: Any) -> Any:
    """Return a copy with other values of some fields, as `dataclasses.replace` does.

    Of a struct it takes a tenth of the time: for values of which a run copies thousands.
    """
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)


def _make_settled(cls: type[Any] | None = None, /, **settings: Any) -> Any:
    """Return a frozen dataclass as `dataclasses.dataclass` does, at a tenth of the cost."""
    if cls is None:
        return lambda cls: _make_settled(cls, **settings)
    if not settings.pop("frozen", False):
        raise TypeError(f"{cls.__name__} must be frozen")
    methods = _SETTLED | (_COMPARING if settings.pop("eq", True) else {})
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return dataclasses.dataclass(cls, init=False, repr=False, eq=False, **settings)


if TYPE_CHECKING:
    from dataclasses import dataclass, replace
    from dataclasses import dataclass as record_dataclass
    from dataclasses import dataclass as settled_dataclass
else:
    dataclass, settled_dataclass, replace = _make_value_type, _make_settled, _replace
    record_dataclass = partial(_make_value_type, rename="camel", forbid_unknown_fields=True)

__all__ = ["dataclass", "no_entries", "record_dataclass", "replace", "settled_dataclass", "share"]

T = TypeVar("T")


def share(value: T, held: T | None) -> T:
    """Return the value that is held already if it is equal: a fleet holds each value of a package once."""
    return held if held is not None and value == held else value


def no_entries() -> Mapping[Any, Any]:
    """Return an empty mapping, the same for all values that need one."""
    return _NO_ENTRIES


_NO_ENTRIES: Mapping[Any, Any] = {}


def _make_struct(
    cls: type[Any],
    namespace: dict[str, Any],
    declared: dict[str, "dataclasses.Field[Any]"],
    settings: dict[str, Any],
) -> type[Any]:
    annotations = inspect.get_annotations(cls)
    namespace["__qualname__"] = cls.__qualname__
    values = {name: namespace.pop(name) for name in annotations if name in namespace}
    namespace["__dataclass_fields__"] = _Fields(annotations, values)
    namespace["__get_pydantic_core_schema__"] = classmethod(_refuse_model)
    compared = [name for name in annotations if name not in declared or declared[name].compare]
    if settings.get("eq", True) and len(compared) < len(annotations):
        _compare(namespace, compared)
    shown = [name for name in annotations if name not in declared or declared[name].repr]
    if len(shown) < len(annotations):
        namespace.setdefault("__repr__", _representation(shown))
    fields = [(name, type_, _default_of(values, name)) for name, type_ in annotations.items()]
    bases = (*(base for base in cls.__bases__ if base is not object), msgspec.Struct)
    # A frozen value is made after all that it holds, so it is part of no cycle.
    settings["gc"] = not settings.get("frozen", False)
    return msgspec.defstruct(cls.__name__, fields, bases=bases, namespace=namespace, **settings)


def _refuse_model(cls: type[Any], *_: object) -> NoReturn:
    raise TypeError(f"A model holds {cls.__name__}, so it must be a standard dataclass")


class _Fields:
    """The fields of a struct as `dataclasses` describes them, made when it looks for them."""

    def __init__(self, annotations: dict[str, Any], values: dict[str, Any]) -> None:
        self.namespace = {"__annotations__": annotations, **values}
        self.fields: Any = None

    def __get__(self, *_: object) -> Any:
        if self.fields is None:
            make = dataclasses.dataclass(init=False, repr=False, eq=False)
            fields = dataclasses.fields(make(type("_", (), self.namespace)))
            self.fields = {field.name: field for field in fields}
        return self.fields


def _default_of(values: dict[str, Any], name: str) -> Any:
    default = values.get(name, msgspec.NODEFAULT)
    if not isinstance(default, dataclasses.Field):
        return default
    if default.default_factory is not dataclasses.MISSING:
        return msgspec.field(default_factory=default.default_factory)
    return msgspec.NODEFAULT if default.default is dataclasses.MISSING else default.default


def _compare(namespace: dict[str, Any], names: list[str]) -> None:
    values = attrgetter(*names)

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    namespace.setdefault("__eq__", equal)
    namespace.setdefault("__hash__", lambda self: hash(values(self)))


def _representation(names: list[str]) -> Callable[[object], str]:
    def representation(self: object) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return representation


# The methods of a settled dataclass


def _initialize(self: Any, /, *arguments: Any, **values: Any) -> None:
    fields = dataclasses.fields(self)
    name = type(self).__qualname__
    if len(arguments) > len(fields):
        raise TypeError(f"{name}() takes {len(fields)} arguments, not {len(arguments)}")
    for field, value in zip(fields, arguments, strict=False):
        if field.name in values:
            raise TypeError(f"{name}() got two values of {field.name!r}")
        values[field.name] = value
    for field in fields:
        if field.name not in values:
            values[field.name] = _default(field, name)
        object.__setattr__(self, field.name, values.pop(field.name))
    if values:
        raise TypeError(f"{name}() got unexpected arguments: {', '.join(sorted(values))}")


def _default(field: "dataclasses.Field[Any]", name: str) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise TypeError(f"{name}() misses the argument {field.name!r}")
    return field.default


def _compared(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, field.name) for field in dataclasses.fields(self) if field.compare)


def _equal(self: object, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: object) -> int:
    return hash(_compared(self))


def _describe(self: Any) -> str:
    return _representation([field.name for field in dataclasses.fields(self) if field.repr])(self)


def _refuse_change(self: object, name: str, _: object = None) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r} of {type(self).__qualname__}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SETTLED = {
    "__init__": _initialize,
    "__repr__": _describe,
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
    "__getstate__": _state,
    "__setstate__": _restore,
}
_COMPARING = {"__eq__": _equal, "__hash__": _hash}
