"""Split a file into its resource documents, join, edit and list them without losing a byte."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from reconciler.api.kptfile import KPTFILE
from reconciler.krm.merge import Identity, child, identity_of, root_of
from reconciler.krm.yaml import PACKAGE_LIMITS, Edit, Tree, YamlError, apply_edits, end_line
from reconciler.names.objects import File, Files, Mode

_MARKER: Final = re.compile(r"^---[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z)", re.MULTILINE)
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^(?:%|---[ \t]*[^\s#])", re.MULTILINE)


class ResourceDocument(Struct, frozen=True, eq=False):
    """A document with content, and the merge comment of its metadata.

    `index` is its number in the file, `ordinal` its number among the documents of its identity, both from 0.
    """

    tree: Tree
    data: Any
    identity: Identity
    index: int
    ordinal: int
    comment: str

    @property
    def text(self) -> str:
        """The document's own text, without the marker line before it."""
        return self.tree.text


class ResourceFile(Struct, frozen=True, eq=False):
    """A file of resources: all its text as (marker line, text, document or None if empty)."""

    chunks: tuple[tuple[str, str, ResourceDocument | None], ...]
    byte_order_mark: str = ""

    @property
    def documents(self) -> tuple[ResourceDocument, ...]:
        """The documents with content, in order."""
        return tuple(document for _, _, document in self.chunks if document is not None)


def split_documents(file: File) -> ResourceFile | None:
    """Return the documents of a file; None if it is no YAML, or could not be joined again."""
    if file.mode == Mode.SYMLINK or len(file.data) > PACKAGE_LIMITS.max_bytes:
        return None
    try:
        text = file.data.decode()
    except UnicodeDecodeError:
        return None
    # A byte order mark belongs to the file, not to its first document, which may move.
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(mark)
    # A directive, or content on the marker line, ties a document to its place in the file.
    if _DIRECTIVE.search(text) is not None:
        return None
    try:
        return ResourceFile(tuple(_chunks(text)), mark)
    except YamlError:
        return None


def documents_of(file: File) -> tuple[ResourceDocument, ...]:
    """Return the documents of a file, none if it is no YAML."""
    split = split_documents(file)
    return split.documents if split is not None else ()


def join_documents(pieces: Sequence[tuple[str, str]], *, mark: str = "", line_break: str = "\n") -> bytes:
    """Return the bytes of a file made of (marker line, text) pieces; missing markers are added."""
    parts = [mark]
    for place, (marker, text) in enumerate(pieces):
        if place and not marker:
            marker = f"---{line_break}"  # noqa: PLW2901 - a document after another one needs a marker
        if place:
            parts[-1] = end_line(parts[-1], line_break)
        parts += [marker, text]
    return "".join(parts).encode()


def _chunks(text: str) -> list[tuple[str, str, ResourceDocument | None]]:
    chunks: list[tuple[str, str, ResourceDocument | None]] = []
    ordinals: dict[Identity, int] = {}
    marker, start, index = "", 0, 0
    ends = [(match.start(), match.end(), match.group()) for match in _MARKER.finditer(text)]
    for end, after, next_marker in [*ends, (len(text), len(text), "")]:
        body = text[start:end]
        if marker or body:
            document = _parse(body, index, ordinals)
            index += document is not None
            chunks.append((marker, body, document))
        marker, start = next_marker, after
    return chunks


def _parse(body: str, index: int, ordinals: dict[Identity, int]) -> ResourceDocument | None:
    tree = Tree.parse(body)
    root = root_of(tree)
    if root is None:
        return None
    data = tree.value
    metadata = child(root, "metadata")
    comment = metadata.comments.line if metadata is not None and "kpt-merge" in body else ""
    identity = identity_of(root, comment)
    ordinal = ordinals.get(identity, 0)
    ordinals[identity] = ordinal + 1
    return ResourceDocument(tree, data, identity, index, ordinal, comment)


def edit_document(file: File, edits: Iterable[Edit], *, index: int = 0) -> File:
    """Return a file with one document edited; the same file if nothing changes.

    `index` counts the documents with content. Works for files too that `split_documents` does not split.

    Raises:
        YamlError: The file is no YAML, or an edit cannot be expressed in it.
    """
    edits = tuple(edits)
    if not edits:
        return file
    text = file.data.decode()
    start, end = _span(text, index)
    edited = apply_edits(text[start:end], edits).text
    data = (text[:start] + edited + text[end:]).encode()
    return file if data == file.data else File.of(data, file.mode)


def _span(text: str, index: int) -> tuple[int, int]:
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    spans = [(start, end) for start, end in zip(starts, ends, strict=True) if _has_content(text[start:end])]
    if index >= len(spans):
        raise YamlError(f"There is no document number {index + 1}")
    return spans[index]


def _has_content(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith(("#", "%")) and line != "..." for line in lines)


def list_package(name: str, files: Files) -> list[str]:
    """Return one line per file, sub-package and resource, indented by depth.

    Total: a file that is no YAML is listed by its name alone.
    """
    return [f"Package {name}", *_list_directory(files, "")]


def package_contents(files: Files) -> list[dict[str, object]]:
    """Return each file of a package with its sub-package and resources, as JSON values."""
    packages = {path.rpartition("/")[0] for path in files if path.rpartition("/")[2] == KPTFILE}
    return [
        {"path": path, "package": _package_of(path, packages), "resources": list(_identities(files, path))}
        for path in sorted(files)
    ]


def _package_of(path: str, packages: Collection[str]) -> str:
    """Return the directory of the innermost package that holds a file, "" for the package itself."""
    directory = path.rpartition("/")[0]
    while directory and directory not in packages:
        directory = directory.rpartition("/")[0]
    return directory


def _list_directory(files: Files, prefix: str) -> Iterator[str]:
    names = sorted({path.removeprefix(prefix).partition("/")[0] for path in files if path.startswith(prefix)})
    for place, name in enumerate(names):
        last = place == len(names) - 1
        branch, stem = ("└── ", "    ") if last else ("├── ", "│   ")
        path = prefix + name
        children = list(_list_resources(files, path) if path in files else _list_directory(files, f"{path}/"))
        kind = "Package " if f"{path}/{KPTFILE}" in files else ""
        yield f"{branch}{kind}{name}"
        yield from (stem + line for line in children)


def _list_resources(files: Files, path: str) -> Iterator[str]:
    yield from (f"[{identity}]" for identity in _identities(files, path))


def _identities(files: Files, path: str) -> Iterator[str]:
    if path.endswith((".yaml", ".yml")):
        yield from (str(document.identity) for document in documents_of(files[path]))
