"""Models of what is on disk: structs where the data is correct, pydantic models where it has errors.

A model has the interface of a pydantic model, as far as it is used here, and is a msgspec struct, which
is made and read in a tenth of the time. Data that the struct refuses is validated again by the pydantic
model of the same fields, which names every error. Only then, and for JSON schemas, is pydantic imported:
that would take a third of a run over a small fleet.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, get_type_hints

import msgspec

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core.core_schema import CoreSchema

SOURCE = "source"
"""The attribute of a pydantic model with the model that it was made from."""
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Model(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of models: immutable, camelCase on disk, unknown fields refused.

    `strict` refuses what pydantic would convert otherwise, such as `"3"` for a number.
    """

    strict: ClassVar[bool] = False

    @classmethod
    def model_validate(cls, data: object, **options: Any) -> Self:
        """Return the model of plain data.

        Raises:
            ValueError: The errors of all fields, as pydantic's ValidationError.
        """
        try:
            return msgspec.convert(data, cls)
        except _REFUSED:
            return cls._of(pydantic_model(cls).model_validate(data, **options))

    @classmethod
    def model_validate_json(cls, data: bytes | str, **options: Any) -> Self:
        """Return the model of a JSON text.

        Raises:
            ValueError: The errors of all fields, as pydantic's ValidationError.
        """
        try:
            return msgspec.json.decode(data, type=cls)
        except _REFUSED:
            return cls._of(pydantic_model(cls).model_validate_json(data, **options))

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return a copy with other values of some fields."""
        return msgspec.structs.replace(self, **update)

    def model_dump(self, *, exclude_none: bool = False, include: Collection[str] = ()) -> dict[str, Any]:
        """Return the model as plain data with the names on disk.

        Args:
            exclude_none: Leave out fields of models that are None.
            include: The fields of this model that are wanted; empty: all.
        """
        held: Iterable[tuple[str, Any]] = zip(
            self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True
        )
        if include:
            named = zip(self.__struct_fields__, held, strict=True)
            held = (each for name, each in named if name in include)
        data: dict[str, Any] = {}
        for name, value in held:
            if type(value) in _LEAVES:
                data[name] = value
            elif value is not None or not exclude_none:
                data[name] = _plain(value, exclude_none=exclude_none)
        return data

    @classmethod
    def _of(cls, validated: "BaseModel") -> Self:
        return cls(**dict(validated))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> "CoreSchema":
        from pydantic_core import core_schema  # noqa: PLC0415 - data with errors

        return core_schema.no_info_after_validator_function(
            cls._of, handler.generate_schema(pydantic_model(cls))
        )


def to_camel(name: str) -> str:
    """Return the name on disk of a field."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


_LEAVES = {str, bool, int, float}


def _plain(value: object, *, exclude_none: bool) -> object:
    if isinstance(value, Model):
        return value.model_dump(exclude_none=exclude_none)
    if isinstance(value, dict):
        return {key: _plain(item, exclude_none=exclude_none) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, exclude_none=exclude_none) for item in value]
    return value


@cache
def pydantic_model(model: type[Model]) -> "type[BaseModel]":
    """Return the pydantic model with the fields of a model, for its errors and its JSON schema."""
    from pydantic import ConfigDict, create_model  # noqa: PLC0415 - data with errors

    config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True, strict=model.strict
    )
    fields = dict(_fields(model))
    about: dict[str, Any] = {"__doc__": model.__doc__, "__module__": model.__module__}
    made = create_model(model.__name__, __config__=config, **about, **fields)
    setattr(made, SOURCE, model)
    return made


def _fields(model: type[Model]) -> Iterator[tuple[str, Any]]:
    from pydantic import Field  # noqa: PLC0415 - data with errors

    hints = get_type_hints(model, include_extras=True)
    for each in msgspec.structs.fields(model):
        if each.default_factory is not msgspec.NODEFAULT:
            yield each.name, (hints[each.name], Field(default_factory=each.default_factory))
        else:
            yield each.name, (hints[each.name], ... if each.required else each.default)


class Checked:
    """Metadata of a type: constraints in the names that `Field` of pydantic has for them."""

    def __init__(self, **constraints: Any) -> None:
        self.constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> "CoreSchema":
        from pydantic import Field  # noqa: PLC0415 - data with errors

        schema: CoreSchema = handler(Annotated[source, Field(**self.constraints)])
        return schema


class Before:
    """Metadata of a type: a function that is called with a value before its type is checked."""

    def __init__(self, function: Callable[[object], object]) -> None:
        self.function = function

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> "CoreSchema":
        from pydantic_core import core_schema  # noqa: PLC0415 - data with errors

        return core_schema.no_info_before_validator_function(self.function, handler(source))
