"""From what pydantic finds wrong to what a person reads: which field, why, and what to do about it."""

import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from reconciler.reasons import Reason

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]

_TYPES: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_KNOWN_FIELDS_SHOWN = 12
_SHORTEST_START = 3


class Fault(NamedTuple):
    """One thing wrong with one field. `of_key` tells that the field's own name is wrong, not its value."""

    path: Path
    reason: Reason
    message: str
    hint: str = ""
    of_key: bool = False


def parse_model(model: type[M], data: object) -> M | tuple[Fault, ...]:
    """Return the manifest that `data` is, or everything that is wrong with it, in the order of the fields.

    Total: no data raises. Names are those on disk; the snake_case ones of Python are unknown fields.
    """
    try:
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False)
        return tuple(_fault(model, detail) for detail in found)


def field_text(path: Iterable[str | int]) -> str:
    """Return a field path as people write it: `spec.targets[0].template`."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            name = step if step.replace("-", "").replace("_", "").isalnum() else f'["{step}"]'
            parts.append(name if not parts or name.startswith("[") else f".{name}")
    return "".join(parts)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names what `word` was probably meant to be, or else what there is."""
    names = sorted(known)
    folded = {name.casefold(): name for name in names}
    start = [name for name in folded if _starts_alike(name, word.casefold())]
    close = get_close_matches(word.casefold(), folded, n=1, cutoff=0.6) or start
    if close:
        return f"Did you mean {folded[close[0]]}?"
    shown = ", ".join(names[:_KNOWN_FIELDS_SHOWN])
    return f"Known here: {shown}{', …' if len(names) > _KNOWN_FIELDS_SHOWN else ''}." if names else ""


def _starts_alike(one: str, other: str) -> bool:
    return min(len(one), len(other)) >= _SHORTEST_START and (one.startswith(other) or other.startswith(one))


def _fault(model: type[BaseModel], detail: ErrorDetails) -> Fault:
    path: Path = detail["loc"]
    kind, value, where = detail["type"], detail["input"], field_text(path)
    if kind == "extra_forbidden":
        hint = suggest(str(path[-1]), _fields_at(model, path[:-1]))
        return Fault(path, Reason.UNKNOWN_FIELD, f"Unknown field {where}", hint, of_key=True)
    if kind == "missing":
        hint = f"Add {path[-1]} to {field_text(path[:-1]) or 'the manifest'}."
        return Fault(path, Reason.MISSING_FIELD, f"Missing required field {where}", hint)
    if wanted := _TYPES.get(kind):
        message = f"{where or 'The manifest'} must be {wanted}, but is {_described(value)}"
        return Fault(path, Reason.INVALID_MANIFEST, message, _type_hint(wanted, value))
    if kind in {"enum", "literal_error"}:
        expected = str(detail.get("ctx", {}).get("expected", ""))
        words = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
        message = f"{where} must be {expected}, but is {_described(value)}"
        return Fault(path, Reason.INVALID_MANIFEST, message, suggest(str(value), words))
    message = detail["msg"].removeprefix("Value error, ")
    return Fault(path, Reason.INVALID_MANIFEST, f"{where}: {message}" if where else message)


def _type_hint(wanted: str, value: object) -> str:
    if wanted == "a string" and isinstance(value, bool):
        return "Put it in quotes: without them y, n, yes, no, on, off, true and false are booleans."
    if wanted == "a string" and isinstance(value, int | float):
        return "Put it in quotes, as it is written: without them it is a number."
    if value is None:
        return "Give it a value, or remove the field."
    if wanted == "a list" and isinstance(value, Mapping):
        return "Start each item with a dash."
    return ""


def _described(value: object) -> str:
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
            return "a list"


def _fields_at(model: type[BaseModel], path: Path) -> tuple[str, ...]:
    """Return the names on disk of the fields that the mapping at `path` may have."""
    here: Any = model
    for step in path:
        here = _step_into(here, step)
    if not _is_model(here):
        return ()
    return tuple(info.alias or name for name, info in here.model_fields.items())


def _step_into(annotation: Any, step: str | int) -> Any:
    if _is_model(annotation):
        for name, info in annotation.model_fields.items():
            if step in (info.alias, name):
                return _unwrapped(info.annotation)
        return None
    arguments = get_args(annotation)
    return _unwrapped(arguments[-1 if get_origin(annotation) is dict else 0]) if arguments else None


def _unwrapped(annotation: Any) -> Any:
    """Return what an optional annotation stands for."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next((a for a in get_args(annotation) if a is not types.NoneType), None)
    return annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
