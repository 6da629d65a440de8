"""What a merge decides, before any byte is written: a tree made of parts of the three sides."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from reconciler.krm.merge.nodes import Node
from reconciler.krm.yaml import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    EditResult,
    InsertItem,
    Path,
    SetHeadComment,
    SetLineComment,
    SetValue,
    Tree,
    edit_tree,
)

Steps = tuple[str, ...]
"""The way to a field, as people read it: keys, and `[name=app]` for an element of a list."""


class Keep(Enum):
    """Leave a comment as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
Comment = str | None | Keep
"""What becomes of a comment: this text, none, or what is there."""


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A value as upstream has it; `exact` where local did not touch what stood there, not even its style."""

    node: Node
    exact: bool = True


@dataclass(slots=True, eq=False)
class Part:
    """One field or element of a made collection, with the comments beside and above it.

    `over` is the local element that an element of a list continues.
    """

    value: "Merged"
    over: Node | None = None
    line: Comment = KEEP
    head: Comment = KEEP


@dataclass(slots=True, eq=False)
class Made:
    """A collection put together; `over` is the local one that it changes, None where local has none."""

    over: Node | None
    fields: dict[str, Part] = field(default_factory=dict)
    items: list[Part] | None = None


Merged = Node | Taken | Made
"""A node of local, kept; one of upstream, taken; or a collection put together from both."""


class Winner(Enum):
    """Who wins one clash."""

    UPSTREAM = "upstream"
    LOCAL = "local"
    OPEN = "open"
    """Nobody decided: local stays, and a person is asked."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldConflict:
    """One value that both sides changed differently and who wins it.

    `rule` says why nobody is asked. `judged` is the field whose policy decides it, if that is another one.
    """

    path: Steps
    base: Node | None
    upstream: Node | None
    local: Node | None
    reason: str
    verdict: "Winner"
    rule: str = ""
    judged: Steps = ()


ConflictResolver = Callable[[Steps], Winner]
"""Decides a clash by where it is."""


def path_text(steps: Sequence[str]) -> str:
    """Return `spec.containers[name=app].image` for its steps; keys with dots are quoted."""
    parts: list[str] = []
    for step in steps:
        if step.startswith("["):
            parts.append(step)
            continue
        name = f'"{step}"' if "." in step or not step else step
        parts.append(f".{name}" if parts else name)
    return "".join(parts)


def edits_of(local: Node, merged: Merged, path: Path = ()) -> Iterator[Edit]:
    """Yield the edits that make `local` what was merged, in an order in which they can be applied."""
    if merged is local:
        return
    if isinstance(merged, Made) and merged.over is local:
        yield from (
            _edit_items(local, merged.items, path)
            if merged.items is not None
            else _edit_fields(local, merged.fields, path)
        )
    else:
        yield SetValue(path, _value_in_place(local, merged))


def write_edits(tree: Tree, edits: tuple[Edit, ...]) -> EditResult:
    """Make edits of a document that has been parsed already.

    Raises:
        YamlError: The edits cannot be written.
    """
    return edit_tree(tree, edits)


def is_replacement(edit: Edit) -> bool:
    """Tell whether an edit takes away what stands at its path; additions and comments do not."""
    return isinstance(edit, (SetValue, DeleteKey, DeleteItem))


def value_of(merged: Merged) -> Any:
    """Return what was merged as data."""
    if isinstance(merged, Node):
        return merged.value
    if isinstance(merged, Taken):
        return merged.node.value
    if merged.items is not None:
        return [value_of(part.value) for part in merged.items]
    return {name: value_of(part.value) for name, part in merged.fields.items()}


def _edit_fields(local: Node, fields: dict[str, Part], path: Path) -> Iterator[Edit]:
    last: str | None = None
    added: list[Edit] = []
    for name, part in fields.items():
        mine = local.fields.get(name)
        if mine is None:
            added += _additions(path, name, part.value, after=last, flow=local.is_flow)
        else:
            yield from edits_of(mine.value, part.value, (*path, name))
            yield from _edit_comments(mine.value, part, (*path, name))
        last = name
    for name in local.fields:
        if name not in fields:
            yield DeleteKey((*path, name))
    yield from added


def _additions(path: Path, name: str, merged: Merged, *, after: str | None, flow: bool) -> Iterator[Edit]:
    """Add a field; one that is made of parts is added part by part, so that each brings its comments."""
    if isinstance(merged, Made) and merged.fields and not flow:
        for inner, part in merged.fields.items():
            yield from _additions((*path, name), inner, part.value, after=None, flow=flow)
    else:
        yield AddKey(path, name, _slot_or_value(merged, flow=flow), after=after)


def _edit_items(local: Node, items: list[Part], path: Path) -> Iterator[Edit]:
    """Change the items that stay, then delete from the end, then append: indexes stay true throughout."""
    places = {id(node): index for index, node in enumerate(local.items)}
    stays: dict[int, Part] = {}
    new: list[Part] = []
    for part in items:
        place = places.get(id(part.over))
        if place is None or place in stays:
            new.append(part)
        else:
            stays[place] = part
    for place, part in stays.items():
        yield from edits_of(local.items[place], part.value, (*path, place))
        yield from _edit_comments(local.items[place], part, (*path, place))
    for place in reversed(range(len(local.items))):
        if place not in stays:
            yield DeleteItem((*path, place))
    for index, part in enumerate(new, len(stays)):
        yield InsertItem(path, index, _slot_or_value(part.value, flow=local.is_flow))
        if isinstance(part.value, Made) and not local.is_flow:
            yield from _new_comments(part.value, (*path, index))


def _new_comments(made: Made, path: Path) -> Iterator[Edit]:
    """Write the comments of scalars that upstream gave to a new element made of parts."""
    for name, part in made.fields.items():
        if isinstance(part.value, Taken) and part.value.node.is_scalar and part.line is KEEP:
            line = part.value.node.comments.line
            if line:
                yield SetLineComment((*path, name), line)


def _edit_comments(local: Node, part: Part, path: Path) -> Iterator[Edit]:
    have = local.comments
    if part.line is not KEEP and (part.line or "") != have.line:
        yield SetLineComment(path, part.line or None)
    if part.head is not KEEP and (part.head or "") != have.head:
        yield SetHeadComment(path, part.head or None)


def _slot_or_value(merged: Merged, *, flow: bool) -> Any:
    node = merged.node if isinstance(merged, Taken) else merged
    if isinstance(node, Made):
        return value_of(node)
    if flow or node.slot < 0 or node.in_flow or node.has_alias():
        return node.value
    return node.as_slot()


def _value_in_place(local: Node, merged: Merged) -> Any:
    node = merged.node if isinstance(merged, Taken) else merged
    if isinstance(node, Made):
        return value_of(node)
    exact = isinstance(merged, Taken) and merged.exact
    if node.is_plain and local.is_plain and str(node.typed) == node.text:
        return node.typed
    if node.has_alias() or (not exact and isinstance(node.typed, str)):
        return node.value
    if node.is_scalar and not exact and not local.is_plain and local.is_scalar:
        return node.text
    return node.as_value()
