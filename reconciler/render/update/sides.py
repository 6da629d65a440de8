"""The three sides of a package and of a file, and the options and the cache of a merge."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct, field

from reconciler.base.text import plural
from reconciler.functions.resources import package_directories, package_of
from reconciler.krm.documents import ResourceFile, resources_in
from reconciler.krm.merge import MergedText, merge_text
from reconciler.krm.schema import Schemas, crd_shapes
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files, Mode
from reconciler.policy import MergeMode
from reconciler.render.update.conflicts import ConflictPolicy, MergeReport

_BINARY_PROBE = 8000
"""In bytes; Git looks for a NUL in as many, and a person reads no longer line."""


class Sides(NamedTuple):
    """One package, or a part of it, on the three sides of an update."""

    original: Files
    upstream: Files
    local: Files


def split_packages(sides: Sides) -> dict[str, Sides]:
    """Return each package's own files, without those of its sub-packages; paths stay relative to the root.

    A directory that is a package on one side is a package on all of them. The root `""` is first, parents
    are before their sub-packages.
    """
    directories = set[str]().union(*(package_directories(files) for files in sides))
    if len(directories) == 1:
        return {"": sides}
    # A Kptfile makes a directory a package, wherever it is.
    paths = sorted(directories, key=lambda path: (path.count("/") + 1 if path else 0, path))
    parts: dict[str, tuple[dict[str, File], dict[str, File], dict[str, File]]] = {
        path: ({}, {}, {}) for path in paths
    }
    for index, files in enumerate(sides):
        for path, file in files.items():
            parts[package_of(path, parts)][index][path] = file
    return {path: Sides(*files) for path, files in parts.items()}


def has_directory(files: Files, directory: str) -> bool:
    """Return whether any file is below `directory`."""
    prefix = directory + "/"
    return any(path.startswith(prefix) for path in files)


class FileSides(NamedTuple):
    """One file on the three sides; None where a side does not have it."""

    base: File | None
    upstream: File | None
    local: File | None


def is_equal(left: File | None, right: File | None) -> bool:
    """Return whether two files have the same bytes and mode."""
    if left is None or right is None:
        return left is right
    return left is right or (left.oid == right.oid and left.mode == right.mode)


def needs_merge(sides: FileSides) -> bool:
    """Return whether both sides changed the file, differently."""
    base, upstream, local = sides
    return not (is_equal(base, upstream) or is_equal(upstream, local) or is_equal(base, local))


def changed_side(sides: FileSides) -> File | None:
    """Return the file of the only side that changed it; for a file that needs no merge."""
    base, upstream, local = sides
    return upstream if is_equal(base, local) else local


def merged_mode(sides: FileSides) -> Mode:
    """Return the mode of a regular file after a merge: local's, unless only upstream changed it."""
    base, upstream, local = (side.mode if side is not None else None for side in sides)
    chosen = upstream if local in (None, base) else local
    # As Git merges modes: the side that changed it wins.
    return chosen or local or Mode.REGULAR


def merge_text_file(path: str, sides: FileSides, report: MergeReport) -> File | None:
    """Return the merge of a file without resources, None if it is deleted; its mode merges separately."""
    if not needs_merge(sides):
        return changed_side(sides)
    base, upstream, local = sides
    if local is None or upstream is None or base is None:
        reason = "DeletedLocally" if local is None else "DeletedUpstream" if upstream is None else "BothAdded"
        return _choose_whole(path, sides, report, reason)
    merged = _merge_bytes(path, base, upstream, local, report)
    # The target of a link is its content: its mode cannot change alone.
    if merged is None or Mode.SYMLINK in (merged.mode, base.mode, upstream.mode, local.mode):
        return merged
    return File(merged.data, merged_mode(sides), merged.oid)


def keep_text_file(sides: FileSides) -> File | None:
    """Return a file as kpt merges it: an unmodified one follows upstream, a deleted one comes back.

    Source: kpt internal/util/update/resource-merge.go, ReplaceNonKRMFiles.
    """
    base, upstream, local = sides
    # Unlike a resource, a file that local deleted comes back in kpt.
    return upstream if local is None or (base is not None and local.oid == base.oid) else local


def _merge_bytes(path: str, base: File, upstream: File, local: File, report: MergeReport) -> File | None:
    if upstream.oid in (base.oid, local.oid):
        return local
    if local.oid == base.oid:
        return upstream
    merged = _merge_lines(base, upstream, local, prefer_upstream=False)
    if merged is None or (merged.hunks and not all(map(is_text, (base, upstream, local)))):
        return _choose_whole(path, FileSides(base, upstream, local), report, "BothChanged")
    wins = [
        report.record_whole(path, "", (hunk.base, hunk.upstream, hunk.local), "BothChanged")
        for hunk in merged.hunks
    ]
    if any(wins):
        merged = _merge_lines(base, upstream, local, prefer_upstream=True) or merged
    data = File.of(merged.text.encode("utf-8", "surrogateescape"), local.mode)
    return local if is_equal(data, local) else data


