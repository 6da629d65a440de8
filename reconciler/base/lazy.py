"""Mappings that a run rarely needs: made when they are first used."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

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
