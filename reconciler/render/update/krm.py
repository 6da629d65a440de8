"""The resource files of one package: matched, merged, and written where they belong."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from reconciler.krm.merge import Identity
from reconciler.objects import File, Files
from reconciler.render.update.chunks import Chunked, join_chunks
from reconciler.render.update.decide import Outcome, decide
from reconciler.render.update.ledger import Ledger
from reconciler.render.update.model import UpdateRefused
from reconciler.render.update.packages import Sides
from reconciler.render.update.remarks import record_dropped_lines
from reconciler.render.update.resources import Side, Triple, match_resources
from reconciler.render.update.settings import Settings, schemas_of
from reconciler.render.update.sides import FileSides, is_equal, is_open, merged_mode, settled

Results = dict[str, File | None]
"""What becomes of each path; None where the file goes."""


def merge_resource_files(sides: Sides, paths: Iterable[str], settings: Settings, ledger: Ledger) -> Results:
    """Return what becomes of the files at `paths`, which are YAML on every side that has them.

    Raises:
        UpdateRefused: In kpt's way, one side of a file has two resources of one identity.
        YamlError: A result cannot be written.
    """
    files = {path: FileSides(*(side.get(path) for side in sides)) for path in paths}
    open_paths = [path for path, three in files.items() if settings.like_kpt or is_open(three)]
    results: Results = {path: settled(three) for path, three in files.items()}
    is_moved = not settings.like_kpt and _is_moved_and_gone(files, settings)
    if not open_paths and not is_moved:
        return results
    schemas, key = (settings.schemas, ()) if settings.like_kpt else schemas_of(tuple(sides), settings.memory)
    settings = replace(settings, schemas=schemas, schemas_key=key)
    alone = {
        path: settings.memory.recall(
            _key(path, files[path], settings), partial(_merge_alone, path, files[path], settings)
        )
        for path in open_paths
    }
    if not is_moved and not any(one.homeless for one in alone.values()):
        for path, one in alone.items():
            results[path] = one.file
            ledger.add(one.ledger)
        return results
    results.update(_merge_together(files, set(open_paths), settings, ledger))
    return results


def _is_moved_and_gone(files: Mapping[str, FileSides], settings: Settings) -> bool:
    """Tell whether one side moved a resource to a new file while the other side removed it."""
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


def _identities(file: File | None, settings: Settings) -> Iterator[Identity]:
    chunked = settings.memory.documents(file) if file is not None else None
    yield from (document.identity for document in (chunked.documents if chunked is not None else ()))


@dataclass(frozen=True, slots=True, eq=False)
class _Alone:
    """A file merged by itself; `homeless` if a resource of it may have moved to another file."""

    file: File | None
    ledger: Ledger
    homeless: bool


def _key(path: str, three: FileSides, settings: Settings) -> object:
    return path, *((f.oid, f.mode) if f is not None else None for f in three), settings.key


def _merge_alone(path: str, three: FileSides, settings: Settings) -> _Alone:
    ledger = Ledger(settings.policy)
    matching = match_resources(*_chunked({path: three}, settings), follow_moves=False)
    if not settings.like_kpt and any(_is_homeless(triple) for triple in matching.triples):
        return _Alone(None, ledger, homeless=True)
    written = _write(_decided(matching.triples, settings, ledger), {path: three}, settings)
    _record_headers(path, three, written.get(path), settings, ledger)
    return _Alone(written.get(path), ledger, homeless=False)


def _merge_together(
    files: Mapping[str, FileSides], open_paths: set[str], settings: Settings, ledger: Ledger
) -> Results:
    """Merge the files of a package in which resources may have moved between files."""
    differing = {
        path: three for path, three in files.items() if len({f and (f.oid, f.mode) for f in three}) > 1
    }
    matching = match_resources(*_chunked(differing, settings), follow_moves=not settings.like_kpt)
    touched = set(open_paths)
    for triple in matching.triples:
        paths = _paths(triple)
        if len(paths) > 1:
            touched |= paths
    triples = [triple for triple in matching.triples if _paths(triple) & touched]
    written = _write(_decided(triples, settings, ledger), files, settings)
    for path in sorted(touched):
        _record_headers(path, files[path], written.get(path), settings, ledger)
    return {path: written.get(path) for path in touched}


def _chunked(files: Mapping[str, FileSides], settings: Settings) -> tuple[Side, Side, Side]:
    sides: tuple[dict[str, Chunked], dict[str, Chunked], dict[str, Chunked]] = ({}, {}, {})
    for path, three in files.items():
        for side, file in zip(sides, three, strict=True):
            chunked = settings.memory.documents(file) if file is not None else None
            if chunked is not None:
                side[path] = chunked
    return sides


def _is_homeless(triple: Triple) -> bool:
    return triple.base is not None and (triple.upstream is None or triple.local is None)


def _paths(triple: Triple) -> set[str]:
    return {placed.path for placed in (triple.base, triple.upstream, triple.local) if placed is not None}


def _decided(triples: Iterable[Triple], settings: Settings, ledger: Ledger) -> list[Outcome]:
    outcomes = (decide(triple, settings, ledger) for triple in triples)
    return [outcome for outcome in outcomes if outcome is not None]


def _write(
    outcomes: Iterable[Outcome], files: Mapping[str, FileSides], settings: Settings
) -> dict[str, File]:
    by_path: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_path.setdefault(outcome.path, []).append(outcome)
    return {path: _file(path, found, files[path], settings) for path, found in by_path.items()}


def _file(path: str, outcomes: list[Outcome], three: FileSides, settings: Settings) -> File:
    if all(o.local is None for o in outcomes) and three.upstream is not None and three.local is None:
        theirs = settings.memory.documents(three.upstream)
        if theirs is not None and len(theirs.documents) == len(outcomes):
            return three.upstream
    ours = settings.memory.documents(three.local) if three.local is not None else None
    pieces = _pieces(path, _ordered(path, outcomes), ours, drop_empty=settings.like_kpt)
    windows = three.local is not None and b"\r\n" in three.local.data
    data = join_chunks(
        pieces, mark=ours.encoding_mark if ours is not None else "", line_break="\r\n" if windows else "\n"
    )
    if three.local is not None and data == three.local.data and three.local.mode == merged_mode(three):
        return three.local
    return File.of(data, merged_mode(three))


def _record_headers(
    path: str, three: FileSides, merged: File | None, settings: Settings, ledger: Ledger
) -> None:
    """Record comments between the resources of a file that the merged file does not have."""
    if settings.like_kpt:
        return
    sides = (settings.memory.documents(file) if file is not None else None for file in (*three, merged))
    base, upstream, local, result = ("".join(_between(side)) for side in sides)
    record_dropped_lines(path, (base, upstream, local, result), ledger)


def _between(chunked: Chunked | None) -> Iterator[str]:
    """Yield the text of a file that belongs to no resource."""
    for _, text, document in chunked.chunks if chunked is not None else ():
        if document is None:
            yield text


def _ordered(path: str, outcomes: list[Outcome]) -> list[Outcome]:
    """Keep local's order, and put each new document before the first one that upstream has behind it.

    Source: kyaml kio, LocalPackageWriter sorts by index; documents with the same index stay in order.
    """
    here = [o for o in outcomes if o.local is not None and o.local.path == path]
    ordered = sorted(here, key=lambda o: o.local.document.index if o.local is not None else 0)
    for new in sorted((o for o in outcomes if o not in here), key=lambda o: o.index):
        places = (place for place, other in enumerate(ordered) if other.index > new.index)
        ordered.insert(next(places, len(ordered)), new)
    return ordered


def _pieces(
    path: str, outcomes: list[Outcome], ours: Chunked | None, *, drop_empty: bool
) -> list[tuple[str, str]]:
    """Return (marker line, text) of each document.

    Local's chunks without content stay where they are, unless they are to be dropped, as kpt does.
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
    for outcome in outcomes:
        index = (
            outcome.local.document.index if outcome.local is not None and outcome.local.path == path else None
        )
        marker = markers.get(index, "") if index is not None else ""
        pieces.append((marker if pieces else first, outcome.text))
        pieces += followers.get(index, ()) if index is not None else ()
    return pieces


def check_duplicates(files: Files, settings: Settings) -> None:
    """Refuse a side in which one file has two resources of one identity, as kpt does.

    Raises:
        UpdateRefused: There are such files.
    """
    paths = []
    for path, file in files.items():
        chunked = settings.memory.documents(file)
        if chunked is not None and any(document.ordinal for document in chunked.documents):
            paths.append(path)
    if paths:
        raise UpdateRefused(
            "DuplicateResource",
            f"Found duplicate resources in {', '.join(sorted(paths))}",
            paths=tuple(sorted(paths)),
        )
