"""Three-way merge of one resource, and of text: decisions first, bytes last."""

from dataclasses import dataclass

from reconciler.krm.merge.compatible import CompatibleMerge
from reconciler.krm.merge.fields import FieldMerge
from reconciler.krm.merge.identity import Identity, identity_of
from reconciler.krm.merge.result import Clash, Judge, Made, Merged, Part, Steps, Taken, Verdict, path_text
from reconciler.krm.merge.text import Hunk, MergedText, merge_text
from reconciler.krm.merge.view import Node, is_same, root_of
from reconciler.krm.merge.writing import edits_of
from reconciler.krm.schema import Schemas, Shape
from reconciler.krm.yaml import Tree, apply_edits

__all__ = [
    "Clash",
    "CompatibleMerge",
    "FieldMerge",
    "Hunk",
    "Identity",
    "Judge",
    "Made",
    "Merged",
    "MergedDocument",
    "MergedText",
    "Node",
    "Part",
    "Steps",
    "Taken",
    "Verdict",
    "edits_of",
    "identity_of",
    "is_same",
    "merge_document",
    "merge_document_like_kpt",
    "merge_text",
    "path_text",
    "root_of",
]


@dataclass(frozen=True, slots=True)
class MergedDocument:
    """One document after a merge: its text, None where nothing of it stays, and the clashes."""

    text: str | None
    clashes: tuple[Clash, ...] = ()
    fallbacks: int = 0


def merge_document(
    base: Tree | None, upstream: Tree | None, local: Tree, *, shape: Shape | None, judge: Judge
) -> MergedDocument:
    """Return `local` with what changed from `base` to `upstream`, losing nothing.

    Raises:
        YamlError: A side has a value that cannot be read, or the result cannot be written.
    """
    work = FieldMerge(judge)
    root = _root(local)
    merged = work.merge(_root(base), _root(upstream), root, shape, ())
    return _written(local, root, merged, tuple(work.clashes))


def merge_document_like_kpt(
    base: Tree | None, upstream: Tree | None, local: Tree, *, schemas: Schemas, infer: bool = False
) -> MergedDocument:
    """Return what kpt makes of three documents: upstream wins every conflict, silently.

    Raises:
        YamlError: A side has a value that cannot be read, or the result cannot be written.
    """
    root = _root(local)
    merged = CompatibleMerge(schemas.shape, infer=infer).merge((root, _root(base), _root(upstream)))
    return _written(local, root, merged, ())


def _root(tree: Tree | None) -> Node | None:
    return root_of(tree) if tree is not None else None


def _written(
    local: Tree, root: Node | None, merged: Merged | None, clashes: tuple[Clash, ...]
) -> MergedDocument:
    if merged is None or root is None:
        return MergedDocument(None, clashes)
    edits = tuple(edits_of(root, merged))
    if not edits:
        return MergedDocument(local.text, clashes)
    done = apply_edits(local.text, edits)
    return MergedDocument(done.text, clashes, done.fallbacks)
