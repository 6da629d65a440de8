"""Which functions of ours a run calls for one unit, and functions that fail whenever they are."""

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any

import msgspec
from pydantic import BaseModel

from reconciler.base import redact
from reconciler.render import update
from reconciler.render.update.sides import MergeCache
from tests.support.breaking.world import CONTAINERS, PACKAGES

_WORDS = re.compile(rf"(?<![a-z0-9_])(?:{'|'.join(('yew', *PACKAGES, *CONTAINERS))})(?![a-z0-9_])")
"""The names of units as whole words: three letters of one can stand in the name of a temporary directory."""
_WORDS_BYTES = re.compile(_WORDS.pattern.encode())
_DEPTH = 9
_MOST = 8
Units = frozenset[str]


class Reader:
    """Finds the names of units in values; what was looked at once is remembered by identity."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, Units]] = {}

    def unit(self, values: Iterable[object]) -> str:
        """Return the one unit that arguments are about, "" if there is none or several."""
        units = self._about(values, _DEPTH)
        return next(iter(units)) if len(units) == 1 else ""

    def _about(self, parts: Iterable[object], depth: int, *, names_itself: bool = False) -> Units:
        """Return what parts of one whole are about; parts about many units count if no others do."""
        read = [(part, narrowest(self.units(part, depth))) for part in parts]
        single = [u for p, u in read if len(u) == 1 and not (names_itself and _is_collection(p))]
        return narrowest(frozenset().union(*(single or (units for _, units in read))))

    def units(self, value: object, depth: int) -> Units:
        if isinstance(value, str):
            return frozenset(_WORDS.findall(value))
        if isinstance(value, bytes):
            return frozenset(word.decode() for word in _WORDS_BYTES.findall(value))
        if value is None or isinstance(value, int | float) or not depth:
            return frozenset()
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        found: Units = frozenset()
        parts = _fields(value)
        if parts is not None:
            found = self._about(parts, depth - 1, names_itself=True)
        elif isinstance(value, dict | list | tuple | set | frozenset):
            for part in (*value, *(value.values() if isinstance(value, dict) else ())):
                found |= self.units(part, depth - 1)
                if len(found) > _MOST:
                    break
        if parts is not None or isinstance(value, tuple | frozenset):
            self._seen[id(value)] = value, found
        return found


def _is_collection(value: object) -> bool:
    return isinstance(value, dict | list | set | frozenset) or type(value) is tuple


def narrowest(units: Units) -> Units:
    """Return units without those that contain another of them."""
    return frozenset(
        unit
        for unit in units
        if not CONTAINERS.get(unit, frozenset()) & units and not (unit == "blueprints" and len(units) > 1)
    )


def _fields(value: object) -> list[object] | None:
    """Return the fields of a value of ours, None for any other."""
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [*value]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, each.name, None) for each in fields(value)]
    return [*vars(value).values()] if isinstance(value, BaseModel) else None


@contextmanager
def recording(called: dict[tuple[str, str], set[str]]) -> Iterator[None]:
    """Note which functions of ours are called for which units."""
    reader = Reader()
    names: dict[CodeType, str] = {}

    def note(frame: Any, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        name = names.get(code)
        if name is None:
            module = frame.f_globals.get("__name__", "")
            name = names[code] = (
                module
                if module.startswith("reconciler.")
                and "<" not in code.co_qualname
                and not code.co_name.startswith("__")
                else ""
            )
        if name:
            count = code.co_argcount + code.co_kwonlyargcount
            local = frame.f_locals
            values = [local[arg] for arg in code.co_varnames[:count] if arg in local]
            if unit := reader.unit(values):
                called.setdefault((name, code.co_qualname), set()).add(unit)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: IndexError("list index out of range"),
    lambda: KeyError("odd"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: OSError("odd"),
    lambda: RecursionError("maximum recursion depth exceeded"),
    MemoryError,
    lambda: TypeError("odd"),
    lambda: AttributeError("odd"),
    lambda: ValueError("odd"),
)


@contextmanager
def broken(function: FunctionType, unit: str, make: Callable[[], Exception]) -> Iterator[list[str]]:
    """Let a function fail for a unit, wherever it was imported to; yield its failures."""
    failed: list[str] = []
    reader = Reader()
    code = function.__code__
    original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__

    def call(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if reader.unit([*args, *keywords.values()]) == unit:
            failed.append(function.__qualname__)
            raise make()
        return original(*args, **keywords)

    forget()
    function.__globals__[_CALL] = call
    with warnings.catch_warnings():
        # Python 3.13 warns of a generator that becomes a plain function.
        warnings.simplefilter("ignore", DeprecationWarning)
        function.__code__ = _trampoline.__code__
    try:
        yield failed
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            function.__code__ = code
        del function.__globals__[_CALL]


_CALL = "_call_of_a_test"


def _trampoline(*args: Any, **keywords: Any) -> Any:
    return _call_of_a_test(args, keywords)  # type: ignore[name-defined]  # noqa: F821 - a name where its code goes


def forget() -> None:
    """Empty the caches of functions of ours: what another run of this process called is called again."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("reconciler."):
            for value in vars(module).values():
                if isinstance(value, _Cached):
                    value.cache_clear()
    update._CACHE = MergeCache()
    redact._IN_USE.names.clear()
    redact._IN_USE.words = {}


_Cached = type(cache(lambda: None))


def find_function(module: str, name: str) -> FunctionType | None:
    """Return a function by its qualified name, None where it is none that can be replaced."""
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = vars(found).get(part)
        if found is None:
            return None
    found = getattr(found, "__func__", found)
    found = getattr(found, "fget", None) or getattr(found, "func", None) or found
    found = unwrap(found)
    is_one = isinstance(found, FunctionType) and not found.__code__.co_freevars
    # What breaks before its own guard is the fault of whoever calls it.
    return found if is_one and not {"guard", "isolate"} & {*found.__code__.co_names} else None
