"""Writing values as new YAML text in the layout of the file that they go to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.quoting import write_key, write_scalar


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is laid out: the width of one level, and whether lists stand in their key's column."""

    indent: int = 2
    compact_lists: bool = True


DEFAULT_LAYOUT: Final = Layout()
_DASH: Final = 2
_DEEPEST: Final = 200


def emit(value: Any, layout: Layout = DEFAULT_LAYOUT, *, flow: bool = False) -> str:
    """Return a value as YAML text without a line break at its end.

    Strings that some reader would take for another type are quoted; strings of several lines
    become literal blocks. Mappings keep the order that they have.

    Raises:
        YamlError: The value has no exact form in YAML as Kubernetes reads it.
    """
    if flow:
        return _flow(value, _DEEPEST)
    return "\n".join(_lines(value, layout, _DEEPEST))


def emit_entry(name: str, value: Any, layout: Layout = DEFAULT_LAYOUT) -> str:
    """Return `name: value` as a block entry, without a line break at its end.

    Raises:
        YamlError: As `emit`.
    """
    return "\n".join(_entry(name, value, layout, _DEEPEST))


def emit_item(value: Any, layout: Layout = DEFAULT_LAYOUT) -> str:
    """Return `- value` as a block item, without a line break at its end.

    Raises:
        YamlError: As `emit`.
    """
    return "\n".join(_item(value, layout, _DEEPEST))


def is_collection(value: Any) -> bool:
    """Tell whether a value is written on lines of its own: a mapping or list that is not empty."""
    return isinstance(value, (dict, list, tuple)) and len(value) > 0


def _lines(value: Any, layout: Layout, room: int) -> Iterator[str]:
    """Yield the lines of a value; those of a block scalar after its first are relative to its parent."""
    if not room:
        raise YamlError("The value is nested too deeply to be written")
    if not is_collection(value):
        yield from _flow(value, room, indent=layout.indent).split("\n")
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _entry(name, child, layout, room - 1)
    else:
        for child in value:
            yield from _item(child, layout, room - 1)


def _entry(name: str, value: Any, layout: Layout, room: int) -> Iterator[str]:
    key = write_key(name)
    lines = _lines(value, layout, room)
    if not is_collection(value):
        yield f"{key}: {next(lines)}"
        yield from lines
        return
    yield f"{key}:"
    width = layout.indent if isinstance(value, dict) or not layout.compact_lists else 0
    yield from _indented(lines, width)


def _item(value: Any, layout: Layout, room: int) -> Iterator[str]:
    lines = _lines(value, layout, room)
    yield f"- {next(lines)}"
    yield from _indented(lines, _DASH) if is_collection(value) else lines


def _indented(lines: Iterator[str], width: int) -> Iterator[str]:
    for line in lines:
        yield " " * width + line if line else line


def _flow(value: Any, room: int, *, indent: int = 0) -> str:
    """Write a value on one line; a scalar may be a block one when `indent` is given."""
    if not room:
        raise YamlError("The value is nested too deeply to be written")
    if isinstance(value, dict):
        parts = (f"{write_key(name, flow=True)}: {_flow(child, room - 1)}" for name, child in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(child, room - 1) for child in value) + "]"
    return write_scalar(value, flow=not indent, indent=indent)
