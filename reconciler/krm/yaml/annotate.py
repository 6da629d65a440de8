"""Splices that set or remove comments."""

from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.lines import column_of, line_end, line_start, next_line, starts_line
from reconciler.krm.yaml.marks import Path
from reconciler.krm.yaml.quoting import Style
from reconciler.krm.yaml.replacement import Replacement
from reconciler.krm.yaml.tree import Item, Mapping, Scalar, Sequence, Slot, Tree


def set_line_comment(tree: Tree, path: Path, text: str | None) -> Replacement:
    """Return the replacement that sets or removes the comment at the end of a field's line.

    Raises:
        YamlError: The field is absent or has no line of its own, or the text has several lines.
    """
    slot = _block_slot(tree, path)
    found = slot.comments.line_span
    comment = _comment_lines(text)
    if len(comment) > 1:
        raise YamlError("A line comment has one line")
    if found is not None:
        start = found.start if comment else len(tree.text[: found.start].rstrip(" \t"))
        return Replacement(start, found.end, "".join(comment))
    at = _end_of_first_line(tree, slot)
    rest = tree.text[at : line_end(tree.text, at)]
    if rest.strip():
        raise YamlError(f"The field {_name(path)} does not end its line")
    return Replacement(at, at, "".join(f" {line}" for line in comment))


def set_head_comment(tree: Tree, path: Path, text: str | None) -> Replacement:
    """Return the replacement that sets or removes the comment lines above a key or item.

    Raises:
        YamlError: The field is absent or in flow style.
    """
    slot = _block_slot(tree, path)
    found = slot.comments.head_span
    pad = " " * column_of(tree.text, slot.start)
    lines = _comment_lines(text)
    joined = "\n".join(line if number == 0 or not line else pad + line for number, line in enumerate(lines))
    if found is None:
        return Replacement(slot.start, slot.start, f"{joined}\n{pad}" if joined else "")
    if joined:
        return Replacement(found.start, found.end, joined)
    if starts_line(tree.text, found.start):
        return Replacement(line_start(tree.text, found.start), next_line(tree.text, found.end), "")
    return Replacement(found.start, slot.start, "")


def _block_slot(tree: Tree, path: Path) -> Slot:
    slot = tree.slot(path)
    if slot is None:
        raise YamlError(f"There is no field {_name(path)}")
    if slot.parent.style is Style.FLOW:
        raise YamlError(f"The field {_name(path)} is in flow style, where comments have no owner")
    return slot


def _name(path: Path) -> str:
    return ".".join(map(str, path)) or "at the root"


def _comment_lines(text: str | None) -> list[str]:
    if text is None:
        return []
    lines = [line.strip() for line in text.split("\n")]
    return [line if not line or line.startswith("#") else f"# {line}" for line in lines]


def _end_of_first_line(tree: Tree, slot: Slot) -> int:
    """Return where a line comment of the slot goes."""
    value = slot.value
    if isinstance(value, (Mapping, Sequence)) and value.style is Style.BLOCK:
        if isinstance(slot, Item):
            raise YamlError("An item that is a block collection has no line of its own")
        return value.span.start + len(value.properties) if value.properties else tree.key_end(slot)
    if isinstance(value, Scalar) and value.style in (Style.LITERAL, Style.FOLDED):
        return line_end(tree.text, value.content_start)
    return tree.slot_end(slot)
