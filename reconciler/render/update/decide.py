"""What becomes of one resource, from what the three sides have of it."""

from dataclasses import dataclass
from typing import Any

from reconciler.api.kptfile import PACKAGE_CONTEXT_NAME
from reconciler.krm.merge import (
    ConflictResolver,
    Winner,
    is_same,
    merge_document,
    merge_document_like_kpt,
    root_of,
)
from reconciler.krm.schema import Shape, parse_merge_keys, with_merge_keys
from reconciler.krm.yaml import Tree
from reconciler.render.update.chunks import Document
from reconciler.render.update.ledger import Ledger
from reconciler.render.update.model import Place
from reconciler.render.update.remarks import DocumentSides, record_dropped_comments, with_upstream_header
from reconciler.render.update.resources import Placed, Triple
from reconciler.render.update.settings import Settings
from reconciler.render.update.settle import judge_of

MERGE_KEYS = "reconciler.dev/merge-keys"
"""On a resource: `spec.fruits=name;spec.ports=port,protocol`, the keys of lists whose schema is unknown."""

_CONTEXT_FIELDS = (("data", "name"), ("data", "package-path"))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A document of the result: where it goes, what it says, and the local document that it continues."""

    path: str
    index: int
    text: str
    local: Placed | None = None
    upstream: Placed | None = None


def decide(triple: Triple, settings: Settings, ledger: Ledger) -> Outcome | None:
    """Return the document of the result, None where the resource is to be gone.

    Source: kpt internal/util/merge/merge3.go, resourceHandler.Handle.
    Differs: a resource that one side deleted and the other changed is a conflict.
    """
    outcome = _decided(triple, settings, ledger)
    if not settings.like_kpt and not ledger.is_settled_whole(_place(triple)):
        merged = Tree.parse(outcome.text) if outcome is not None else None
        base, upstream, local = (_tree(placed) for placed in (triple.base, triple.upstream, triple.local))
        sides = DocumentSides(base, upstream, local, merged)
        record_dropped_comments(*_place(triple)[:2], sides, ledger)
    return outcome


def _tree(placed: Placed | None) -> Tree | None:
    return placed.document.tree if placed is not None else None


def _place(triple: Triple) -> Place:
    """Return where a conflict about a whole resource is."""
    shown = triple.local or triple.upstream or triple.base
    return (shown.path, str(shown.document.identity), "") if shown is not None else ("", "", "")


def _decided(triple: Triple, settings: Settings, ledger: Ledger) -> Outcome | None:
    base, upstream, local = triple.base, triple.upstream, triple.local
    if local is not None and upstream is None:
        gone = base is not None and _is_deleted(base, local, settings, ledger)
        return None if gone else Outcome(local.path, local.document.index, local.document.text, local)
    if local is None and upstream is not None:
        returns = base is None or _returns(base, upstream, settings, ledger)
        text, index = upstream.document.text, upstream.document.index
        return Outcome(upstream.path, index, text, upstream=upstream) if returns else None
    if local is None or upstream is None:
        return None
    merged = _merged(base, upstream, local, settings, ledger)
    if merged is None:
        return None
    moved = base is not None and upstream.path != base.path and local.path == base.path
    path = upstream.path if moved else local.path
    return Outcome(path, _index(base, upstream, local), merged, local)


def _merged(
    base: Placed | None, upstream: Placed, local: Placed, settings: Settings, ledger: Ledger
) -> str | None:
    old = base.document.tree if base is not None else None
    ours = local.document
    data = ours.data
    if settings.like_kpt:
        done = merge_document_like_kpt(old, upstream.document.tree, ours.tree, schemas=settings.schemas)
    elif any(_is_encrypted(placed.document) for placed in (base, upstream, local) if placed is not None):
        return _atomic(base, upstream, local, ledger)
    else:
        shape = _shape(data, upstream.document.data, settings)
        judge = judge_of(settings.policy, local.path, str(ours.identity), data)
        if ours.identity.name == PACKAGE_CONTEXT_NAME:
            judge = _keep_own_name(judge)
        done = merge_document(old, upstream.document.tree, ours.tree, shape=shape, judge=judge)
    ledger.fallbacks += done.fallbacks
    ledger.record(local.path, str(ours.identity), done.clashes, data)
    if done.text is None or settings.like_kpt:
        return done.text
    return with_upstream_header(old, upstream.document.tree, ours.tree, done.text)


def _keep_own_name(judge: ConflictResolver) -> ConflictResolver:
    """Let nobody overwrite what a package context says about its own package."""
    return lambda steps: Winner.LOCAL if steps in _CONTEXT_FIELDS else judge(steps)


def _shape(local: Any, upstream: Any, settings: Settings) -> Shape | None:
    shape: Shape | None = None
    for data in (local, upstream):
        if isinstance(data, dict) and shape is None:
            shape = settings.schemas.shape(str(data.get("apiVersion")), str(data.get("kind")))
    declared = _annotation(local, MERGE_KEYS) or _annotation(upstream, MERGE_KEYS)
    for path, keys in parse_merge_keys(declared):
        shape = with_merge_keys(shape, path, keys)
    return shape


def _annotation(data: Any, name: str) -> str:
    for step in ("metadata", "annotations", name):
        data = data.get(step) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""


def _is_deleted(base: Placed, local: Placed, settings: Settings, ledger: Ledger) -> bool:
    """Tell whether a resource that upstream deleted goes: yes if local did not touch it."""
    if _lines(base.document) == _lines(local.document):
        return True
    if settings.like_kpt:
        return False
    # Identifiers of a package that was made without them stand elsewhere than a function left them.
    same = is_same(root_of(base.document.tree), root_of(local.document.tree))
    if same and sorted(_lines(base.document)) == sorted(_lines(local.document)):
        return True
    return _settle(base, None, local, ledger, "DeletedUpstream")


def _returns(base: Placed, upstream: Placed, settings: Settings, ledger: Ledger) -> bool:
    """Tell whether a resource that local deleted comes back: only if upstream changed it and wins."""
    if settings.like_kpt or is_same(root_of(base.document.tree), root_of(upstream.document.tree)):
        return False
    return _settle(base, upstream, None, ledger, "DeletedLocally")


def _atomic(base: Placed | None, upstream: Placed, local: Placed, ledger: Ledger) -> str:
    """Merge a document whose parts must not be mixed, such as one that SOPS has encrypted."""
    old = base.document.text if base is not None else None
    theirs, ours = upstream.document.text, local.document.text
    if theirs in (old, ours):
        return ours
    if ours == old or _settle(base, upstream, local, ledger, "BothChanged"):
        return theirs
    return ours


def _settle(
    base: Placed | None, upstream: Placed | None, local: Placed | None, ledger: Ledger, reason: str
) -> bool:
    shown = local or upstream
    if shown is None:
        return False
    texts = (_text(base), _text(upstream), _text(local))
    return ledger.settle(shown.path, str(shown.document.identity), texts, reason, shown.document.data)


def _text(placed: Placed | None) -> str | None:
    return None if placed is None else placed.document.text


def _is_encrypted(document: Document) -> bool:
    data = document.data
    sops = data.get("sops") if isinstance(data, dict) else None
    return isinstance(sops, dict) and ("mac" in sops or "lastmodified" in sops)


def _index(base: Placed | None, upstream: Placed, local: Placed) -> int:
    """Return the place in its file: upstream's if it moved there, else local's."""
    theirs = upstream.document.index
    if base is not None and (theirs == base.document.index and upstream.path == base.path):
        return local.document.index
    return theirs


def _lines(document: Document) -> list[str]:
    return [line.rstrip() for line in document.text.splitlines() if line.strip()]
