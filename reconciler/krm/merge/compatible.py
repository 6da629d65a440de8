"""Merge one resource as kpt does: upstream wins every conflict.

Source: kyaml v0.15 yaml/walk and yaml/merge3.
Differs: an alias is kept, where kyaml drops it; a changed kind of node is taken from upstream,
where kyaml fails.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from reconciler.krm.merge.fields import (
    KEEP,
    ElementKey,
    FromUpstream,
    Merged,
    MergedCollection,
    MergedField,
    element_key,
    infer_keys,
)
from reconciler.krm.merge.nodes import Node, child, is_rendered_same, shape_in_comments
from reconciler.krm.schema import Shape
from reconciler.krm.yaml import Comments

Sides = tuple[Node | None, Node | None, Node | None]
"""Local, base, upstream: the order in which kyaml visits them."""


class CompatibleMerge(Struct, frozen=True):
    """Merges nodes by kpt's rules.

    `infer` guesses the merge keys of lists of unknown shape; `schemas_in_comments` reads JSON schemas
    in the comments of fields.
    """

    shape_of: Callable[[str, str], Shape | None]
    infer: bool = False
    schemas_in_comments: bool = False

    def merge(self, sides: Sides, shape: Shape | None = None) -> Merged | None:
        """Return the merged value, None if it is deleted."""
        local, base, upstream = sides
        if local is None and base is None and upstream is not None and not upstream.has_null():
            return FromUpstream(upstream)
        first = next((node for node in sides if _is_set(node)), None)
        if first is None:
            return None
        if any(_is_set(node) and node.kind is not first.kind for node in sides if node is not None):
            return local if _equal(base, upstream) else _take(upstream, local)
        shape = shape or self._shape_of_kind(sides)
        if first.is_mapping:
            return self._mapping(sides, shape)
        return self._list(sides, shape) if first.is_sequence else _whole(*sides)

    def _list(self, sides: Sides, shape: Shape | None) -> Merged | None:
        if shape is None and self.infer and (keys := infer_keys(sides)) is not None:
            shape = Shape(keys=keys)
        if shape is not None and shape.keys is not None:
            local, base, upstream = sides
            if not _is_set(upstream) and _is_set(base):
                return None
            plain = replace(shape, defaults={})
            by_key = [_first_by_key(node, plain) for node in sides]
            order = list(dict.fromkeys(key for elements in by_key for key in elements))
            merged = {key: self._element(key, by_key, plain) for key in order}
            result = MergedCollection(local if _is_set(local) else None, items=[])
            items: list[MergedField] = []
            for element in local.items if local is not None and _is_set(local) else ():
                key = element_key(element, plain)
                value = element if key is None else merged[key]
                if value is not None:
                    items.append(MergedField(value, local=element))
            items += [MergedField(v) for key, v in merged.items() if key not in by_key[0] and v is not None]
            result.items = items
            return result
        return _whole(*sides)

    def _mapping(self, sides: Sides, shape: Shape | None) -> MergedCollection | None:
        local, _, upstream = sides
        if (local is None and upstream is None) or _is_null(local) or _is_null(upstream):
            return None
        names = {name for node in sides if _is_set(node) and node is not None for name in node.children}
        new = sorted(names - local.children.keys()) if local is not None else sorted(names)
        result = MergedCollection(local)
        for name in (*(local.children if local is not None else ()), *new):
            ours, old, theirs = (child(node, name) for node in sides)
            below = shape_in_comments(ours, old, theirs) if self.schemas_in_comments else None
            if below is None and shape is not None:
                below = shape.below(name)
            value = self.merge((ours, old, theirs), below)
            if value is not None:
                result.fields[name] = _with_comments(value, ours, old, theirs)
        return result

    def _element(self, key: ElementKey, by_key: list[dict[ElementKey, Node]], shape: Shape) -> Merged | None:
        local, base, upstream = (elements.get(key) for elements in by_key)
        value = self.merge((local, base, upstream), shape.items)
        if not isinstance(value, MergedCollection) or value.items is not None:
            return value
        if not value.fields:
            return None
        for name, text in zip(shape.keys or (), key, strict=True):
            if text and not name.startswith("$") and name not in value.fields:
                # kyaml keeps the merge key of an element although all sides deleted it.
                ours = child(local, name)
                values = (child(element, name) for element in (base, upstream))
                taken = next(node for node in values if node is not None) if ours is None else ours
                value.fields[name] = MergedField(line=None, value=ours or FromUpstream(taken))
        return value

    def _shape_of_kind(self, sides: Sides) -> Shape | None:
        for node in sides:
            version, kind = child(node, "apiVersion"), child(node, "kind")
            if version is not None and kind is not None:
                shape = self.shape_of(version.text, kind.text)
                if shape is not None:
                    return shape
        return None


def _whole(local: Node | None, base: Node | None, upstream: Node | None) -> Merged | None:
    """Merge a scalar, or a list without merge keys."""
    if _is_null(upstream) or _is_null(local):
        return None
    if _is_set(upstream) != _is_set(base):
        return _take(upstream, local)
    if upstream is None or base is None:
        return local
    changed = not is_rendered_same(base, upstream)
    if changed and upstream.is_scalar and local is not None and not is_rendered_same(local, base):
        changed = upstream.text != base.text  # kyaml ignores comments where local changed the scalar
    return _take(upstream, local) if changed else local


def _take(upstream: Node | None, local: Node | None) -> Merged | None:
    if upstream is None or upstream.is_null:
        return None
    return FromUpstream(upstream, exact=local is None)


def _with_comments(
    value: Merged, local: Node | None, base: Node | None, upstream: Node | None
) -> MergedField:
    """Return a field with the comments of the sides from which kyaml takes its key and its value."""
    part = MergedField(value)
    if local is None or upstream is None:
        return part
    ours, theirs = local.comments, upstream.comments
    old = base.comments if base is not None else None
    on_key = local.is_block and upstream.is_block
    if not on_key:
        part.line = theirs.line if isinstance(value, FromUpstream) else KEEP
    if old is None or _of_key(ours, on_key=on_key) == _of_key(old, on_key=on_key):
        part.head = theirs.head
        part.line = theirs.line if on_key else part.line
    return part


def _of_key(comments: Comments, *, on_key: bool) -> tuple[str, str]:
    return comments.head, comments.line if on_key else ""


def _first_by_key(side: Node | None, shape: Shape) -> dict[ElementKey, Node]:
    elements: dict[ElementKey, Node] = {}
    if side is None or not side.is_sequence:
        return elements
    for element in side.items:
        key = element_key(element, shape)
        if key is not None:
            elements.setdefault(key, element)
    return elements


def _is_set(node: Node | None) -> bool:
    return node is not None and not node.is_null


def _is_null(node: Node | None) -> bool:
    return node is not None and node.is_null


def _equal(left: Node | None, right: Node | None) -> bool:
    if left is None or right is None:
        return left is right
    return is_rendered_same(left, right)
