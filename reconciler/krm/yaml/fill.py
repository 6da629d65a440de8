"""The splice that gives a place another value, keeping what surrounds and decorates the value."""

import re
from typing import Any, Final

from reconciler.krm.yaml.emit import emit, is_collection
from reconciler.krm.yaml.lines import column_of, line_end, starts_line
from reconciler.krm.yaml.model import plain_value
from reconciler.krm.yaml.quoting import Style, write_scalar
from reconciler.krm.yaml.raw import Raw, indent
from reconciler.krm.yaml.replacement import Replacement
from reconciler.krm.yaml.scalars import ScalarError, type_tagged
from reconciler.krm.yaml.tree import AnyNode, Entry, Item, Mapping, Scalar, Sequence, Slot, Tree

_ANCHOR: Final = re.compile(r"&[^\s,\[\]{}]+")


def fill(tree: Tree, slot: Slot, value: Any) -> Replacement:
    """Return the replacement that gives an existing entry or item another value.

    Raises:
        YamlError: The value cannot be written.
    """
    if slot.parent.style is Style.FLOW:
        text = None if _is_scalar(value) else emit(plain_value(value), flow=True)
        return _fill_inline(tree, slot, text, value)
    if isinstance(value, Raw):
        root = Tree.parse(value.text).root
        if _is_block(root):
            return _fill_block(tree, slot, value.text, is_list=isinstance(root, Sequence))
        return _fill_inline(tree, slot, value.text, value)
    if is_collection(value):
        text = emit(value, tree.layout)
        return _fill_block(tree, slot, text, is_list=not isinstance(value, dict))
    return _fill_inline(tree, slot, None if _is_scalar(value) else emit(value), value)


def fill_root(tree: Tree, value: Any) -> Replacement:
    """Return the replacement that gives the document another value.

    Raises:
        YamlError: The value cannot be written.
    """
    text = value.text if isinstance(value, Raw) else emit(value, tree.layout)
    root = tree.root
    if root is None:
        at = len(tree.text)
        gap = "" if tree.text[-1:] in ("", "\n") else "\n"
        return Replacement(at, at, f"{gap}{text}\n")
    start = root.span.start
    column = column_of(tree.text, start) if starts_line(tree.text, start) else 0
    first = "\n" if column_of(tree.text, start) and not column and is_collection(value) else ""
    return _over_trailing_space(tree, Replacement(start, tree.body_end(root), first + indent(text, column)))


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, (Raw, dict, list, tuple))


def _is_block(node: AnyNode | None) -> bool:
    return isinstance(node, (Mapping, Sequence)) and node.style is Style.BLOCK


def _fill_inline(tree: Tree, slot: Slot, text: str | None, value: Any) -> Replacement:
    """Put a value on the line of its key or dash; a scalar (no `text` given) in the style of the old one."""
    old = slot.value
    column = column_of(tree.text, slot.start)
    if text is None:
        text = _scalar_like(tree, slot, value)
    text = indent(text, column) if slot.parent.style is Style.BLOCK else text
    start, end = old.span
    if start == end or _is_block(old):
        start, end = tree.key_end(slot), tree.body_end(old) if start != end else tree.key_end(slot)
        text = f" {text}" if tree.text[start - 1] in ":-" else f": {text}"
    kept = _kept_properties(old, value)
    if kept and not _is_block(old):
        text = f"{kept} {text}"
    comment = slot.comments.line_span
    # A comment between the key and a value on a line below stays where it is.
    follows = comment is not None and comment.start >= start
    if comment and follows and slot.parent.style is Style.BLOCK and ("\n" in text or comment.start < end):
        first, *rest = text.split("\n")
        text = "\n".join([f"{first} {slot.comments.line}", *rest])
        end = max(end, comment.end)
    return _over_trailing_space(tree, Replacement(start, end, text))


def _scalar_like(tree: Tree, slot: Slot, value: Any) -> str:
    """Write a scalar in the style of the one that it replaces."""
    flow = slot.parent.style is Style.FLOW
    old = slot.value
    if not isinstance(old, Scalar):
        return write_scalar(value, flow=flow, indent=tree.layout.indent)
    if old.style in (Style.LITERAL, Style.FOLDED):
        width = _block_width(tree, slot, old)
    else:
        width = tree.layout.indent if isinstance(value, str) and "\n" in value else 2
    return write_scalar(value, like=old.style, flow=flow, indent=width)


def _block_width(tree: Tree, slot: Slot, old: Scalar) -> int:
    """Return how far the lines of a block scalar stand to the right of its parent."""
    _, *lines = old.text.split("\n")
    content = next((line for line in lines if line.strip()), "")
    width = len(content) - len(content.lstrip(" ")) - column_of(tree.text, slot.start)
    return width if 0 < width <= _WIDEST else tree.layout.indent


_WIDEST: Final = 9


def _kept_properties(old: AnyNode, value: Any) -> str:
    """Return the anchor and tag that stay before a new value: a tag only where the value still fits it."""
    properties = old.properties
    if not properties or not isinstance(old, Scalar) or not old.tag:
        anchor = _ANCHOR.search(properties)
        return anchor[0] if anchor else ""
    try:
        fits = not isinstance(value, (Raw, dict, list, tuple)) and _same(
            type_tagged(old.tag, value if isinstance(value, str) else write_scalar(value)), value
        )
    except ScalarError:
        fits = False
    anchor = _ANCHOR.search(properties)
    return properties if fits else anchor[0] if anchor else ""


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _fill_block(tree: Tree, slot: Slot, text: str, *, is_list: bool) -> Replacement:
    """Put a block collection below its key, or behind its dash."""
    old = slot.value
    column = column_of(tree.text, slot.start)
    child = _child_column(tree, slot, is_list=is_list)
    start = tree.key_end(slot)
    end = max(start, tree.body_end(old))
    comment = slot.comments.line_span
    end = max(end, comment.end if comment else 0)
    anchor = _ANCHOR.search(old.properties)
    decoration = "".join(f" {part}" for part in (anchor[0] if anchor else "", slot.comments.line) if part)
    body = indent(text, child)
    if isinstance(slot, Entry) or decoration:
        new = f"{decoration}\n{' ' * child}{body}"
    else:
        new = " " * (child - column - 1) + body
    return _over_trailing_space(tree, Replacement(start, end, new))


def _over_trailing_space(tree: Tree, replacement: Replacement) -> Replacement:
    """Take in spaces that end the line, which would become part of a block scalar that is put before them."""
    end = line_end(tree.text, replacement.end)
    if "\n" in replacement.new and not tree.text[replacement.end : end].strip():
        return replacement._replace(end=end)
    return replacement


def _child_column(tree: Tree, slot: Slot, *, is_list: bool) -> int:
    """Return the column for a new block collection: that of the old one if it was of the same kind."""
    old = slot.value
    column = column_of(tree.text, slot.start)
    if _is_block(old) and isinstance(old, Sequence) is is_list:
        return column_of(tree.text, old.content_start)
    if isinstance(slot, Item):
        return column + 2
    layout = tree.layout
    return column + (0 if is_list and layout.compact_lists else layout.indent)
