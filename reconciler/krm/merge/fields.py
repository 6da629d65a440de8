"""Merge one resource without losing anything: different changes of one field are a conflict."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

from msgspec import Struct, field

from reconciler.krm.bookkeeping import is_version_field, without_versions
from reconciler.krm.merge.nodes import Node, NodeKind, is_same, shape_in_comments
from reconciler.krm.merge.text import merge_text
from reconciler.krm.schema import CHART, Shape
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


K = TypeVar("K")
ElementKey = tuple[str, ...]
FUNCTION = "$function"
"""Merge key of functions in a Kptfile: the name, else the executable, else the image without version."""
KPT_FUNCTION = "$kpt-function"
"""Merge key of kpt for functions without a name: the executable, or the image up to its first colon."""
INFERRED_KEYS = ("mountPath", "devicePath", "ip", "type", "topologyKey", "name", "containerPort")
"""Candidate merge keys of a list of unknown shape, in this order.

Source: kyaml yaml/schema, AssociativeSequenceKeys.
"""


class FieldMerge(Struct):
    """Merges nodes leaf by leaf; elements of keyed lists are added and deleted as a whole.

    Laws: fields that upstream did not change keep the text of local; fields that local did not change
    get the text of upstream.
    """

    resolver: ConflictResolver
    schemas_in_comments: bool = False
    conflicts: list[FieldConflict] = field(default_factory=list)

    def merge(
        self, base: Node | None, upstream: Node | None, local: Node | None, shape: Shape | None, path: Steps
    ) -> Merged | None:
        """Return the merged value, None if it is deleted."""
        if _is_untouched(base, upstream):
            return local
        if _is_untouched(base, local):
            return None if upstream is None else FromUpstream(upstream)
        nodes = [node for node in (base, upstream, local) if node is not None]
        if all(node.is_mapping for node in nodes):
            return self._mapping(base, upstream, local, shape, path)
        if shape is not None and shape.keys is not None and all(node.is_sequence for node in nodes):
            sides = [elements_by_key(side, shape) for side in (base, upstream, local)]
            if None not in sides:
                return self._keyed_list(local, [side or {} for side in sides], shape, path)
        return self._whole(base, upstream, local, path)

    def _whole(
        self, base: Node | None, upstream: Node | None, local: Node | None, path: Steps
    ) -> Merged | None:
        """Merge a value that can only change as a whole; a text of lines does not."""
        if is_same(base, upstream) or is_same(upstream, local):
            return local
        if local is None and _only_version_changed(base, upstream, path):
            return None
        if is_same(base, local):
            styles = [
                side.raw.style for side in (base, local) if side is not None and side.kind is NodeKind.SCALAR
            ]
            return None if upstream is None else FromUpstream(upstream, exact=styles[:1] == styles[1:])
        if (lines := _merged_lines(base, upstream, local)) is not None:
            return lines
        reason = (
            "DeletedLocally" if local is None else "DeletedUpstream" if upstream is None else "BothChanged"
        )
        if self._record_conflict(path, base, upstream, local, reason) is Winner.UPSTREAM:
            return None if upstream is None else FromUpstream(upstream, exact=False)
        return local

    def _mapping(
        self, base: Node | None, upstream: Node | None, local: Node | None, shape: Shape | None, path: Steps
    ) -> Merged | None:
        of_base, of_upstream, of_local = (
            n.children if n is not None else {} for n in (base, upstream, local)
        )
        decided = self._unions(of_base, of_upstream, of_local, shape, path)
        result = MergedCollection(local)
        for name in insert_new(of_local, of_upstream):
            ours, theirs, old = of_local.get(name), of_upstream.get(name), of_base.get(name)
            if name in decided:
                old = ours if decided[name] is Winner.UPSTREAM else theirs
            below = shape_in_comments(ours, old, theirs) if self.schemas_in_comments else None
            if below is None and shape is not None:
                below = shape.below(name)
            value = self.merge(old, theirs, ours, below, (*path, name))
            if value is not None:
                result.fields[name] = MergedField(value)
        if result.fields or (upstream is not None and local is not None):
            return result
        return None

    def _unions(
        self,
        base: dict[str, Node],
        upstream: dict[str, Node],
        local: dict[str, Node],
        shape: Shape | None,
        path: Steps,
    ) -> dict[str, Winner]:
        """Choose a side for each union of fields, of which only one may be set, that both sides changed."""
        decided: dict[str, Winner] = {}
        for union in shape.unions if shape is not None else ():
            old, theirs, ours = (
                {name: node for name, node in side.items() if name in union}
                for side in (base, upstream, local)
            )
            switched = theirs.keys() != old.keys() or ours.keys() != old.keys()
            pairs = ((theirs, old), (ours, old), (theirs, ours))
            if not switched or any(_same_members(*pair) for pair in pairs):
                continue
            names = [
                n for n in sorted(theirs.keys() | ours.keys()) if not is_same(theirs.get(n), ours.get(n))
            ]
            # A choice for any of them decides all: a person answers the one that is shown with two values.
            choices = {(*path, name): self.resolver((*path, name)) for name in names}
            decisive = (field for field in choices if choices[field] is not Winner.OPEN)
            policy_path = next(decisive, (*path, names[0]))
            winner = choices[policy_path]
            for name in names:
                sides = (old.get(name), theirs.get(name), ours.get(name))
                self.conflicts.append(
                    FieldConflict((*path, name), *sides, "BothChanged", winner, policy_path=policy_path)
                )
            decided |= dict.fromkeys(union, winner)
        return decided

    def _keyed_list(
        self, local: Node | None, sides: list[dict[ElementKey, Node]], shape: Shape, path: Steps
    ) -> Merged | None:
        base, upstream, ours = sides
        merged: dict[ElementKey, MergedField] = {}
        for key in (*ours, *(key for key in upstream if key not in ours)):
            at = (*path, element_step(key, shape))
            value = self._element(base.get(key), upstream.get(key), ours.get(key), shape.items, at)
            if value is not None:
                merged[key] = MergedField(value, local=ours.get(key))
        items = [merged[key] for key in _order(sides, merged) if key in merged]
        result = MergedCollection(local, items=items)
        return result if items or (local is not None and upstream) else None

    def _element(
        self, base: Node | None, upstream: Node | None, local: Node | None, shape: Shape | None, path: Steps
    ) -> Merged | None:
        if base is not None and (upstream is None or local is None):
            return self._whole(base, upstream, local, path)
        return self.merge(base, upstream, local, shape, path)

    def _record_conflict(
        self, path: Steps, base: Node | None, upstream: Node | None, local: Node | None, reason: str
    ) -> Winner:
        winner, rule = self.resolver(path), ""
        if winner is Winner.OPEN and reason == "BothChanged" and is_version_field(path):
            winner, rule = Winner.LOCAL, "a label or annotation that carries a version is left to people"
        self.conflicts.append(FieldConflict(path, base, upstream, local, reason, winner, rule))
        return winner


def _order(sides: list[dict[ElementKey, Node]], merged: dict[ElementKey, MergedField]) -> list[ElementKey]:
    """Return the order of the merged elements: upstream's if local left the old one, else local's.

    An element that only the other side has follows all that it follows there, as variables
    refer to earlier ones.
    """
    base, upstream, local = sides
    common = base.keys() & upstream.keys() & local.keys()
    old, theirs, ours = ([key for key in side if key in common] for side in (base, upstream, local))
    changed = [key for key in old if key in merged and isinstance(merged[key].value, MergedCollection)]
    # An element that local changed too is edited in its place.
    moves = theirs != old and all(is_same(base[key], local[key]) for key in changed)
    follows = ours == old and (moves or theirs == old)
    if follows and moves:
        for key in changed:
            merged[key].value = FromUpstream(upstream[key])
    return insert_new(upstream, local) if follows else insert_new(local, upstream)


def insert_new(first: Iterable[K], second: Iterable[K]) -> list[K]:
    """Return the keys of a side with the new ones of another side, each behind all that it follows there.

    Where the sides have no key in common the new ones come last.
    """
    order, others = list(first), list(second)
    ordered = set(order)
    index = len(order) if ordered.isdisjoint(others) else 0
    for key in others:
        if key in ordered:
            index = max(index, order.index(key) + 1)
        else:
            order.insert(index, key)
            index += 1
    return order


def _only_version_changed(base: Node | None, upstream: Node | None, path: Steps) -> bool:
    if base is None or upstream is None:
        return False
    return is_version_field(path) or bool(without_versions(base.value) == without_versions(upstream.value))


def _merged_lines(base: Node | None, upstream: Node | None, local: Node | None) -> MergedLines | None:
    """Return a text of several lines in which the sides changed different lines, None for anything else."""
    if base is None or upstream is None or local is None:
        return None
    old, theirs, ours = (node.typed for node in (base, upstream, local))
    if not all(isinstance(text, str) and "\n" in text.rstrip("\n") for text in (old, theirs, ours)):
        return None
    merged = merge_text(old, theirs, ours)
    return MergedLines(merged.text) if merged is not None and not merged.hunks else None


def _same_members(left: dict[str, Node], right: dict[str, Node]) -> bool:
    return left.keys() == right.keys() and all(is_same(node, right[name]) for name, node in left.items())


def _is_untouched(base: Node | None, side: Node | None) -> bool:
    """Tell whether a side has the same text as the base, comments included."""
    if base is None or side is None:
        return base is side
    return base.source == side.source and _is_cut(base) is _is_cut(side)


def _is_cut(node: Node) -> bool:
    """Tell whether a value ends with a block of text that lacks its line break, as the file ends there."""
    text = node.tree.text
    return not text.endswith("\n") and node.end == len(text) and node.tree.closed() != text


def element_key(element: Node, shape: Shape) -> ElementKey | None:
    """Return the merge key of an element, None if it has none; the element of a set is its own key."""
    if not shape.keys:
        return (element.text,) if element.is_scalar else None
    if not element.is_mapping:
        return None
    key = tuple(_key_text(element, name, shape) for name in shape.keys)
    return key if any(key) else None


def elements_by_key(side: Node | None, shape: Shape) -> dict[ElementKey, Node] | None:
    """Return the elements of a side by key; None if an element has no key or two have the same key."""
    elements: dict[ElementKey, Node] = {}
    seen: Counter[ElementKey] = Counter()
    for element in side.items if side is not None else ():
        key = element_key(element, shape)
        if key is None:
            return None
        seen[key] += 1
        if seen[key] > 1:
            if shape.keys != (FUNCTION,):
                return None
            key = (f"{key[0]}#{seen[key]}",)  # a pipeline may run one function several times
        elements[key] = element
    return elements


def element_step(key: ElementKey, shape: Shape) -> str:
    """Return the step of a path that leads to the element with this key."""
    if not shape.keys:
        return f"[={key[0]}]"
    pairs = zip((name.removeprefix("$") for name in shape.keys), key, strict=True)
    return "[" + ",".join(f"{name}={value}" for name, value in pairs if value) + "]"


def infer_keys(sides: Iterable[Node | None]) -> tuple[str, ...] | None:
    """Return the key of a list of unknown shape: the first candidate that all elements of all sides have."""
    elements = [element for side in sides if side is not None for element in side.items]
    if not elements or not all(element.is_mapping for element in elements):
        return None
    for key in INFERRED_KEYS:
        if all(key in element.children for element in elements):
            return (key,)
    return None


def repository_of(image: str) -> str:
    """Return an image reference without its tag and digest; a registry may have a port."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def _function(element: Node) -> str:
    name, executable, image = (_field_text(element, field) for field in ("name", "exec", "image"))
    return name or executable or repository_of(image)


def _kpt_function(element: Node) -> str:
    return _field_text(element, "exec") or _field_text(element, "image").partition(":")[0]


def _chart(element: Node) -> str:
    args = element.children.get("chartArgs")
    return _field_text(args, "name") if args is not None else ""


_COMPUTED = {FUNCTION: _function, KPT_FUNCTION: _kpt_function, CHART: _chart}


def _field_text(element: Node, name: str) -> str:
    value = element.children.get(name)
    return value.text if value is not None and value.is_scalar and not value.is_null else ""


def _key_text(element: Node, key: str, shape: Shape) -> str:
    if key in _COMPUTED:
        return _COMPUTED[key](element)
    value = element.children.get(key)
    if value is None or value.is_null or not value.is_scalar:
        return shape.defaults.get(key, "")
    return value.text
