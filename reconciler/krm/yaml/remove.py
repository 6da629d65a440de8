"""Splices that take a key or an item away."""

from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.fill import fill, fill_root
from reconciler.krm.yaml.lines import line_end, line_start, next_line, starts_line
from reconciler.krm.yaml.marks import Path
from reconciler.krm.yaml.quoting import Style
from reconciler.krm.yaml.replacement import CannotSpliceError, Replacement
from reconciler.krm.yaml.tree import Mapping, Slot, Tree


def delete(tree: Tree, path: Path) -> Replacement:
    """Return the replacement that takes away an entry or item with its own comments.

    Raises:
        CannotSpliceError: The edit needs more than a splice.
        YamlError: There is no such entry or item.
    """
    slot = tree.slot(path)
    if slot is None:
        raise YamlError(f"There is no field {'.'.join(map(str, path))}")
    siblings: tuple[Slot, ...]
    siblings = slot.parent.entries if isinstance(slot.parent, Mapping) else slot.parent.items
    if len(siblings) == 1:
        return _empty(tree, path, slot)
    if slot.parent.style is Style.FLOW:
        return _delete_from_flow(tree, siblings, slot.index)
    return _delete_lines(tree, siblings, slot.index)


def _empty(tree: Tree, path: Path, slot: Slot) -> Replacement:
    empty: dict[str, object] | list[object] = {} if isinstance(slot.parent, Mapping) else []
    if slot.parent.style is Style.FLOW:
        return Replacement(slot.parent.content_start, slot.parent.span.end, "{}" if empty == {} else "[]")
    holder = tree.slot(path[:-1])
    return fill(tree, holder, empty) if holder else fill_root(tree, empty)


def _delete_from_flow(tree: Tree, siblings: tuple[Slot, ...], index: int) -> Replacement:
    """Delete up to the next sibling, or from the end of the previous one."""
    if "#" in siblings[0].parent.text:
        raise CannotSpliceError
    if index == 0:
        return Replacement(siblings[0].start, siblings[1].start, "")
    return Replacement(tree.slot_end(siblings[index - 1]), tree.slot_end(siblings[index]), "")


def _delete_lines(tree: Tree, siblings: tuple[Slot, ...], index: int) -> Replacement:
    """Delete whole lines; what follows a dash on its line gives way to its next sibling."""
    text = tree.text
    start, end = tree.extent(siblings[index])
    if not starts_line(text, start):
        if index > 0:  # behind a `?`, which only an explicit key has
            raise CannotSpliceError
        return Replacement(start, tree.extent(siblings[index + 1]).start, "")
    start = line_start(text, start)
    after = next_line(text, end)
    if text[after - 1 : after] != "\n" and start > 0:
        return Replacement(line_end(text, start - 1), after, "")
    return Replacement(start, after, "")
