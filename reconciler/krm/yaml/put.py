"""Splices that put something somewhere: set a value, add a key, insert an item."""

from typing import Any

from reconciler.krm.yaml.edits import AddKey, InsertItem, SetValue
from reconciler.krm.yaml.emit import Layout, emit, emit_entry, emit_item
from reconciler.krm.yaml.fill import fill, fill_root
from reconciler.krm.yaml.lines import column_of, line_end, line_start, starts_line
from reconciler.krm.yaml.marks import Path
from reconciler.krm.yaml.model import plain_value
from reconciler.krm.yaml.quoting import Style, write_key
from reconciler.krm.yaml.raw import Raw, indent
from reconciler.krm.yaml.replacement import CannotSpliceError, Replacement
from reconciler.krm.yaml.tree import AnyNode, Mapping, Sequence, Slot, Tree


def set_value(tree: Tree, edit: SetValue) -> Replacement:
    """Return the replacement that sets a value, or adds it where there is none.

    Raises:
        CannotSpliceError: The edit needs more than a splice.
        YamlError: The value cannot be written.
    """
    if not edit.path:
        return fill_root(tree, edit.value)
    slot = tree.slot(edit.path)
    if slot is not None:
        return fill(tree, slot, edit.value)
    name = edit.path[-1]
    if not isinstance(name, str):
        raise CannotSpliceError
    value = edit.value
    if isinstance(value, Raw):
        value = Raw(_raw_entry(name, value, tree.layout))
    return add_key(tree, AddKey(edit.path[:-1], name, value))


def add_key(tree: Tree, edit: AddKey) -> Replacement:
    """Return the replacement that adds a key.

    Raises:
        CannotSpliceError: The edit needs more than a splice.
        YamlError: The value cannot be written.
    """
    node = tree.find(edit.path)
    if not isinstance(node, Mapping) or not node.raw.value:
        value = edit.value if isinstance(edit.value, Raw) else {edit.key: edit.value}
        return _begin(tree, edit.path, node, value)
    before = _entry(node, edit.before)
    after = _entry(node, edit.after) or node.entries[-1]
    if node.style is Style.FLOW:
        value = plain_value(edit.value)
        value = value[edit.key] if isinstance(edit.value, Raw) else value
        text = f"{write_key(edit.key, flow=True)}: {emit(value, flow=True)}"
        return _insert_flow(tree, text, before=before, after=after)
    layout = tree.layout
    text = edit.value.text if isinstance(edit.value, Raw) else emit_entry(edit.key, edit.value, layout)
    return _insert_block(tree, text, before=before, after=after)


def insert_item(tree: Tree, edit: InsertItem) -> Replacement:
    """Return the replacement that inserts an item.

    Raises:
        CannotSpliceError: The edit needs more than a splice.
        YamlError: The value cannot be written.
    """
    node = tree.find(edit.path)
    if not isinstance(node, Sequence) or not node.raw.value:
        return _begin(tree, edit.path, node, edit.value if isinstance(edit.value, Raw) else [edit.value])
    items = node.items
    before = items[edit.index] if edit.index < len(items) else None
    if node.style is Style.FLOW:
        value = plain_value(edit.value)
        text = emit(value[0] if isinstance(edit.value, Raw) else value, flow=True)
        return _insert_flow(tree, text, before=before, after=items[-1])
    layout = tree.layout
    text = edit.value.text if isinstance(edit.value, Raw) else emit_item(edit.value, layout)
    return _insert_block(tree, text, before=before, after=items[-1])


def _entry(node: Mapping, name: str | None) -> Slot | None:
    return None if name is None else node.find(name)


def _begin(tree: Tree, path: Path, node: AnyNode | None, value: Any) -> Replacement:
    """Put the first entry or item into a collection that is empty, null or absent."""
    if not path:
        return fill_root(tree, value)
    if node is not None and node.value:
        raise CannotSpliceError
    return set_value(tree, SetValue(path, value))


def _raw_entry(name: str, raw: Raw, layout: Layout) -> str:
    """Write a key before a raw value, on its line or above it."""
    root = Tree.parse(raw.text).root
    key = write_key(name)
    if isinstance(root, (Mapping, Sequence)) and root.style is Style.BLOCK:
        width = 0 if isinstance(root, Sequence) and layout.compact_lists else layout.indent
        return f"{key}:\n{' ' * width}{indent(raw.text, width)}"
    return f"{key}: {raw.text}"


def _insert_block(tree: Tree, text: str, *, before: Slot | None, after: Slot) -> Replacement:
    column = column_of(tree.text, (before or after).start)
    pad = " " * column
    if before is None:
        at = line_end(tree.text, tree.extent(after).end)
        return Replacement(at, at, f"\n{pad}{indent(text, column)}")
    at = tree.extent(before).start
    if starts_line(tree.text, at):
        at = line_start(tree.text, at)
        return Replacement(at, at, f"{pad}{indent(text, column)}\n")
    return Replacement(at, at, f"{indent(text, column)}\n{pad}")


def _insert_flow(tree: Tree, text: str, *, before: Slot | None, after: Slot) -> Replacement:
    if before is not None:
        return Replacement(before.start, before.start, f"{text}, ")
    at = tree.slot_end(after)
    return Replacement(at, at, f", {text}")
