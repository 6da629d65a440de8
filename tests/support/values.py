"""Copies of values with other fields, whichever kind of value it is."""

import dataclasses
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy with other values of some fields."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var] # the only other kind
