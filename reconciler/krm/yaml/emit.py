"""Writing values as new YAML text in a given style."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is laid out: the width of one level, and whether lists stand in their key's column."""

    indent: int = 2
    compact_lists: bool = True


def emit(value: Any, layout: Layout = Layout(), *, flow: bool = False) -> str:
    """Return a value as YAML text without a line break at its end.

    Strings that would be read as another type are quoted; strings of several lines become literal blocks.

    Raises:
        YamlError: The value has no exact form in YAML as Kubernetes reads it.
    """
    raise NotImplementedError
