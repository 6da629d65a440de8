"""Merge the resource files of one package: match resources, merge them, and write them to their files."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from reconciler.krm.merge import Identity
from reconciler.names.objects import File, Files
from reconciler.render.update.comments import record_dropped_lines
from reconciler.render.update.documents import ResourceFile, join_documents
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
        moved = {each for three in new for each in _identities(getattr(three, mover), settings)}
        before = {each for three in changed for each in _identities(three.base, settings)}
        after = {each for three in changed for each in _identities(getattr(three, remover), settings)}
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
    written = _write(_merge_all(resources, settings, report), {path: three}, settings)
    _record_dropped_lines(path, three, written.get(path), settings, report)
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
    written = _write(_merge_all(affected, settings, report), files, settings)
    for path in sorted(touched):
        _record_dropped_lines(path, files[path], written.get(path), settings, report)
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
    resources: Iterable[MergedResource], files: Mapping[str, FileSides], settings: MergeSettings
) -> dict[str, File]:
    by_path: dict[str, list[MergedResource]] = {}
    for resource in resources:
        by_path.setdefault(resource.path, []).append(resource)
    return {path: _file(path, merged, files[path], settings) for path, merged in by_path.items()}


def _file(path: str, resources: list[MergedResource], three: FileSides, settings: MergeSettings) -> File:
    # A new file without other changes keeps upstream's bytes between its documents.
    if all(r.local is None for r in resources) and three.upstream is not None and three.local is None:
        theirs = settings.cache.split(three.upstream)
        if theirs is not None and len(theirs.documents) == len(resources):
            return three.upstream
    ours = settings.cache.split(three.local)
    pieces = _pieces(path, _ordered(path, resources), ours, drop_empty=settings.like_kpt)
    mark = ours.byte_order_mark if ours is not None else ""
    is_windows = three.local is not None and b"\r\n" in three.local.data
    data = join_documents(pieces, mark=mark, line_break="\r\n" if is_windows else "\n")
    if three.local is not None and data == three.local.data and three.local.mode == merged_mode(three):
        return three.local
    return File.of(data, merged_mode(three))


def _record_dropped_lines(
    path: str, three: FileSides, merged: File | None, settings: MergeSettings, report: MergeReport
) -> None:
    """Record comments between the resources of a file that the merged file does not have."""
    if settings.like_kpt:
        return
    base, upstream, local = ("".join(_text_between(settings.cache.split(file))) for file in three)
    # A comment of base alone is one that both sides deleted; splitting the merged file parses it.
    if "#" in upstream or "#" in local:
        result = "".join(_text_between(settings.cache.split(merged)))
        record_dropped_lines(path, (base, upstream, local, result), report)


def _text_between(split: ResourceFile | None) -> Iterator[str]:
    """Yield the text of a file that belongs to no resource."""
    for _, text, document in split.chunks if split is not None else ():
        if document is None:
            yield text


def _ordered(path: str, resources: list[MergedResource]) -> list[MergedResource]:
    """Keep local's order, and insert each new document before the first with a higher index.

    Source: kyaml kio, LocalPackageWriter sorts by index; documents with the same index stay in order.
    """
    existing = [r for r in resources if r.local is not None and r.local.path == path]
    ordered = sorted(existing, key=lambda r: r.local.document.index if r.local is not None else 0)
    for new in sorted((r for r in resources if r not in existing), key=lambda r: r.index):
        places = (place for place, other in enumerate(ordered) if other.index > new.index)
        ordered.insert(next(places, len(ordered)), new)
    return ordered


def _pieces(
    path: str, resources: list[MergedResource], ours: ResourceFile | None, *, drop_empty: bool
) -> list[tuple[str, str]]:
    """Return (marker line, text) of each document.

    Local's empty chunks keep their place after a document, or are dropped, as kpt does.
    """
    markers: dict[int, str] = {}
    followers: dict[int, list[tuple[str, str]]] = {}
    last = -1
    for marker, text, document in ours.chunks if ours is not None else ():
        if document is None and not drop_empty:
            followers.setdefault(last, []).append((marker, text))
        elif document is not None:
            last = document.index
            markers[last] = marker
    first = markers.get(0, "")
    pieces = list(followers.get(-1, ()))
    for resource in resources:
        is_existing = resource.local is not None and resource.local.path == path
        index = resource.local.document.index if resource.local is not None and is_existing else None
        marker = markers.get(index, "") if index is not None else ""
        pieces.append((marker if pieces else first, resource.text))
        pieces += followers.get(index, ()) if index is not None else ()
    return pieces


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
