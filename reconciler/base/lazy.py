"""Mappings, modules and patterns that a run rarely needs: made when they are first used.

Type checkers see an ordinary import, under `TYPE_CHECKING`, and an ordinary `re.compile`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LazyMapping(Mapping[K, V]):
    """A mapping that `make` returns at the first use, and that never changes after.

    `make` must be pure: whether and when it is called changes nothing but time.
    """

    def __init__(self, make: Callable[[], Mapping[K, V]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[K, V]:
        return self._make()

    def __getitem__(self, key: K) -> V:
        return self._made[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, key: object) -> bool:
        return key in self._made

    def __repr__(self) -> str:
        return repr(self._made)


class LazyModule:
    """A module that is imported when one of its names is first used; annotations with them are texts."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


class _LazyPattern:
    """A regular expression that is compiled when it is first used: most take a start 0.1 to 2 ms."""

    def __init__(self, pattern: Any, flags: int = 0) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._source), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    from re import compile as lazy_pattern
else:
    lazy_pattern = _LazyPattern

__all__ = ["LazyMapping", "LazyModule", "lazy_pattern"]