def _merge_lines(base: File, upstream: File, local: File, *, prefer_upstream: bool) -> MergedText | None:
    sides = (base, upstream, local)
    if any(side.mode == Mode.SYMLINK or b"\0" in side.data[:_BINARY_PROBE] for side in sides):
        return None
    # Bytes that are no UTF-8 survive a merge by lines.
    old, theirs, ours = (side.data.decode("utf-8", "surrogateescape") for side in sides)
    return merge_text(old, theirs, ours, prefer_upstream=prefer_upstream)


def _choose_whole(path: str, sides: FileSides, report: MergeReport, reason: str) -> File | None:
    base, upstream, local = (file_text(side) for side in sides)
    return sides.upstream if report.record_whole(path, "", (base, upstream, local), reason) else sides.local


def is_text(file: File) -> bool:
    """Tell whether people can read a file: Git would call it text, it is UTF-8, and its lines have an end."""
    if b"\0" in file.data[:_BINARY_PROBE] or max(map(len, file.data.split(b"\n"))) > _BINARY_PROBE:
        return False
    try:
        file.data.decode()
    except UnicodeDecodeError:
        return False
    return True


def file_text(file: File | None) -> str | None:
    """Return the text of a file, or what it is where people cannot read it; None where there is none."""
    if file is None or is_text(file):
        return file.data.decode() if file else None
    mode = ", executable" if file.mode == Mode.EXECUTABLE else ""
    return f"binary file, {plural(len(file.data), 'byte')}{mode}, {file.oid}"


T = TypeVar("T")
_CRD = b"CustomResourceDefinition"
_MISSING: Final = object()
_MAX_RESULTS = 4096
_MAX_DOCUMENTS = 64


class MergeCache(Struct):
    """Cache of parsed and merged files by content, shared by the updates of a run; emptied when full."""

    _results: dict[Any, Any] = field(default_factory=dict)
    _files: dict[tuple[Oid, Mode], ResourceFile | None] = field(default_factory=dict)

    def result(self, key: Any, make: Callable[[], T]) -> T:
        """Return the cached result of `key`, else that of `make`."""
        cached = self._results.get(key, _MISSING)
        if cached is not _MISSING:
            return cached  # type: ignore[no-any-return]
        if len(self._results) >= _MAX_RESULTS:
            self._results.clear()
        value = self._results[key] = make()
        return value

    def split(self, file: File | None) -> ResourceFile | None:
        """Return the documents of a file, None where it is no YAML.

        Few are kept: parsed documents are large, and merged files are cached as results.
        """
        if file is None:
            return None
        key = (file.oid, file.mode)
        cached = self._files.get(key, _MISSING)
        if cached is not _MISSING:
            return cached  # type: ignore[return-value]
        if len(self._files) >= _MAX_DOCUMENTS:
            self._files.clear()
        split = self._files[key] = resources_in(file)
        return split


class MergeSettings(Struct, frozen=True):
    """Mode, policy, cache and schemas of one update."""

    mode: MergeMode
    policy: ConflictPolicy
    cache: MergeCache
    schemas: Schemas = field(default_factory=Schemas)
    schemas_key: tuple[str, ...] = ()

    @property
    def like_kpt(self) -> bool:
        """Whether to merge exactly as kpt does."""
        return self.mode is MergeMode.COMPATIBLE

    @property
    def key(self) -> Any:
        """The cache key of a merge, apart from the files."""
        policy = self.policy
        # The order of field patterns matters, so they are no set.
        named = tuple(policy.fields.items()), tuple(policy.places.items())
        return self.mode, policy.default, *named, self.schemas_key


def schemas_of(trees: tuple[Files, ...], cache: MergeCache) -> tuple[Schemas, tuple[str, ...]]:
    """Return the schemas of the CRDs of a package and their cache key; later trees override earlier ones."""
    files = {file.oid: file for tree in trees for file in tree.values() if _CRD in file.data}
    key = tuple(files)
    if not key:
        return Schemas(), key
    return cache.result(("schemas", key), lambda: Schemas(crd_shapes(_values(files.values())))), key


def _values(files: Any) -> Any:
    for file in files:
        try:
            documents = load_documents(file.data)
        except YamlError:
            continue
        yield from (document.value for document in documents)
