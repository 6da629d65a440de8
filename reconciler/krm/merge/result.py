"""Result of a merge: a tree of nodes of the three sides, its conflicts, and the edits that write it."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct, field

from reconciler.krm.merge.nodes import Node
from reconciler.krm.yaml import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    Path,
    Raw,
    SetHeadComment,
    SetLineComment,
    SetValue,
)
from reconciler.krm.yaml.emit import emit_entry, emit_item, indent_lines, write_key

Steps = tuple[str, ...]
"""Path of a field for people: keys, and `[name=app]` for an element of a list."""


class Keep(Enum):
    """Leave a comment as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
Comment = str | None | Keep
"""A new comment, None to delete it, or `KEEP`."""


class FromUpstream(Struct, frozen=True, eq=False):
    """A value of upstream; `exact` if local did not change the old one, not even its style."""

    node: Node
    exact: bool = True


class MergedLines(Struct, frozen=True, eq=False):
    """A text of several lines, with the lines that both sides changed."""

    text: str


class MergedField(Struct, eq=False):
    """One field or element of a merged collection, with its line comment and head comment.

    `local` is the local element that an element of a list replaces.
    """

    value: "Merged"
    local: Node | None = None
    line: Comment = KEEP
    head: Comment = KEEP


class MergedCollection(Struct, eq=False):
    """A collection merged from several sides; `local` is the local one that it changes, if there is one."""

    local: Node | None
    fields: dict[str, MergedField] = field(default_factory=dict)
    items: list[MergedField] | None = None


Merged = Node | FromUpstream | MergedLines | MergedCollection
"""A kept node of local, a value taken from upstream, or a text or collection merged from both."""


class Winner(Enum):
    """Winning side of a conflict."""

    UPSTREAM = "upstream"
    LOCAL = "local"
    OPEN = "open"
    """Undecided: local stays, and a person decides."""


class FieldConflict(Struct, frozen=True, eq=False):
    """A value that both sides changed differently, and the winning side.

    `rule` is the reason for a winner without a decision of a person. `policy_path` is the field with the
    policy that applies, if it is another one.
    """

    path: Steps
    base: Node | None
    upstream: Node | None
    local: Node | None
    reason: str
    winner: "Winner"
    rule: str = ""
    policy_path: Steps = ()


ConflictResolver = Callable[[Steps], Winner]
"""Choice of the winner by the path of the conflict."""


def path_text(steps: Sequence[str]) -> str:
    """Return a path as text, such as `spec.containers[name=app].image`; keys with dots are quoted."""
    parts: list[str] = []
    for step in steps:
        if step.startswith("["):
            parts.append(step)
            continue
        name = f'"{step}"' if "." in step or not step else step
        parts.append(f".{name}" if parts else name)
    return "".join(parts)


def edits_of(local: Node, merged: Merged, path: Path = ()) -> Iterator[Edit]:
    """Yield the edits that turn `local` into the merged value, in an order in which they can be applied."""
    if merged is local:
        return
    if isinstance(merged, MergedCollection) and merged.local is local:
        yield from (
            _edit_items(local, merged.items, path)
            if merged.items is not None
            else _edit_fields(local, merged.fields, path)
        )
    else:
        yield SetValue(path, _value_in_place(local, merged))


def is_replacement(edit: Edit) -> bool:
    """Tell whether an edit replaces or deletes the value at its path."""
    return isinstance(edit, (SetValue, DeleteKey, DeleteItem))


def value_of(merged: Merged) -> Any:
    """Return a merged value as data."""
    if isinstance(merged, Node):
        return merged.value
    if isinstance(merged, FromUpstream):
        return merged.node.value
    if isinstance(merged, MergedLines):
        return merged.text
    if merged.items is not None:
        return [value_of(part.value) for part in merged.items]
    return {name: value_of(part.value) for name, part in merged.fields.items()}


def _edit_fields(local: Node, fields: dict[str, MergedField], path: Path) -> Iterator[Edit]:
    before = next((name for name in fields if name in local.children), None)
    after: str | None = None
    added: list[Edit] = []
    for name, part in fields.items():
        ours = local.children.get(name)
        if ours is None:
            new = value_of(part.value) if local.is_flow else Raw(_slot_text(name, part.value))
            added.append(AddKey(path, name, new, before=before if after is None else None, after=after))
        else:
            yield from edits_of(ours, part.value, (*path, name))
            yield from _edit_comments(ours, part, (*path, name))
        after = name
    for name in local.children:
        if name not in fields:
            yield DeleteKey((*path, name))
    yield from added


def _edit_items(local: Node, items: list[MergedField], path: Path) -> Iterator[Edit]:
    """Change the items that stay, delete the others from the end, then insert from the start.

    In this order indexes stay valid. An item that moves is deleted and inserted.
    """
    places = {id(node): index for index, node in enumerate(local.items)}
    stays: dict[int, MergedField] = {}
    last = -1
    for part in items:
        position = places.get(id(part.local), -1)
        if position > last:
            stays[position] = part
            last = position
    for position, part in stays.items():
        yield from edits_of(local.items[position], part.value, (*path, position))
        yield from _edit_comments(local.items[position], part, (*path, position))
    for position in reversed(range(len(local.items))):
        if position not in stays:
            yield DeleteItem((*path, position))
    staying = set(map(id, stays.values()))
    for index, part in enumerate(items):
        if id(part) in staying:
            continue
        new = value_of(part.value) if local.is_flow else Raw(_slot_text(None, part.value))
        yield InsertItem(path, index, new)


def _edit_comments(local: Node, part: MergedField, path: Path) -> Iterator[Edit]:
    comments = local.comments
    if part.line is not KEEP and (part.line or "") != comments.line:
        yield SetLineComment(path, part.line or None)
    if part.head is not KEEP and (part.head or "") != comments.head:
        yield SetHeadComment(path, part.head or None)


def _slot_text(name: str | None, merged: Merged) -> str:
    """Return an entry, or without a name an item, as text with its comments."""
    node = merged.node if isinstance(merged, FromUpstream) else merged
    if isinstance(node, MergedCollection) and (node.fields or node.items):
        parts = [_slot_text(key, part.value) for key, part in node.fields.items()]
        parts += [_slot_text(None, part.value) for part in node.items or ()]
        body, width = "\n".join(parts), 0 if node.items else 2
        start = "- " if name is None else f"{write_key(name)}:\n{' ' * width}"
        return start + indent_lines(body, width if name is not None else 2)
    if isinstance(node, Node) and node.slot >= 0 and not node.in_flow and not node.has_alias():
        return node.as_slot().text
    return emit_item(value_of(node)) if name is None else emit_entry(name, value_of(node))


def _value_in_place(local: Node, merged: Merged) -> Any:
    node = merged.node if isinstance(merged, FromUpstream) else merged
    if isinstance(node, (MergedCollection, MergedLines)):
        return value_of(node)
    exact = isinstance(merged, FromUpstream) and merged.exact
    if node.is_plain and local.is_plain and str(node.typed) == node.text:
        return node.typed
    # Text of upstream with an alias needs upstream's anchor; a new string takes the style of the old one.
    if local.in_flow or node.has_alias() or (not exact and isinstance(node.typed, str)):
        return node.value
    if node.is_scalar and not exact and not local.is_plain and local.is_scalar:
        return node.text
    return node.as_value()
