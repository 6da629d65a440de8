"""Match the resources of a package across its three sides, merge each, and write them to their files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import PACKAGE_CONTEXT_NAME
from reconciler.base.lazy import regex
from reconciler.krm.bookkeeping import without_versions
from reconciler.krm.documents import ResourceDocument, ResourceFile, join_documents
from reconciler.krm.merge import (
    ConflictResolver,
    Identity,
    MergedDocument,
    Winner,
    has_merge_comment,
    insert_new,
    is_printed_same,
    is_same,
    merge_document,
    merge_document_like_kpt,
    merge_formats,
    merge_lines,
    root_of,
)
from reconciler.krm.schema import Shape, parse_merge_keys, with_merge_keys
from reconciler.krm.values import is_same as values_are_same
from reconciler.krm.values import mapping_at, value_at
from reconciler.krm.yaml import Tree
from reconciler.krm.yaml.tree import CommentPosition, lines_of
from reconciler.names.objects import File, Files
from reconciler.policy import OnConflict
from reconciler.render.update.conflicts import (
    Conflict,
    MergeReport,
    Rule,
    RuleKind,
    UpdateRefused,
    resolver_for,
)
from reconciler.render.update.sides import (
    FileSides,
    MergeSettings,
    Sides,
    changed_side,
    is_equal,
    merged_mode,
    needs_merge,
    schemas_of,
)

OF_UPSTREAM, OF_LOCAL = "comments-of-upstream", "comments-of-local"
"""The field of a conflict about dropped comments."""

_BOTH_CHANGED = "both sides changed this comment, and local's stays"
_GONE = "a comment goes with its value"
_COMMENT: Final = regex(r"(?<!\S)#[^\r\n]*")


class DocumentSides(NamedTuple):
    """One resource on the three sides, and the text of the merged one; None where it is absent."""

    base: Tree | None
    upstream: Tree | None
    local: Tree | None
    merged: str | None


def record_dropped_comments(
    path: str, resource: str, sides: DocumentSides, contested: Iterable[str], report: MergeReport
) -> None:
    """Record the comments of upstream or local that the merged document does not have.

    `contested` are comments of upstream that local changed too.
    """
    # Parsing the merged document takes as long as merging it.
    if _may_drop(sides):
        merged = Tree.parse(sides.merged) if sides.merged is not None else None
        _record(
            path, resource, [Counter(_comments(tree)) for tree in (*sides[:3], merged)], contested, report
        )


def record_dropped_lines(
    path: str, texts: tuple[str, str, str, str], contested: Iterable[str], report: MergeReport
) -> None:
    """Record dropped comments of the text between resources: of base, upstream, local and the merged file."""
    lines = ([line.strip() for line in text.splitlines() if "#" in line] for text in texts)
    _record(path, "file", [Counter(lines_of_side) for lines_of_side in lines], contested, report)


def _record(
    path: str, resource: str, comments: Sequence[Counter[str]], contested: Iterable[str], report: MergeReport
) -> None:
    base, upstream, local, merged = comments
    theirs, ours = ((side - base) - merged for side in (upstream, local))
    rules = {_BOTH_CHANGED: theirs & Counter(contested), _GONE: theirs - Counter(contested)}
    if theirs:
        text = "\n".join(theirs.elements())
        conflict = Conflict(path, resource, OF_UPSTREAM, None, text, None, "Comment")
        rule = "; ".join(rule for rule, lines in rules.items() if lines)
        report.record_decided(conflict, OnConflict.LOCAL, Rule(RuleKind.MERGE, rule))
    if ours:
        conflict = Conflict(path, resource, OF_LOCAL, None, None, "\n".join(ours.elements()), "Comment")
        report.record_decided(conflict, OnConflict.UPSTREAM, Rule(RuleKind.MERGE, _GONE))


def _may_drop(sides: DocumentSides) -> bool:
    """Return whether the merge may drop a comment, by their texts: parsing comments is costly."""
    old, theirs, ours = (tree.text if tree is not None else "" for tree in sides[:3])
    if "#" not in theirs and "#" not in ours:
        return False
    base, upstream, local, merged = (
        Counter(_COMMENT.findall(text)) for text in (old, theirs, ours, sides.merged or "")
    )
    return any((side - base) - merged for side in (upstream, local))


def is_unedited(base: Tree, side: Tree, *, like_kpt: bool) -> bool:
    """Return whether a side has the values and comments of the base, whatever its formatting.

    kpt formats what it fetches. In its own mode, quotes, styles and the order of keys are an edit, as in kpt.

    Source: kpt internal/util/merge/merge3.go, resourceHandler.equals.
    """
    if base.text == side.text:
        return True
    old, new = root_of(base), root_of(side)
    before, after = (list(_comments(tree)) if "#" in tree.text else [] for tree in (base, side))
    if not like_kpt:
        # kpt's writer reformats a whole file, so quotes and order tell nothing about a person's edit.
        return is_same(old, new) and sorted(before) == sorted(after)
    is_compact = base.indentation.compact_lists is side.indentation.compact_lists
    return is_compact and before == after and is_printed_same(old, new)


def _comments(tree: Tree | None) -> Iterator[str]:
    """Yield the comment lines of a document, without kpt's merge comments."""
    if tree is None:
        return
    yield from (text for text in tree.comments.texts() if not has_merge_comment(text))


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


