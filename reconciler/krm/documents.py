"""Split package files into documents that join to the same bytes; edit them one by one.

A document is *KRM* if it names an object, *kustomize* if it is a kustomization, *data* if it is other YAML,
*empty* if it has only comments. A file that is not YAML, such as a Helm template, is one *opaque* document:
it is kept byte for byte and never edited.
"""

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.lazy import regex
from reconciler.base.text import plural
from reconciler.base.values import PartlyCompared
from reconciler.krm.merge import Identity, TextFormat, child, identity_of, root_of
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    Edit,
    Tree,
    YamlError,
    YamlLimits,
    apply_edits,
    decode,
    end_line,
)
from reconciler.names.objects import File, Mode


class DocumentKind(StrEnum):
    """Kind of a document of a package file."""

    KRM = "krm"
    KUSTOMIZE = "kustomize"
    DATA = "data"
    EMPTY = "empty"
    OPAQUE = "opaque"


class PackageDocument(PartlyCompared, frozen=True):
    """One document: its `---` line (or ""), its text, and its value.

    `tree` has the nodes of the text, unless it is empty, opaque or has a byte order mark.
    """

    UNCOMPARED = frozenset({"tree"})

    marker: str
    text: str
    kind: DocumentKind
    value: Any = None
    tree: Tree | None = None


class PackageFile(PartlyCompared, frozen=True):
    """A file of a package as documents; `problem` is the error of an opaque file."""

    UNCOMPARED = frozenset({"problem"})

    documents: tuple[PackageDocument, ...]
    bom: bytes = b""
    encoding: str = "utf-8"
    problem: YamlError | None = None

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        text = "".join(document.marker + document.text for document in self.documents)
        return self.bom + text.encode(self.encoding, "surrogateescape")

    @property
    def is_mergeable(self) -> bool:
        """Whether documents can move in the file: it is YAML in UTF-8, without a directive or `---text`."""
        is_free = (
            document.kind is DocumentKind.EMPTY or document.tree is not None for document in self.documents
        )
        tied = (_TIED.search(document.text) for document in self.documents)
        return self.problem is None and self.encoding == "utf-8" and all(is_free) and not any(tied)

    def with_documents(self, documents: Iterable[PackageDocument]) -> Self:
        """Return the file with other documents."""
        return replace(self, documents=tuple(documents))


def split_file(data: bytes, path: str = "", limits: YamlLimits = PACKAGE_LIMITS) -> PackageFile:
    """Split a file into documents. Total: a file that is not YAML is one opaque document, with its error.

    `path` is only needed to detect kustomizations by the name of the file.

    Source: kyaml kio/byteio_reader.go, splitDocuments.
    Differs: kyaml also splits at `---text`, which is content in YAML, and turns CRLF into LF.
    """
    try:
        text, encoding, bom = decode(data, limits)
        documents = tuple(_document(chunk, path, limits) for chunk in _split(text, limits.max_documents))
    except YamlError as error:
        whole = PackageDocument("", data.decode("utf-8", "surrogateescape"), DocumentKind.OPAQUE)
        return PackageFile((whole,), problem=error)
    return PackageFile(documents, bom, encoding)


class _Chunk(NamedTuple):
    marker: str
    text: str
    line: int


