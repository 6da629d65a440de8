"""Match the resources of a package across its three sides, and merge each of them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from reconciler.api.kptfile import PACKAGE_CONTEXT_NAME
from reconciler.krm.bookkeeping import without_versions
from reconciler.krm.documents import ResourceDocument, ResourceFile
from reconciler.krm.merge import (
    ConflictResolver,
    Identity,
    MergedDocument,
    Winner,
    is_same,
    merge_document,
    merge_document_like_kpt,
    root_of,
)
from reconciler.krm.schema import Shape, parse_merge_keys, with_merge_keys
from reconciler.krm.values import is_same as values_are_same
from reconciler.krm.values import mapping_at, value_at
from reconciler.krm.yaml import Tree
from reconciler.render.update.comments import DocumentSides, is_unedited, record_dropped_comments
from reconciler.render.update.conflict_policy import resolver_for
from reconciler.render.update.merge_report import MergeReport
from reconciler.render.update.settings import MergeSettings

MERGE_KEYS = "reconciler.dev/merge-keys"
"""On a resource: `spec.fruits=name;spec.ports=port,protocol`, the keys of lists without a schema."""

_CONTEXT_FIELDS = (("data", "name"), ("data", "package-path"))


class FileDocument(NamedTuple):
    """A document and the path of its file."""

    path: str
    document: ResourceDocument


class ResourceSides(Struct, eq=False):
    """One resource on the three sides; None where a side does not have it."""

    base: FileDocument | None = None
    upstream: FileDocument | None = None
    local: FileDocument | None = None

    @property
    def any_side(self) -> FileDocument:
        """The document of local, else of upstream, else of base."""
        side = self.local or self.upstream or self.base
        assert side is not None  # noqa: S101 - made of at least one side
        return side

    @property
    def paths(self) -> set[str]:
        """The paths of the files that have the resource on any side."""
        return {side.path for side in (self.base, self.upstream, self.local) if side is not None}

    def documents_in(self, path: str) -> tuple[ResourceDocument | None, ...]:
        """Return the documents of base, upstream and local, None for one that is in another file."""
        sides = (self.base, self.upstream, self.local)
        return tuple(side.document if side is not None and side.path == path else None for side in sides)

    @property
    def is_incomplete(self) -> bool:
        """Whether upstream or local removed the resource, or moved it to another file."""
        return self.base is not None and (self.upstream is None or self.local is None)


class MergedResource(Struct, frozen=True, eq=False):
    """A merged document: its file, its position for kpt's mode, its text, and the documents it is from.

    `dropped` are comments of upstream that local changed too.
    """

    path: str
    index: int
    text: str
    sides: ResourceSides
    dropped: tuple[str, ...] = ()


FilesOfSide = Mapping[str, ResourceFile]
"""The files of one side by path."""


def match_resources(
    base: FilesOfSide, upstream: FilesOfSide, local: FilesOfSide, *, follow_moves: bool
) -> list[ResourceSides]:
    """Match resources by group, kind, name and file; then, if moves are followed, in any file.

    Deterministic. Order: local's documents, then base's, then upstream's, by file and position.

    Source: kpt internal/util/merge/merge3.go, ResourceMergeMatcher.
    Differs: with `follow_moves`, where kpt leaves two copies or loses updates.
    """
    by_key: dict[tuple[str, Identity, int], ResourceSides] = {}
    for name, side in (("local", local), ("base", base), ("upstream", upstream)):
        for path in sorted(side):
            for document in side[path].documents:
                # kpt matches by group, kind, name, namespace and file, whatever the version of the API.
                key = (path, document.identity, document.ordinal)
                setattr(by_key.setdefault(key, ResourceSides()), name, FileDocument(path, document))
    resources = list(by_key.values())
    return _join_renamespaced(_join_moved(resources)) if follow_moves else resources


def _join_moved(resources: list[ResourceSides]) -> list[ResourceSides]:
    """Join a resource with its copy in another file that only one side has, where exactly one fits."""
    for side, other in (("upstream", "local"), ("local", "upstream")):
        # In kpt a moved file is a deletion and an addition: local's edits end in a second copy of the
        # resource.
        missing = _unique(r for r in resources if r.base is not None and getattr(r, side) is None)
        added = _unique(r for r in resources if r.base is None and getattr(r, side) is not None)
        for identity, resource in missing.items():
            moved = added.get(identity)
            if moved is None or (getattr(moved, other) is not None and getattr(resource, other) is not None):
                continue
            setattr(resource, side, getattr(moved, side))
            if getattr(resource, other) is None:
                setattr(resource, other, getattr(moved, other))
            resources = [r for r in resources if r is not moved]
    return resources


def _join_renamespaced(resources: list[ResourceSides]) -> list[ResourceSides]:
    """Join a resource with local's copy in another namespace of the same file, as mutators leave it."""
    missing = [r for r in resources if r.base is not None and r.upstream is not None and r.local is None]
    added = [r for r in resources if r.base is None and r.upstream is None and r.local is not None]
    for resource in missing:
        # set-namespace of a pipeline has renamed what upstream still has under its own namespace.
        fits = [r for r in added if r.local is not None and _only_namespace_differs(resource.base, r.local)]
        if len(fits) == 1:
            (moved,) = fits
            resource.local = moved.local
            added.remove(moved)
            resources = [r for r in resources if r is not moved]
    return resources