Results = dict[str, File | None]
"""The merged file of each path; None where the file is deleted."""


def merge_resource_files(
    sides: Sides, paths: Iterable[str], settings: MergeSettings, report: MergeReport
) -> Results:
    """Return the merged files at `paths`, which are YAML on every side that has them.

    Raises:
        UpdateRefused: In kpt's mode, one side of a file has two resources of one identity.
        YamlError: A result cannot be written.
    """
    files = {path: FileSides(*(side.get(path) for side in sides)) for path in paths}
    changed = [path for path, three in files.items() if settings.like_kpt or needs_merge(three)]
    results: Results = {path: changed_side(three) for path, three in files.items()}
    is_moved = not settings.like_kpt and _is_moved_and_removed(files, settings)
    if not changed and not is_moved:
        return results
    schemas, key = (settings.schemas, ()) if settings.like_kpt else schemas_of(tuple(sides), settings.cache)
    settings = replace(settings, schemas=schemas, schemas_key=key)
    # Files are merged one by one first: these results are cached, and few packages move resources.
    single = {}
    for path in changed:
        sides_key = ((f.oid, f.mode) if f is not None else None for f in files[path])
        merge = partial(_merge_file, path, files[path], settings)
        single[path] = settings.cache.result((path, *sides_key, settings.key), merge)
    if is_moved or any(merged.is_incomplete for merged in single.values()):
        return results | _merge_together(files, set(changed), settings, report)
    for path, merged in single.items():
        results[path] = merged.file
        report.add(merged.report)
    return results


def _is_moved_and_removed(files: Mapping[str, FileSides], settings: MergeSettings) -> bool:
    """Return whether one side moved a resource to a new file while the other side removed it."""
    for mover, remover in (("upstream", "local"), ("local", "upstream")):
        new = [three for three in files.values() if three.base is None and getattr(three, remover) is None]
        changed = [
            three
            for three in files.values()
            if three.base is not None and not is_equal(three.base, getattr(three, remover))
        ]
        if not new or not changed:
            continue
        moved = {resource for three in new for resource in _identities(getattr(three, mover), settings)}
        before = {resource for three in changed for resource in _identities(three.base, settings)}
        after = {resource for three in changed for resource in _identities(getattr(three, remover), settings)}
        if moved & (before - after):
            return True
    return False


def _identities(file: File | None, settings: MergeSettings) -> Iterator[Identity]:
    split = settings.cache.split(file)
    yield from (document.identity for document in (split.documents if split is not None else ()))


class _MergedFile(Struct, frozen=True, eq=False):
    """A file merged by itself; `is_incomplete` if a resource of it may have moved to another file."""

    file: File | None
    report: MergeReport
    is_incomplete: bool


def _merge_file(path: str, three: FileSides, settings: MergeSettings) -> _MergedFile:
    report = MergeReport(settings.policy)
    resources = match_resources(*_split_sides({path: three}, settings), follow_moves=False)
    if not settings.like_kpt and any(resource.is_incomplete for resource in resources):
        return _MergedFile(None, report, is_incomplete=True)
    written = _write(_merge_all(resources, settings, report), {path: three}, settings, report)
    return _MergedFile(written.get(path), report, is_incomplete=False)


def _merge_together(
    files: Mapping[str, FileSides], changed: set[str], settings: MergeSettings, report: MergeReport
) -> Results:
    """Merge the files of a package in which resources may have moved between files."""
    differing = {
        path: three for path, three in files.items() if len({f and (f.oid, f.mode) for f in three}) > 1
    }
    resources = match_resources(*_split_sides(differing, settings), follow_moves=not settings.like_kpt)
    touched = changed.union(*(resource.paths for resource in resources if len(resource.paths) > 1))
    affected = [resource for resource in resources if resource.paths & touched]
    written = _write(_merge_all(affected, settings, report), files, settings, report)
    for path in () if settings.like_kpt else sorted(touched - written.keys()):
        _pieces(path, [], [settings.cache.split(file) for file in files[path]], report)
    return {path: written.get(path) for path in touched}


def _split_sides(
    files: Mapping[str, FileSides], settings: MergeSettings
) -> tuple[dict[str, ResourceFile], dict[str, ResourceFile], dict[str, ResourceFile]]:
    sides: tuple[dict[str, ResourceFile], dict[str, ResourceFile], dict[str, ResourceFile]] = ({}, {}, {})
    for path, three in files.items():
        for side, file in zip(sides, three, strict=True):
            split = settings.cache.split(file)
            if split is not None:
                side[path] = split
    return sides


