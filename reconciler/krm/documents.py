"""Split package files into documents that join to the same bytes.

A document is *KRM* if it names an object, *kustomize* if it is a kustomization, *data* if it is other YAML,
*empty* if it has only comments. A file that is not YAML, such as a Helm template, is one *opaque* document:
it is kept byte for byte and never edited.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import replace

from reconciler.base.values import PartlyCompared
from reconciler.base.wording import plural
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    Tree,
    YamlError,
    YamlLimits,
    decode,
)


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


_BOUNDARY: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARKER: Final = re.compile(r"---[ \t]*(?:#[^\n]*)?(?:\n|\r\n|\Z)")
_DIRECTIVES: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*%")


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
    """Return whether a document is read by kustomize: functions would break it with fields of objects."""
    api_version = _text(value.get("apiVersion"))
    return (
        api_version.startswith("kustomize.config.k8s.io/")
        or (not api_version and value.get("kind") == "Kustomization")
        or (path.rpartition("/")[2] in _KUSTOMIZATION_FILES and not _names_object(value))
    )