def _only_namespace_differs(base: FileDocument | None, local: FileDocument) -> bool:
    # A resource with a merge comment is matched by it already.
    if base is None or base.path != local.path or local.document.comment:
        return False
    old, new = base.document.identity, local.document.identity
    return bool(old.name) and old._replace(namespace="") == new._replace(namespace="")


def _unique(resources: Iterable[ResourceSides]) -> dict[Identity, ResourceSides]:
    """Return the named resources with an identity that no other of these has."""
    by_identity: dict[Identity, list[ResourceSides]] = {}
    for resource in resources:
        identity = resource.any_side.document.identity
        if identity.name:
            by_identity.setdefault(identity, []).append(resource)
    return {identity: same[0] for identity, same in by_identity.items() if len(same) == 1}


def merge_resource(
    resource: ResourceSides, settings: MergeSettings, report: MergeReport
) -> MergedResource | None:
    """Return the merged document, None where the resource is deleted.

    Source: kpt internal/util/merge/merge3.go, resourceHandler.Handle.
    Differs: a resource that one side deleted and the other changed is a conflict.
    """
    merged = _merge(resource, settings, report)
    side = resource.any_side
    place = side.path, str(side.document.identity), ""
    if not settings.like_kpt and not report.has_place(place):
        base, upstream, local = (_tree(side) for side in (resource.base, resource.upstream, resource.local))
        result, dropped = (merged.text, merged.dropped) if merged is not None else (None, ())
        record_dropped_comments(*place[:2], DocumentSides(base, upstream, local, result), dropped, report)
    return merged


def _tree(side: FileDocument | None) -> Tree | None:
    return side.document.tree if side is not None else None


def _merge(resource: ResourceSides, settings: MergeSettings, report: MergeReport) -> MergedResource | None:
    base, upstream, local = resource.base, resource.upstream, resource.local
    if local is not None and upstream is not None:
        done = _merge_text(base, upstream, local, settings, report)
        is_moved = base is not None and upstream.path != base.path and local.path == base.path
        path = upstream.path if is_moved else local.path
        # A resource moves within its file only if upstream moved it.
        theirs = upstream.document.index
        is_unmoved = base is not None and theirs == base.document.index and upstream.path == base.path
        index = local.document.index if is_unmoved else theirs
        return (
            MergedResource(path, index, done.text, resource, done.dropped) if done.text is not None else None
        )
    if local is not None:
        is_deleted = base is not None and _is_deleted(base, local, settings, report)
        unchanged = MergedResource(local.path, local.document.index, local.document.text, resource)
        return None if is_deleted else unchanged
    if upstream is not None and (base is None or _comes_back(base, upstream, settings, report)):
        return MergedResource(upstream.path, upstream.document.index, upstream.document.text, resource)
    return None


