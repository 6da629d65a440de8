"""Pieces of YAML text that move from one place to another, comments and quoting included."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Raw:
    """A piece of YAML text to be used as it is, re-indented to where it goes.

    In `SetValue` it is the text of one value. In `AddKey` and `InsertItem` it is the whole
    entry: head comments, `key: value` or `- value`, line comment, foot comments; what
    `Tree.raw_slot(path)` returns. The first line starts at column 0, without a line break at the end.
    """

    text: str


def dedent(text: str, column: int) -> str:
    """Return a piece whose first line starts at `column` with all its lines moved to the left."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(_move(line, -column) for line in rest)])


def indent(text: str, column: int) -> str:
    """Return a piece with all lines but the first moved to the right; blank lines stay."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(_move(line, column) for line in rest)])


def _move(line: str, by: int) -> str:
    if by >= 0:
        return " " * by + line if line.strip() else line
    have = len(line) - len(line.lstrip(" "))
    return line[min(have, -by) :]
