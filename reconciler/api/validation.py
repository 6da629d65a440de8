"""Turn errors of pydantic into messages for people: field, reason and next step."""

import types
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from itertools import chain, groupby
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from reconciler.api.meta import ACCEPTED
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import boolean_hint, close_names, parse_boolean, suggest
from reconciler.policy import refuse_field

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]


class FieldType(StrEnum):
    """Types of fields, in words for people."""

    STRING = "a string"
    INTEGER = "an integer"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    LIST = "a list"
    MAPPING = "a mapping"
    VALID = "valid"


_TYPES: Mapping[str, FieldType] = {
    "string_type": FieldType.STRING,
    "int_type": FieldType.INTEGER,
    "int_parsing": FieldType.INTEGER,
    "int_from_float": FieldType.INTEGER,
    "finite_number": FieldType.INTEGER,
    "float_type": FieldType.NUMBER,
    "float_parsing": FieldType.NUMBER,
    "bool_type": FieldType.BOOLEAN,
    "bool_parsing": FieldType.BOOLEAN,
    "list_type": FieldType.LIST,
    "tuple_type": FieldType.LIST,
    "dict_type": FieldType.MAPPING,
    "dataclass_type": FieldType.MAPPING,
    "model_type": FieldType.MAPPING,
    "model_attributes_type": FieldType.MAPPING,
}
_UNIONS = (Union, types.UnionType)
_HEAD = {"apiVersion", "kind", "metadata"}
_WRAPPERS = ("labelSelector", "selector")
"""Fields of other APIs that hold what a selector has here itself."""
_MISSPELT = 0.85
"""Similarity from which a name is another one misspelt, though a field elsewhere has it."""
_REPAIRS = 8
"""Times that data is repaired: a misspelt field may have misspelt ones below it."""


class FieldError(NamedTuple):
    """An error of one field."""

    path: Path
    reason: Reason
    message: str
    hint: str = ""
    of_key: bool = False
    """Whether the name of the field is wrong, and not its value."""
    meant: str = ""
    """The closest name, or the place where the model has a field of that name."""


def parse_model(model: type[M], data: object, *, accepted: bool = False) -> M | tuple[FieldError, ...]:
    """Return the model of `data`, or all its errors in the order of the fields.

    Total: no data raises. Field names are those on disk; Python's snake_case names are unknown fields. What
    is `accepted` by an API server may be of a newer version; further fields are ignored.
    """
    try:
        context = ACCEPTED if accepted else None
        extra: Literal["ignore"] | None = "ignore" if accepted else None
        return model.model_validate(data, by_alias=True, by_name=False, extra=extra, context=context)
    except ValidationError as error:
        return tuple(_field_errors(model, _details(error)))


class PartialModel(NamedTuple, Generic[M]):
    """The readable part of data with errors: `model` lacks some of the fields with errors, or is None."""

    model: M | None
    errors: tuple[FieldError, ...]

    def concerns(self, path: Path) -> bool:
        """Tell whether a field has an error, is in one that has, contains one, or was perhaps meant."""
        inner = path if len(path) > 1 else None
        wrong = (error.path for error in self.errors)
        meant = any(error.meant and path == (*error.path[:-1], error.meant) for error in self.errors)
        return meant or any(path[: len(bad)] == bad or bad[: len(path)] == inner for bad in wrong)


def parse_partly(model: type[M], data: object) -> PartialModel[M]:
    """Return all errors of `data`, and its model for further checks: one wrong value hides no other fault.

    A number or boolean in place of a text is that text, and a misspelt field the one that was meant. Other
    wrong values are left out. Total.
    """
    value, errors, meant = deepcopy(data), list[FieldError](), dict[Path, Path]()
    for _ in range(_REPAIRS):
        parsed = parse_model(model, value)
        if not isinstance(parsed, tuple):
            return PartialModel(parsed, tuple(errors))
        before = PartialModel(None, tuple(errors))
        # Nobody wrote the name that was meant: only what stands below it is known to be wrong.
        errors += [
            error._replace(path=_as_written(error.path, meant))
            for error in parsed
            if error.path not in meant and not before.concerns(error.path)
        ]
        for error in parsed:
            if name := _repair(model, value, error):
                meant[(*error.path[:-1], name)] = error.path
    return PartialModel(None, tuple(errors))


def _as_written(path: Path, meant: Mapping[Path, Path]) -> Path:
    for length in range(len(path), 0, -1):
        if (written := meant.get(path[:length])) is not None:
            return (*_as_written(written[:-1], meant), written[-1], *path[length:])
    return path


