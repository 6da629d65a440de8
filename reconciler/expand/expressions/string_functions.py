"""CEL's strings extension for the portable engine; off unless a set asks for it."""

from collections.abc import Callable, Mapping
from typing import Any

from reconciler.expand.expressions.values import FaultError

_ASCII_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _char_at(text: str, index: int) -> str:
    _check_range(0 <= index <= len(text), index)
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    _check_range(0 <= start <= len(text), start)
    return text.find(part, start)


def _join(parts: list[str], separator: str = "") -> str:
    return separator.join(parts)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    characters = list(text)
    if 0 < count < len(characters):
        return [*characters[: count - 1], "".join(characters[count - 1 :])]
    return characters


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    _check_range(0 <= start <= len(text) and 0 <= stop <= len(text), start)
    _check_range(start <= stop, start)
    return text[start:stop]


def _check_range(holds: bool, index: int) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise FaultError(f"index out of range: {index}")


def _checked(function: Callable[..., Any], *types: type) -> Callable[..., Any]:
    """Return a function that fails where an argument is of another type, or of a subtype: `true` is no 1."""

    def call(*arguments: Any) -> Any:
        if any(type(argument) is not wanted for argument, wanted in zip(arguments, types, strict=False)):
            raise FaultError("no such overload")
        return function(*arguments)

    return call


STRING_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "charAt": _checked(_char_at, str, int),
    "indexOf": _checked(_index_of, str, str, int),
    "lastIndexOf": _checked(str.rfind, str, str),
    "join": _checked(_join, list, str),
    "lowerAscii": _checked(lambda text: text.translate(_ASCII_LOWER), str),
    "upperAscii": _checked(lambda text: text.translate(_ASCII_UPPER), str),
    "replace": _checked(_replace, str, str, str, int),
    "split": _checked(_split, str, str, int),
    "substring": _checked(_substring, str, int, int),
    "trim": _checked(str.strip, str),
}
