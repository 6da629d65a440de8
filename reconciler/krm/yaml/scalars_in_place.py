"""The most frequent edit by far: other scalars on the same lines, checked line by line.

A line `key: value` of block style means the same wherever it stands. So when every edit replaces
a scalar on its key's line by another that stays on the line, it is enough to parse the new
lines alone: the whole text need not be parsed a second time.
"""

from typing import Any

from reconciler.krm.yaml.edits import Edit, SetValue
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.limits import PACKAGE_LIMITS
from reconciler.krm.yaml.load import iterate_documents
from reconciler.krm.yaml.model import canonical, plain_value
from reconciler.krm.yaml.quoting import Style, write_scalar
from reconciler.krm.yaml.raw import Raw
from reconciler.krm.yaml.replacement import Replacement, splice
from reconciler.krm.yaml.tree import Entry, Scalar, Slot, Tree

_NOT_SCALAR = (Raw, dict, list, tuple)


def replace_on_lines(tree: Tree, edits: tuple[Edit, ...]) -> str | None:
    """Return the text with all edits made, or None if they are not all as simple as that.

    Raises:
        YamlError: A value cannot be written.
    """
    replacements: dict[Slot, Replacement] = {}
    lines: list[str] = []
    wanted: list[Any] = []
    for edit in edits:
        slot = tree.slot(edit.path)
        if slot is None or slot in replacements or not isinstance(edit, SetValue):
            return None
        old = slot.value
        if (
            not isinstance(old, Scalar)
            or isinstance(edit.value, _NOT_SCALAR)
            or not _is_simple(tree, slot, old)
        ):
            return None
        start, end = old.raw.start_mark.index, old.raw.end_mark.index
        new = write_scalar(edit.value, like=old.style)
        if "\n" in new:
            return None
        replacements[slot] = Replacement(start, end, new)
        lines.append(f"- {tree.text[slot.start : start]}{new}\n")
        value = plain_value(edit.value)
        wanted.append({edit.path[-1]: value} if isinstance(slot, Entry) else [value])
    return splice(tree.text, replacements.values()) if _read("".join(lines)) == canonical(wanted) else None


def _is_simple(tree: Tree, slot: Slot, old: Scalar) -> bool:
    """Tell whether a slot is one line: a key or dash, and a bare scalar in quotes or without."""
    start, end = old.raw.start_mark, old.raw.end_mark
    return (
        slot.parent.style is Style.BLOCK
        and old.raw.style not in ("|", ">")
        and start.line == end.line
        and start.index != end.index
        and tree.text[start.index] not in "&!"
        and "\n" not in tree.text[slot.start : start.index]
    )


def _read(lines: str) -> bytes | None:
    try:
        (found,) = iterate_documents(lines, PACKAGE_LIMITS)
    except YamlError:
        return None
    return canonical(found.value)