def _repair(model: type[Any], data: Any, error: FieldError) -> str:
    """Change data so that an error is gone; return the name that was meant instead of a misspelt one."""
    path = error.path[:-1] if error.reason is Reason.MISSING_FIELD else error.path
    parent = data
    for step in path[:-1]:
        try:
            parent = parent[step]
        except (KeyError, IndexError, TypeError):
            return ""
    last = path[-1] if path else None
    if isinstance(parent, list) and isinstance(last, int):
        parent[last] = {} if any(disk_fields(_type_at(model, path))) else str(parent[last])
    elif isinstance(parent, dict) and last in parent:
        value = parent.pop(last)
        # A name that is only alike may mean something else: what it holds is not checked as that.
        is_misspelt = bool(get_close_matches(str(last), [error.meant], cutoff=_MISSPELT))
        if is_misspelt and error.meant in _fields_at(model, path[:-1]) and error.meant not in parent:
            parent[error.meant] = value
            return error.meant
        if not error.of_key and isinstance(value, bool | int | float) and _type_at(model, path) is str:
            parent[last] = str(value)
    return ""


def _paths_of(name: str, annotation: Any, path: str) -> Iterator[str]:
    """Yield where a field of that name is below a place, apart from the place itself."""
    for field, inner in disk_fields(annotation):
        is_list = get_origin(inner) is list
        below, item = f"{path}.{field}{'[]' if is_list else ''}", get_args(inner)[0] if is_list else inner
        if any(field == name for field, _ in disk_fields(item)):
            yield f"{below}.{name}"
        yield from _paths_of(name, item, below)


def type_error(path: Path, value: object, *expected: FieldType) -> FieldError:
    """Return the error of a value of a wrong type; a field may have one of several."""
    words = " or ".join(expected)
    message = f"{field_text(path) or 'The manifest'} must be {words}, but is {described(value)}"
    return FieldError(path, Reason.INVALID_MANIFEST, message, _type_hint(expected, value))


def _details(error: ValidationError) -> list[ErrorDetails]:
    details = error.errors(include_url=False)
    # Pydantic counts the valid items of a list: one with a wrong item is not also too short.
    wrong = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in wrong]


