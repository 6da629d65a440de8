"""Modules and expressions that few runs need, and that are slow to make at the start."""

import re
from importlib import import_module
from typing import Any, AnyStr, cast


class LazyModule:
    """A module that is imported when something in it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


class _Regex:
    """An expression with the methods of the compiled one, which is made for the first of them."""

    def __init__(self, text: Any, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled at its first use: a run uses few of those of modules."""
    return cast("re.Pattern[AnyStr]", _Regex(text, flags))
