"""Merge the resource files of one package: match resources, merge them, and write them to their files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from reconciler.krm.documents import ResourceFile, join_documents
from reconciler.krm.merge import Identity, insert_new, merge_formats, merge_lines
from reconciler.krm.yaml.tree import CommentPosition, lines_of
from reconciler.names.objects import File, Files
from reconciler.render.update.comments import record_dropped_lines
from reconciler.render.update.merge_report import MergeReport, UpdateRefused
from reconciler.render.update.resources import (
    MergedResource,
    ResourceSides,
    match_resources,
    merge_resource,
)
from reconciler.render.update.settings import MergeSettings, schemas_of
from reconciler.render.update.three_way import (
    FileSides,
    Sides,
    changed_side,
    is_equal,
    merged_mode,
    needs_merge,
)

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
    single = {
        path: settings.cache.result(
            _cache_key(path, files[path], settings), partial(_merge_file, path, files[path], settings)
        )
        for path in changed
    }
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


def _cache_key(path: str, three: FileSides, settings: MergeSettings) -> object:
    return path, *((f.oid, f.mode) if f is not None else None for f in three), settings.key


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