def field_text(path: Iterable[str | int]) -> str:
    """Return a field path as text: `spec.targets[0].template`."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            name = step if step.replace("-", "").replace("_", "").isalnum() else f'["{step}"]'
            parts.append(name if not parts or name.startswith("[") else f".{name}")
    return "".join(parts)


def _field_errors(model: type[Any], details: Iterable[ErrorDetails]) -> Iterator[FieldError]:
    """Yield the errors of the fields; a field of several types has the errors of the type that was meant."""
    for path, group in groupby(details, lambda detail: _union_path(model, detail["loc"])):
        if path is None:
            for detail in group:
                is_key = detail["loc"][-1:] == ("[key]",)  # as pydantic marks the key of a mapping
                place = detail["loc"][:-1] if is_key else detail["loc"]
                error = _field_error(model, detail, place)
                yield error._replace(of_key=True) if is_key else error
            continue
        branches = list(group)
        inner = [d for d in branches if len(d["loc"]) > len(path) + 1]
        if inner:
            yield from (_field_error(model, d, (*path, *d["loc"][len(path) + 1 :])) for d in inner)
        else:
            expected = dict.fromkeys(_TYPES.get(d["type"], FieldType.VALID) for d in branches)
            yield type_error(path, branches[0]["input"], *expected)


def _union_path(model: type[Any], location: Path) -> Path | None:
    """Return the path of the field of several types that an error is about, where it is about one."""
    annotation: Any = model
    for index, step in enumerate(location):
        if get_origin(annotation) in _UNIONS:
            return location[:index]
        annotation = _step_into(annotation, step)
    return None


def _field_error(model: type[Any], detail: ErrorDetails, path: Path) -> FieldError:
    kind, value, where = detail["type"], detail["input"], field_text(path)
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        name, fields = str(path[-1]), _fields_at(model, path[:-1])
        hint, meant = suggest(name, fields, most=1), "".join(close_names(name, fields, most=1))
        below = _paths_of(name, _type_at(model, path[:-1]), field_text(path[:-1]))
        lengths = range(len(path) - 2, 0 if name in _HEAD else -1, -1)  # each document has those at its top
        above = (path[:length] for length in lengths)
        outside = (field_text((*at, name)) for at in above if name in _fields_at(model, at))
        elsewhere = next(chain(below, outside), "")
        if elsewhere and not get_close_matches(name, fields, cutoff=_MISSPELT):
            hint, meant = f"It belongs at {elsewhere}.", elsewhere
        if name in _WRAPPERS and isinstance(value, Mapping) and value and value.keys() <= set(fields):
            hint, meant = f"Write {' and '.join(map(str, value))} here, without {name}.", ""
        message = f"Unknown field {field_text(path)}"
        return FieldError(path, Reason.UNKNOWN_FIELD, message, hint, of_key=True, meant=meant)
    if kind == "missing":
        hint = f"Add {path[-1]} to {field_text(path[:-1]) or 'the manifest'}."
        if get_origin(fixed := _type_at(model, path)) is Literal and len(get_args(fixed)) == 1:
            hint = f"Add {path[-1]}: {get_args(fixed)[0]}."
        return FieldError(path, Reason.MISSING_FIELD, f"Missing required field {where}", hint)
    if expected_type := _TYPES.get(kind):
        return type_error(path, value, expected_type)
    if kind in {"enum", "literal_error"}:
        expected = str(detail.get("ctx", {}).get("expected", ""))
        words = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
        message = f"{where} must be {expected}, but is {described(value)}"
        return FieldError(path, Reason.INVALID_MANIFEST, message, suggest(str(value), words, most=1))
    message = detail["msg"].removeprefix("Value error, ")
    message = f"{where}: {message}" if where else message
    context = detail.get("ctx", {})
    if limit := _limit_text(kind, context):
        message = f"{where} must {limit}, but is {described(value)}"
    return FieldError(path, Reason.INVALID_MANIFEST, message, str(context.get("hint", "")))


def _limit_text(kind: str, context: Mapping[str, Any]) -> str:
    """Return the limit that a value exceeds, as a clause; "" for other errors."""
    match kind:
        case "greater_than_equal":
            return f"be at least {context['ge']}"
        case "less_than_equal":
            return f"be at most {context['le']}"
        case "int_parsing_size":
            return f"be at most {(1 << 63) - 1}"
        case "too_short":
            return "have an item"
        case "string_too_short" | "string_pattern_mismatch":
            return "not be empty"
    return ""


def _type_hint(expected: tuple[FieldType, ...], value: object) -> str:
    if expected == (FieldType.STRING,) and isinstance(value, bool):
        return "Put it in quotes: without them y, n, yes, no, on, off, true and false are booleans."
    if expected == (FieldType.STRING,) and isinstance(value, int | float):
        return "Put it in quotes, as it is written: without them it is a number."
    if expected == (FieldType.BOOLEAN,) and isinstance(value, str):
        return "Write it without quotes." if parse_boolean(value) is not None else boolean_hint(value)
    if value is None:
        return "Give it a value, or remove the field."
    if expected == (FieldType.LIST,) and isinstance(value, Mapping | str):
        return "Start each item with a dash."
    return ""


def described(value: object) -> str:
    """Return what a value is, in words for people."""
    match value:
        case None:
            return "empty"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value[:60]!r}"
        case Mapping():
            return "a mapping"
        case _:
            return "a list" if value else "an empty list"


def _fields_at(model: type[Any], path: Path) -> tuple[str, ...]:
    return tuple(name for name, _ in disk_fields(_type_at(model, path)))


def _type_at(model: type[Any], path: Path) -> Any:
    annotation: Any = model
    for step in path:
        annotation = _step_into(annotation, step)
    return annotation


def _step_into(annotation: Any, step: str | int) -> Any:
    if known_fields := dict(disk_fields(annotation)):
        return known_fields.get(str(step))
    arguments = get_args(annotation)
    return _unwrapped(arguments[-1 if get_origin(annotation) is dict else 0]) if arguments else None


def disk_fields(annotation: Any) -> Iterator[tuple[str, Any]]:
    """Yield name on disk and type of each field of a model or settings dataclass; nothing for other types."""
    if get_origin(annotation) in _UNIONS:
        for member in get_args(annotation):
            yield from disk_fields(member)
    elif hasattr(annotation, "model_fields"):
        for name, info in annotation.model_fields.items():
            yield info.alias or name, _unwrapped(info.annotation)
    elif isinstance(annotation, type) and is_dataclass(annotation):
        hints = get_type_hints(annotation, include_extras=True)
        for item in fields(annotation):
            metadata = getattr(hints[item.name], "__metadata__", ())
            if not any(getattr(annotation, "func", None) is refuse_field for annotation in metadata):
                aliases = (alias for annotation in metadata if (alias := getattr(annotation, "alias", None)))
                yield next(aliases, to_camel(item.name)), _unwrapped(hints[item.name])


def _unwrapped(annotation: Any) -> Any:
    """Return the type inside an annotation with metadata or `None`; of several types, all."""
    if get_origin(annotation) is Annotated:
        return _unwrapped(get_args(annotation)[0])
    if get_origin(annotation) in _UNIONS:
        members = [a for a in get_args(annotation) if a is not types.NoneType]
        return members[0] if len(members) == 1 else annotation
    return annotation
