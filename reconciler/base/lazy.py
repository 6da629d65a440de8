"""Modules that few runs need, and that are slow to import."""

from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is imported when something in it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
