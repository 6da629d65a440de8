"""Values of tests: copies with other fields, whichever kind of value it is, and a credential."""

import dataclasses
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

TOKEN: Final = "T0kenOf4Test7xQ9vL2z"
"""A credential with the shape of a token, of no server."""


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy with other values of some fields."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var] # the only other kind
