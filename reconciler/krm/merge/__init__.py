"""Three-way merge of one resource or text: values are merged first, then written as edits of local."""

from msgspec import Struct
from msgspec.structs import replace

from reconciler.krm.merge.comments import merge_comments, merge_lines
from reconciler.krm.merge.compatible import CompatibleMerge
from reconciler.krm.merge.fields import (
    ConflictResolver,
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
    is_same,
    may_have_schema,
    root_of,
)
from reconciler.krm.merge.text import Hunk, MergedText, TextFormat, merge_formats, merge_text
from reconciler.krm.schema import Schemas, Shape
from reconciler.krm.yaml import Tree, YamlError, edit_tree

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
    """Merge documents as text."""
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