def _merge_all(
    resources: Iterable[ResourceSides], settings: MergeSettings, report: MergeReport
) -> list[MergedResource]:
    merged = (merge_resource(resource, settings, report) for resource in resources)
    return [resource for resource in merged if resource is not None]


def _write(
    resources: Iterable[MergedResource],
    files: Mapping[str, FileSides],
    settings: MergeSettings,
    report: MergeReport,
) -> dict[str, File]:
    by_path: dict[str, list[MergedResource]] = {}
    for resource in resources:
        by_path.setdefault(resource.path, []).append(resource)
    return {path: _file(path, merged, files[path], settings, report) for path, merged in by_path.items()}


def _file(
    path: str, resources: list[MergedResource], three: FileSides, settings: MergeSettings, report: MergeReport
) -> File:
    """Return a file of its merged documents, with the merged text between them."""
    splits = [settings.cache.split(file) for file in three]
    if settings.like_kpt:  # it drops documents without content
        pieces, below = [("", resource.text) for resource in _sorted_like_kpt(path, resources)], ""
    else:
        pieces, below = _pieces(path, resources, splits, report)
    form = merge_formats(*(split.format if split is not None else None for split in splits))
    data = join_documents(pieces, below, form)
    if three.local is not None and data == three.local.data and three.local.mode == merged_mode(three):
        return three.local
    return File.of(data, merged_mode(three))


def _pieces(
    path: str, resources: list[MergedResource], splits: Sequence[ResourceFile | None], report: MergeReport
) -> tuple[list[tuple[str, str]], str]:
    """Return each document of a file with the text above it, and the text below the last one."""
    documents = {resource: resource.sides.documents_in(path) for resource in resources}
    theirs, ours = (
        {document.index: r for r, sides in documents.items() if (document := sides[side]) is not None}
        for side in (1, 2)
    )
    base, upstream, local = splits
    # A document without content that local added stays where the resource below it goes.
    notes: dict[MergedResource, str] = {}
    old, note = base.between.splitlines() if base is not None else [], ""
    for document in local.documents if local is not None else ():
        if document.index in ours:
            notes[ours[document.index]], note = note, ""
        else:
            lines = document.above.splitlines(keepends=True)
            note += "".join(line for line in lines if "#" in line and line.strip() not in old)
    dropped: list[str] = []
    pieces: list[tuple[str, str]] = []
    for resource in insert_new((ours[key] for key in sorted(ours)), (theirs[key] for key in sorted(theirs))):
        above, lost = _merge_between(
            *(piece.above if piece is not None else None for piece in documents[resource])
        )
        dropped += lost
        pieces.append((notes.get(resource, "") + above, resource.text))
    below, lost = _merge_between(*(split.below if split is not None else None for split in splits))
    at_base, at_upstream, at_local = (
        split.between if split is not None else "" for split in (base, upstream, local)
    )
    between = "".join(above for above, _ in pieces) + note + below
    record_dropped_lines(path, (at_base, at_upstream, at_local, between), [*dropped, *lost], report)
    return pieces, note + below


def _merge_between(base: str | None, upstream: str | None, local: str | None) -> tuple[str, list[str]]:
    """Merge the text between two documents: marker lines, and documents without content."""
    old = base or ""
    theirs, ours = (old if side is None else side for side in (upstream, local))
    if ours == old or theirs in (old, ours):
        return (theirs if ours == old else ours), []
    lines, dropped = merge_lines(lines_of(old), lines_of(theirs), lines_of(ours), CommentPosition.ABOVE)
    return "".join(f"{' ' * line.column}{line.text}\n" for line in lines), dropped


def _sorted_like_kpt(path: str, resources: list[MergedResource]) -> list[MergedResource]:
    """Keep local's order, and insert each new document before the first with a higher index.

    Source: kyaml kio, LocalPackageWriter sorts by index; documents with the same index stay in order.
    """
    existing = {r: local.index for r in resources if (local := r.sides.documents_in(path)[2]) is not None}
    ordered = sorted(existing, key=lambda r: existing[r])
    for new in sorted((r for r in resources if r not in existing), key=lambda r: r.index):
        # kpt's writer sorts by the annotation with the index, which merges like any other value.
        places = (index for index, other in enumerate(ordered) if other.index > new.index)
        ordered.insert(next(places, len(ordered)), new)
    return ordered


def check_duplicates(files: Files, settings: MergeSettings) -> None:
    """Check that no file has two resources of one identity, as kpt does.

    Raises:
        UpdateRefused: There are such files.
    """
    paths = []
    for path, file in sorted(files.items()):
        split = settings.cache.split(file)
        if split is not None and any(document.ordinal for document in split.documents):
            paths.append(path)
    if paths:
        message = f"Found duplicate resources in {', '.join(paths)}"
        raise UpdateRefused("DuplicateResource", message, paths=tuple(paths))
