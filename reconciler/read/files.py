"""Files of the control repository and of directories, and the manifests in them, isolating broken ones."""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import ConfigurationError, Location, UsageError
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.text import plural
from reconciler.base.values import PartlyCompared
from reconciler.functions.field_checks import check_kptfiles
from reconciler.git.repository import Mirror
from reconciler.git.trees import UnsafeEntry
from reconciler.inventory.inventory import FieldPath
from reconciler.krm.yaml import Document, DocumentSource, YamlError, YamlLimits, load_documents
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Mode, TreeEntry
from reconciler.names.problems import Problem, defect_problem
from reconciler.policy import Limits

REGULAR = frozenset({Mode.REGULAR, Mode.EXECUTABLE})

LEFT_OUT: Final = "a bug of the reconciler broke the reading of it"


class FileEntry(NamedTuple):
    """A file: its path from the repository's root, its blob, and the directory of its package, if any."""

    path: str
    oid: Oid
    package: str | None = None


class UnreadPath(NamedTuple):
    """A path that was not read, and why: its content is unknown, not absent."""

    path: str
    why: str


class Walk(Struct, frozen=True):
    """Lists the files with some suffixes, outside hidden and skipped directories."""

    suffixes: tuple[str, ...]
    skipped: frozenset[str] = frozenset()
    depth: int = 50

    def below(self, objects: Mirror, tree: Oid, path: str) -> Iterator[FileEntry | UnreadPath]:
        """Yield the files below the directory `path` with this tree. Links are never followed."""
        yield from self._below(objects, tree, path, None)

    def _below(
        self, objects: Mirror, tree: Oid, path: str, package: str | None
    ) -> Iterator[FileEntry | UnreadPath]:
        # Hidden files and directories, as .github, are never inputs.
        entries = [e for e in objects.checked_entries(tree) if not e.name.startswith(".")]
        kptfiles = (e for e in entries if isinstance(e, TreeEntry) and e.name == KPTFILE)
        if package is None and any(kptfile.mode in REGULAR for kptfile in kptfiles):
            package = path
        for entry in entries:
            full = f"{path}/{entry.name}" if path else entry.name
            if isinstance(entry, UnsafeEntry):
                yield UnreadPath(full, entry.reason)
            elif entry.mode == Mode.SYMLINK:
                yield UnreadPath(full, "it is a symbolic link")
            elif entry.mode in REGULAR and entry.name.endswith(self.suffixes):
                yield FileEntry(full, entry.oid, package)
            elif entry.mode == Mode.TREE and full not in self.skipped:
                if full.count("/") >= self.depth:
                    yield UnreadPath(full, f"it is deeper than {plural(self.depth, 'directory')}")
                else:
                    yield from self._below(objects, entry.oid, full, package)


def fetch_files(
    objects: Mirror, commit: Oid | None, directory: str, suffixes: tuple[str, ...] = (".json",)
) -> list[FileEntry]:
    """Return the files below a directory of a commit, fetched; unread paths are skipped."""
    return fetch_paths(objects, commit, directory, Walk(suffixes))[0]


def fetch_paths(
    objects: Mirror, commit: Oid | None, directory: str, walk: Walk
) -> tuple[list[FileEntry], list[UnreadPath]]:
    """Return the files below a directory of a commit, fetched, and the paths that were not read."""
    tree = objects.subtree(commit, directory) if commit else None
    walked = list(walk.below(objects, tree, directory)) if tree else []
    files = [file for file in walked if isinstance(file, FileEntry)]
    objects.ensure(file.oid for file in files)
    return files, [path for path in walked if isinstance(path, UnreadPath)]


def is_below(path: str, directory: str) -> bool:
    """Tell whether `path` is `directory` or inside it; "" is the root."""
    return not directory or path == directory or path.startswith(f"{directory}/")


