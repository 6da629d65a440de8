"""Three-way merge of one resource or text: values are merged first, then written as edits of local."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from reconciler.krm.merge.comments import merge_comments, merge_lines
from reconciler.krm.merge.fields import (
    KEEP,
    ConflictResolver,
    ElementKey,
    FieldConflict,
    FieldMerge,
    FromUpstream,
    Merged,
    MergedCollection,
    MergedField,
    MergedLines,
    Steps,
    Winner,
    edits_of,
    element_key,
    infer_keys,
    insert_new,
    is_replacement,
    path_text,
)
from reconciler.krm.merge.nodes import (
    ATTRIBUTION,
    UPSTREAM_IDENTIFIER,
    Identity,
    Node,
    child,
    has_merge_comment,
    identity_of,
    is_printed_same,
    is_rendered_same,
    is_same,
    may_have_schema,
    root_of,
    shape_in_comments,
)
from reconciler.krm.merge.text import Hunk, MergedText, TextFormat, merge_formats, merge_text
from reconciler.krm.schema import Schemas, Shape
from reconciler.krm.yaml import Comments, Tree, YamlError, edit_tree

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


__all__ = [
    "ATTRIBUTION",
    "UPSTREAM_IDENTIFIER",
    "CompatibleMerge",
    "ConflictResolver",
    "FieldConflict",
    "FieldMerge",
    "FromUpstream",
    "Hunk",
    "Identity",
    "Merged",
    "MergedCollection",
    "MergedDocument",
    "MergedField",
    "MergedLines",
    "MergedText",
    "Node",
    "Steps",
    "TextFormat",
    "Winner",
    "child",
    "edits_of",
    "has_merge_comment",
    "identity_of",
    "insert_new",
    "is_printed_same",
    "is_same",
    "merge_comments",
    "merge_document",
    "merge_document_like_kpt",
    "merge_formats",
    "merge_lines",
    "merge_text",
    "path_text",
    "root_of",
]


class MergedDocument(Struct, frozen=True):
    """One merged document: its text, None if it is deleted, and its conflicts."""

    text: str | None
    conflicts: tuple[FieldConflict, ...] = ()
    fallbacks: int = 0
    dropped: tuple[str, ...] = ()
    """Comments of upstream that local changed too."""


def merge_document(
    base: Tree | None, upstream: Tree, local: Tree, *, shape: Shape | None, resolver: ConflictResolver
) -> MergedDocument:
    """Return `local` with the changes from `base` to `upstream`, losing nothing.

    Documents with edits inside aliased values, or with edits that cannot be written, are merged line
    by line; if that fails too, the whole document is one conflict.
    """
    if base is not None and base.text in (upstream.text, local.text):
        return MergedDocument(local.text if upstream.text == base.text else upstream.text)
    work = FieldMerge(resolver, any(map(may_have_schema, (base, upstream, local))))
    root = _root(local)
    merged = work.merge(_root(base), _root(upstream), root, shape, ())
    try:
        done = _write(local, root, merged, tuple(work.conflicts))
    except YamlError:
        return _merge_lines(base, upstream, local, resolver)
    if done.text is None:
        return done
    text, dropped = merge_comments(base, upstream, local, Tree.parse(done.text), shape)
    return replace(done, text=text, dropped=dropped)


def merge_document_like_kpt(
    base: Tree | None, upstream: Tree, local: Tree, *, schemas: Schemas, infer: bool = False
) -> MergedDocument:
    """Merge three documents as kpt does: upstream wins every conflict, without a report."""
    root = _root(local)
    declares = any(map(may_have_schema, (base, upstream, local)))
    work = CompatibleMerge(schemas.shape, infer=infer, schemas_in_comments=declares)
    merged = work.merge((root, _root(base), _root(upstream)))
    try:
        return _write(local, root, merged, ())
    except YamlError:
        return replace(_merge_lines(base, upstream, local, _upstream_wins), conflicts=())


def _upstream_wins(_steps: Steps) -> Winner:
    return Winner.UPSTREAM


def _root(tree: Tree | None) -> Node | None:
    return root_of(tree) if tree is not None else None


def _write(
    local: Tree, root: Node | None, merged: Merged | None, conflicts: tuple[FieldConflict, ...]
) -> MergedDocument:
    if merged is None or root is None:
        return MergedDocument(None, conflicts)
    edits = tuple(edits_of(root, merged))
    if not edits:
        return MergedDocument(local.text, conflicts)
    # An edit inside an anchored value would also change its aliases, and the other way round.
    if any(root.is_aliased(edit.path, whole=is_replacement(edit)) for edit in edits):
        raise YamlError("The edits would change aliased values")
    result = edit_tree(local, edits)
    return MergedDocument(result.text, conflicts, result.fallbacks)


def _merge_lines(
    base: Tree | None, upstream: Tree, local: Tree, resolver: ConflictResolver
) -> MergedDocument:
    old = base.text if base is not None else ""
    if upstream.text in (old, local.text):
        return MergedDocument(local.text)
    if local.text == old:
        return MergedDocument(upstream.text)
    merged = merge_text(old, upstream.text, local.text)
    if merged is not None and not merged.hunks and _is_document(merged.text):
        return MergedDocument(merged.text)
    winner = resolver(())
    conflict = FieldConflict((), _root(base), _root(upstream), _root(local), "BothChanged", winner)
    return MergedDocument(upstream.text if winner is Winner.UPSTREAM else local.text, (conflict,))


def _is_document(text: str) -> bool:
    try:
        Tree.parse(text).value  # noqa: B018 - reading it is the check
    except YamlError:
        return False
    return True