_BOUNDARY: Final = regex(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARKER: Final = regex(r"^---[ \t]*(?:#[^\n]*)?(?:\n|\r\n|\Z)", re.MULTILINE)
_NOTHING: Final = regex(r"(?:(?:[ \t]*(?:#[^\r\n]*)?|\.\.\.[ \t]*)(?:\r?\n|\Z))*")
_TIED: Final = regex(r"^(?:%|---)", re.MULTILINE)
"""A directive, or content on a marker line: it ties a document to its place in the file."""
_DIRECTIVES: Final = regex(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*%")


def _split(text: str, most: int) -> list[_Chunk]:
    """Split before every `---` line; directives stay with the document below them."""
    starts = [0, *(match.start() for match in _BOUNDARY.finditer(text) if match.start())]
    if len(starts) > most:
        raise YamlError(f"The file has more than {plural(most, 'document')}")
    chunks: list[_Chunk] = []
    directives = 0  # length of the directives in front of the current document
    line = 1
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        begin = start - directives
        piece = text[begin:end]
        if _DIRECTIVES.match(piece) and not directives and end < len(text):
            directives = end - begin
            continue
        match = _MARKER.match(piece)
        marker = match[0] if match else ""
        chunks.append(_Chunk(marker, piece[len(marker) :], line + marker.count("\n")))
        line += piece.count("\n")
        directives = 0
    return chunks


def _document(chunk: _Chunk, path: str, limits: YamlLimits) -> PackageDocument:
    if _NOTHING.fullmatch(chunk.text):  # the parser takes an end alone for a mistake
        return PackageDocument(chunk.marker, chunk.text, DocumentKind.EMPTY)
    try:
        tree = Tree.parse(chunk.text, limits)
        value = tree.value
    except YamlError as error:
        line = error.line + chunk.line - 1 if error.line else 0
        raise YamlError(error.message, line=line, column=error.column, hint=error.hint) from error
    if tree.raw is None:
        return PackageDocument(chunk.marker, chunk.text, DocumentKind.EMPTY)
    kind = DocumentKind.DATA
    if isinstance(value, dict):
        if _is_kustomization(value, path):
            kind = DocumentKind.KUSTOMIZE
        elif _names_object(value):
            kind = DocumentKind.KRM
    return PackageDocument(chunk.marker, chunk.text, kind, value, tree if tree.text == chunk.text else None)


def _names_object(value: dict[str, Any]) -> bool:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return bool(_text(value.get("apiVersion")) and _text(value.get("kind")) and _text(name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_KUSTOMIZATION_FILES: Final = frozenset(("kustomization.yaml", "kustomization.yml", "Kustomization"))


def _is_kustomization(value: dict[str, Any], path: str) -> bool:
    api_version = _text(value.get("apiVersion"))
    return (
        api_version.startswith("kustomize.config.k8s.io/")
        or (not api_version and value.get("kind") == "Kustomization")
        or (path.rpartition("/")[2] in _KUSTOMIZATION_FILES and not _names_object(value))
    )


class ResourceDocument(Struct, frozen=True, eq=False):
    """A document with content, the text between it and the one before, and the merge comment of its metadata.

    `index` is its number in the file, `ordinal` its number among the documents of its identity, both from 0.
    """

    tree: Tree
    data: Any
    identity: Identity
    index: int
    ordinal: int
    comment: str
    above: str
    """Marker lines, and documents without content."""

    @property
    def text(self) -> str:
        """The document's own text, without the marker line before it."""
        return self.tree.text


_PLAIN: Final = TextFormat()


class ResourceFile(Struct, frozen=True, eq=False):
    """A file for a merge: its documents with content, the text below the last one, and its format.

    All texts have line feeds.
    """

    documents: tuple[ResourceDocument, ...]
    below: str = ""
    format: TextFormat = _PLAIN

    @property
    def between(self) -> str:
        """The text that belongs to no resource."""
        return "".join(document.above for document in self.documents) + self.below


def resources_in(file: File) -> ResourceFile | None:
    """Return the documents of a file for a merge; None if it is no YAML, or could not be joined again."""
    if file.mode == Mode.SYMLINK:
        return None
    try:
        form, text = TextFormat.split(file.data.decode())
    except UnicodeDecodeError:
        return None
    split = split_file(text.encode())
    if not split.is_mergeable:
        return None
    documents: list[ResourceDocument] = []
    ordinals: Counter[Identity] = Counter()
    above = ""
    for document in split.documents:
        above += document.marker
        root = root_of(document.tree) if document.tree is not None else None
        if document.tree is None or root is None:
            above += document.text
            continue
        metadata = child(root, "metadata")
        # kpt's merge comment is on the line of `metadata`, and names the resource as upstream has it.
        comment = metadata.line_comment if metadata is not None and "kpt-merge" in document.text else ""
        identity = identity_of(root, comment)
        ordinal = ordinals[identity]
        ordinals[identity] += 1
        documents.append(
            ResourceDocument(document.tree, document.value, identity, len(documents), ordinal, comment, above)
        )
        above = ""
    return ResourceFile(tuple(documents), above, form)


def documents_of(file: File) -> tuple[ResourceDocument, ...]:
    """Return the documents of a file for a merge; none where it is not mergeable."""
    split = resources_in(file)
    return split.documents if split is not None else ()


def join_documents(pieces: Iterable[tuple[str, str]], below: str = "", form: TextFormat = _PLAIN) -> bytes:
    """Return the bytes of a file made of documents, each with the text above it; markers are added."""
    joined = ""
    for above, text in pieces:
        if joined:
            joined = end_line(joined)
            above = above if _MARKER.search(above) else f"{end_line(above)}---\n"  # noqa: PLW2901
        joined += above + text
    return form.joined((end_line(joined) if below else joined) + below).encode()


def edit_document(file: File, edits: Iterable[Edit], *, index: int = 0) -> File:
    """Return a file with one document edited; the same file if nothing changes.

    `index` counts the documents with content. Works for files too that are not mergeable.

    Raises:
        YamlError: The file is no YAML, or an edit cannot be expressed in it.
    """
    edits = tuple(edits)
    if not edits:
        return file
    split = split_file(file.data)
    if split.problem is not None:
        raise split.problem
    filled = [number for number, doc in enumerate(split.documents) if doc.kind is not DocumentKind.EMPTY]
    if index >= len(filled):
        raise YamlError(f"There is no document number {index + 1}")
    documents = list(split.documents)
    document = documents[filled[index]]
    documents[filled[index]] = replace(document, text=apply_edits(document.text, edits).text)
    data = split.with_documents(documents).data
    return file if data == file.data else File.of(data, file.mode)