def read_directory(root: Path, limits: Limits = Limits()) -> dict[str, File]:  # noqa: B008 - a frozen value
    """Return the files below `root` with their modes; `.git` is left out.

    Symbolic links that stay within the package are kept as links and never followed.

    Raises:
        UsageError: `root` is not a directory.
        ConfigurationError: A link leads out of the package, a file is not regular, or a limit is exceeded.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory", hint="Name the directory of a package.")
    files: dict[str, File] = {}
    size = 0
    for path, entry in _entries(root, "", limits):
        if len(files) >= limits.package_files:
            raise _refused(path, f"the package has more than {plural(limits.package_files, 'file')}")
        files[path] = _read(path, entry, limits)
        size += len(files[path].data)
        if size > limits.package_bytes:
            raise _refused(path, f"the package has more than {plural(limits.package_bytes, 'byte')}")
    return files


def read_package(root: Path, *, needs_kptfile: bool = True) -> dict[str, File]:
    """Return the files of a package, as `read_directory`, once its Kptfiles can be read.

    An upstream needs no Kptfile: kpt gets and updates any directory.

    Raises:
        UsageError: `root` is not a directory.
        ConfigurationError: It has no Kptfile, one of its Kptfiles is none, or see `read_directory`.

    Source: kpt pkg/lib/kptops, pkg.ReadKptfile: the same errors, with file and line.
    """
    files = read_directory(root)
    kptfiles = sorted(path for path in files if path.rpartition("/")[2] == KPTFILE)
    if needs_kptfile and KPTFILE not in kptfiles:
        below = ", ".join(str(root / path.removesuffix(f"/{KPTFILE}")) for path in kptfiles[:3])
        hint = f"Name the directory of a package{f', as {below}' if below else ': one with a Kptfile'}."
        raise ConfigurationError(f"No Kptfile found at {root.absolute()}", hint=hint)
    if faults := check_kptfiles(files):
        first, *others = (
            fault._replace(location=fault.location._replace(path=str(root / fault.location.path)))
            for fault in faults
        )
        more = "".join(f"; {fault.location}: {fault.message}" for fault in others)
        raise ConfigurationError(f"{first.message}{more}", location=first.location, hint=first.hint)
    return files


def _entries(directory: Path, prefix: str, limits: Limits) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > limits.path_depth:
        raise _refused(prefix, f"the package is deeper than {plural(limits.path_depth, 'directory')}")
    with os.scandir(directory) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        if entry.name == ".git":
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path), f"{path}/", limits)
        else:
            yield path, entry


def _read(path: str, entry: os.DirEntry[str], limits: Limits) -> File:
    if entry.is_symlink():
        target = os.readlink(entry.path)  # noqa: PTH115 - as it is written, not normalised
        if not stays_inside(path, target):
            raise _refused(path, f"the link leads out of the package, to {target}")
        return File.of(os.fsencode(target), Mode.SYMLINK)
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "it is neither a file nor a directory nor a link")
    if status.st_size > limits.package_file_bytes:
        raise _refused(
            path, f"it has {plural(status.st_size, 'byte')}; the limit is {limits.package_file_bytes}"
        )
    executable = bool(status.st_mode & stat.S_IXUSR)
    return File.of(Path(entry.path).read_bytes(), Mode.EXECUTABLE if executable else Mode.REGULAR)


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link at `path` with this target stays within its package."""
    if target.startswith("/") or not target:
        return False
    depth = len(PurePosixPath(path).parts) - 1
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True


def _refused(path: str, message: str) -> ConfigurationError:
    return ConfigurationError(message, location=Location(path))


_SEPARATOR = regex(rb"^---(?=\s|$)", re.MULTILINE)
_DUPLICATE = regex(r"Key .* is set twice in ", re.DOTALL)
_LINE = regex(r"([ \t]*)([A-Za-z]+):[ \t]*[\"']?([^\s\"'#]*)")