def _merge_text(
    base: FileDocument | None,
    upstream: FileDocument,
    local: FileDocument,
    settings: MergeSettings,
    report: MergeReport,
) -> MergedDocument:
    old, theirs, ours = _tree(base), upstream.document.tree, local.document.tree
    if settings.like_kpt:
        done = merge_document_like_kpt(old, theirs, ours, schemas=settings.schemas)
        report.fallbacks += done.fallbacks
        return done
    # SOPS signs a document as a whole: mixed fields could not be decrypted.
    if any(_is_encrypted(side.document) for side in (base, upstream, local) if side is not None):
        return MergedDocument(_merge_whole(base, upstream, local, report))
    data, resource = local.document.data, str(local.document.identity)
    resolver = resolver_for(settings.policy, local.path, resource, data)
    if local.document.identity.name == PACKAGE_CONTEXT_NAME:
        resolver = _keep_own_name(resolver)
    done = merge_document(
        old, theirs, ours, shape=_shape(data, upstream.document.data, settings), resolver=resolver
    )
    report.fallbacks += done.fallbacks
    report.record_fields(local.path, resource, done.conflicts, data)
    return done


def _keep_own_name(resolver: ConflictResolver) -> ConflictResolver:
    """Return a resolver by which a package context keeps the name and path of its own package."""
    return lambda steps: Winner.LOCAL if steps in _CONTEXT_FIELDS else resolver(steps)


def _shape(local: Any, upstream: Any, settings: MergeSettings) -> Shape | None:
    shape: Shape | None = None
    for data in (local, upstream):
        if isinstance(data, dict) and shape is None:
            shape = settings.schemas.shape(str(data.get("apiVersion")), str(data.get("kind")))
    # kpt knows merge keys of Kubernetes' own kinds only: lists of a custom resource are one value to it.
    for path, keys in parse_merge_keys(_merge_keys(local) or _merge_keys(upstream)):
        shape = with_merge_keys(shape, path, keys)
    return shape


def _merge_keys(data: Any) -> str:
    text = value_at(data, "metadata", "annotations", MERGE_KEYS)
    return text if isinstance(text, str) else ""


def _is_deleted(
    base: FileDocument, local: FileDocument, settings: MergeSettings, report: MergeReport
) -> bool:
    """Return whether a resource that upstream deleted is deleted: yes if local did not edit it."""
    if is_unedited(base.document.tree, local.document.tree, like_kpt=settings.like_kpt):
        return True
    if settings.like_kpt:
        return False
    # kpt keeps an edited resource that upstream deleted, and tells nobody.
    return _upstream_wins(base, None, local, report, "DeletedUpstream")


def _comes_back(
    base: FileDocument, upstream: FileDocument, settings: MergeSettings, report: MergeReport
) -> bool:
    """Return whether a resource that local deleted comes back: only if upstream changed it and wins."""
    # In kpt a resource that local deleted stays away, whatever upstream did to it.
    if settings.like_kpt or is_same(root_of(base.document.tree), root_of(upstream.document.tree)):
        return False
    old, new = without_versions(base.document.data), without_versions(upstream.document.data)
    if base.document.data != upstream.document.data and values_are_same(old, new):
        return False
    return _upstream_wins(base, upstream, None, report, "DeletedLocally")


def _merge_whole(
    base: FileDocument | None, upstream: FileDocument, local: FileDocument, report: MergeReport
) -> str:
    """Choose one side of an encrypted document."""
    theirs, ours = upstream.document, local.document
    sides = [side.document for side in (base, local) if side is not None]
    if any(is_unedited(side.tree, theirs.tree, like_kpt=False) for side in sides):
        return ours.text
    is_old = base is not None and is_unedited(base.document.tree, ours.tree, like_kpt=False)
    if is_old or _upstream_wins(base, upstream, local, report, "BothChanged"):
        return theirs.text
    return ours.text


def _upstream_wins(
    base: FileDocument | None,
    upstream: FileDocument | None,
    local: FileDocument | None,
    report: MergeReport,
    reason: str,
) -> bool:
    """Record a conflict about a whole resource; return whether upstream wins it."""
    path, document = ResourceSides(base, upstream, local).any_side
    texts = (_text(base), _text(upstream), _text(local))
    return report.record_whole(path, str(document.identity), texts, reason, document.data)


def _text(side: FileDocument | None) -> str | None:
    return None if side is None else side.document.text


def _is_encrypted(document: ResourceDocument) -> bool:
    sops = mapping_at(document.data, "sops")
    # SOPS leaves these beside the encrypted values; its message authentication code covers all of them.
    return "mac" in sops or "lastmodified" in sops