class ClaimedIdentity(NamedTuple):
    """The identity in a document that is not valid YAML; unknown parts are empty."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""


class SourcePosition(PartlyCompared, frozen=True):
    """Position of one object: its file, the text and first line of its document, its path in a list.

    `lines_above` are above the document. The value of the document is not held: it would live with the text.
    """

    UNCOMPARED = frozenset({"text", "line"})

    path: str
    text: DocumentSource
    line: int
    prefix: FieldPath = ()
    lines_above: int = 0

    def mark(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path` or of its nearest ancestor that exists."""
        line, column = self.text.mark((*self.prefix, *path))
        return line + self.lines_above, column

    def mark_inside(self, path: FieldPath, offset: int) -> tuple[int, int]:
        """Return line and column, from 1, of the character at `offset` of the text at `path`."""
        line, column = self.text.mark_inside((*self.prefix, *path), offset)
        return line + self.lines_above, column

    def key_mark(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 1, of the key at `path`."""
        line, column = self.text.key_mark((*self.prefix, *path))
        return line + self.lines_above, column

    @property
    def location(self) -> Location:
        """The object's first line."""
        if self.prefix:
            return Location(self.path, self.mark(())[0])
        return Location(self.path, self.line + self.lines_above)


class ParsedObject(NamedTuple):
    """One object of a file, with the apiVersion and kind of a typed list filled in."""

    value: Any
    place: SourcePosition


class BrokenDocument(NamedTuple):
    """A document that is not valid YAML: the problem, and its guessed identity."""

    problem: Problem
    identity: ClaimedIdentity


class FileContent(Struct, frozen=True):
    """The objects of a file, in order, and its broken documents."""

    objects: tuple[ParsedObject, ...] = ()
    broken: tuple[BrokenDocument, ...] = ()


def yaml_limits(limits: Limits) -> YamlLimits:
    """Return the limits of one manifest file."""
    return YamlLimits(
        max_bytes=limits.manifest_bytes,
        max_documents=limits.yaml_documents,
        max_nodes=limits.yaml_nodes,
        max_depth=limits.yaml_depth,
    )


def parse_file(path: str, data: bytes, limits: YamlLimits) -> FileContent:
    """Return the objects of a file; a broken document does not affect the others. Total."""
    try:
        with guard(path):
            return _parse_file(path, data, limits)
    except DefectError as error:
        chunks = list(_chunks(data))
        if sum(not chunk.isspace() for chunk in chunks) <= 1:
            broken = BrokenDocument(defect_problem(error, Location(path)), guess_identity(data))
            return FileContent(broken=(broken,))
        # Each document by itself, below as many empty lines as are above it.
        above = accumulate((chunk.count(b"\n") for chunk in chunks), initial=0)
        parts = [
            parse_file(path, b"\n" * lines + chunk, limits)
            for lines, chunk in zip(above, chunks, strict=False)
        ]
        objects = tuple(item for part in parts for item in part.objects)
        return FileContent(objects, tuple(document for part in parts for document in part.broken))


def _parse_file(path: str, data: bytes, limits: YamlLimits) -> FileContent:
    try:
        documents = load_documents(data, limits)
    except YamlError as error:
        return _parse_apart(path, data, limits, error)
    return FileContent(tuple(o for document in documents for o in _objects(path, document)))


def _parse_apart(path: str, data: bytes, limits: YamlLimits, error: YamlError) -> FileContent:
    """Parse the documents of a broken file one by one, if the error has a position."""
    chunks = list(_chunks(data))
    if not error.line or len(data) > limits.max_bytes or len(chunks) > limits.max_documents:
        return FileContent(broken=(_broken(path, data, 0, error),))
    objects: list[ParsedObject] = []
    broken: list[BrokenDocument] = []
    lines_above = 0
    for chunk in chunks:
        try:
            for document in load_documents(chunk, limits):
                objects += _objects(path, document, lines_above)
        except YamlError as chunk_error:
            broken.append(_broken(path, chunk, lines_above, chunk_error))
        lines_above += chunk.count(b"\n")
    return FileContent(tuple(objects), tuple(broken) or (_broken(path, data, 0, error),))


def _chunks(data: bytes) -> Iterator[bytes]:
    # A separator in the first line begins no second document.
    starts = [0, *(m.start() for m in _SEPARATOR.finditer(data) if m.start()), len(data)]
    yield from (data[a:b] for a, b in pairwise(starts))


def _broken(path: str, chunk: bytes, lines_above: int, error: YamlError) -> BrokenDocument:
    where = Location(path, error.line + lines_above if error.line else 0, error.column)
    duplicate = _DUPLICATE.match(error.message) is not None
    reason = Reason.DUPLICATE_KEY if duplicate else Reason.INVALID_YAML
    hint = error.hint or ("Keep one of the two." if duplicate else "Check quotes, indentation and brackets.")
    return BrokenDocument(Problem(where, reason, error.message, hint), guess_identity(chunk))


def guess_identity(chunk: bytes) -> ClaimedIdentity:
    """Guess the identity of a broken document from the lines that still look like YAML."""
    fields: dict[str, str] = {}
    above, inside = "", ""
    for line in chunk.decode(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        indent, key, value = match.groups()
        if not indent:
            above, inside = key, ""
            fields.setdefault(key, value)
        elif above == "metadata" and indent == (inside := inside or indent):
            fields.setdefault(f"metadata.{key}", value)
    names = ("apiVersion", "kind", "metadata.namespace", "metadata.name")
    return ClaimedIdentity(*(fields.get(name, "") for name in names))


def _objects(path: str, document: Document, lines_above: int = 0) -> Iterator[ParsedObject]:
    place = SourcePosition(path, document.source, document.line, (), lines_above)
    value = document.value
    if not _is_list(value):
        yield ParsedObject(value, place)
        return
    # `kubectl get --raw` leaves apiVersion and kind out of the items of a typed list.
    kind = value["kind"].removesuffix("List")
    common = {"apiVersion": value.get("apiVersion"), "kind": kind} if kind else {}
    for index, item in enumerate(value["items"]):
        filled = {**common, **item} if isinstance(item, Mapping) else item
        yield ParsedObject(filled, replace(place, prefix=("items", index)))


def _is_list(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("items"), list)
        and isinstance(kind := value.get("kind"), str)
        and kind.endswith("List")
    )
