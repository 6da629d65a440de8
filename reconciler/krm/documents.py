"""Split package files into documents that join to the same bytes.

A document is *KRM* if it names an object (or is a kustomization), *data* if it is other YAML, *empty*
if it has only comments. A file that is not YAML, such as a Helm template, is one *opaque* document:
it is kept byte for byte and never edited.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    Edit,
    Tree,
    YamlError,
    YamlLimits,
    apply_edits,
    decode,
)


class DocumentKind(StrEnum):
    """Kind of a document of a package file."""

    KRM = "krm"
    DATA = "data"
    EMPTY = "empty"
    OPAQUE = "opaque"


class ResourceId(NamedTuple):
    """Version, kind and name of a resource; empty strings for absent fields."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PackageDocument:
    """One document: its `---` line (or ""), its text, and its value.

    `resource` is set if apiVersion and kind are; `line` is the line, from 1, where the text starts in
    the file. `tree` has the nodes of the text, unless it is empty, opaque or has a byte order mark.
    """

    marker: str
    text: str
    kind: DocumentKind
    value: Any = field(default=None, repr=False)
    resource: ResourceId | None = None
    line: int = 1
    tree: Tree | None = field(default=None, repr=False, compare=False)

    @property
    def is_sops(self) -> bool:
        """Whether the document is encrypted by SOPS: its MAC covers all fields, so it merges as a whole."""
        sops = self.value.get("sops") if isinstance(self.value, dict) else None
        return isinstance(sops, dict) and ("mac" in sops or "version" in sops)

    @property
    def is_sealed_secret(self) -> bool:
        """Whether the document is a SealedSecret: its encryptedData is merged key by key."""
        resource = self.resource
        return resource is not None and (resource.group, resource.kind) == ("bitnami.com", "SealedSecret")


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file of a package as documents; `problem` is the error of an opaque file."""

    documents: tuple[PackageDocument, ...]
    bom: bytes = b""
    encoding: str = "utf-8"
    problem: YamlError | None = field(default=None, compare=False)

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        text = "".join(document.marker + document.text for document in self.documents)
        return self.bom + text.encode(self.encoding, "surrogateescape")

    def with_documents(self, documents: Iterable[PackageDocument]) -> Self:
        """Return the file with other documents."""
        return replace(self, documents=tuple(documents))

    def edit(self, index: int, edits: Iterable[Edit], path: str = "") -> tuple[Self, int]:
        """Return the file with one edited document, and the number of fallbacks (0 or 1).

        Raises:
            YamlError: As `apply_edits`, or the document is opaque.
        """
        document = self.documents[index]
        if document.kind is DocumentKind.OPAQUE:
            raise YamlError("The file is not YAML and is kept as it is")
        result = apply_edits(document.text, edits)
        new = _document(document.marker, result.text, document.line, path, PACKAGE_LIMITS)
        return self.with_documents(
            (*self.documents[:index], new, *self.documents[index + 1 :])
        ), result.fallbacks


def split_file(data: bytes, path: str = "", limits: YamlLimits = PACKAGE_LIMITS) -> PackageFile:
    """Split a file into documents. Total: a file that is not YAML is one opaque document, with its error.

    `path` is only needed to detect kustomizations by the name of the file.

    Source: kyaml kio/byteio_reader.go, splitDocuments.
    Differs: kyaml also splits at `---text`, which is content in YAML, and turns CRLF into LF.
    """
    try:
        text, encoding, bom = decode(data, limits)
        chunks = _split(text)
        documents = tuple(_document(chunk.marker, chunk.text, chunk.line, path, limits) for chunk in chunks)
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


def _split(text: str) -> list[_Chunk]:
    """Split before every `---` line; directives stay with the document below them."""
    starts = [0, *(match.start() for match in _BOUNDARY.finditer(text) if match.start())]
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


def _document(marker: str, text: str, line: int, path: str, limits: YamlLimits) -> PackageDocument:
    try:
        tree = Tree.parse(text, limits)
        value = tree.value
    except YamlError as error:
        where = error.line + line - 1 if error.line else 0
        raise YamlError(error.message, line=where, column=error.column, hint=error.hint) from error
    if tree.raw is None:
        return PackageDocument(marker, text, DocumentKind.EMPTY, line=line)
    resource = _identify(value)
    krm = (resource is not None and bool(resource.name)) or _is_kustomization(value, path)
    nodes = tree if tree.text == text else None
    return PackageDocument(
        marker, text, DocumentKind.KRM if krm else DocumentKind.DATA, value, resource, line, nodes
    )


def _identify(value: Any) -> ResourceId | None:
    if not isinstance(value, dict):
        return None
    api_version, kind = _text(value.get("apiVersion")), _text(value.get("kind"))
    if not api_version or not kind:
        return None
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return ResourceId(api_version, kind, _text(metadata.get("namespace")), _text(metadata.get("name")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_KUSTOMIZATION_FILES: Final = frozenset(("kustomization.yaml", "kustomization.yml", "Kustomization"))


def _is_kustomization(value: Any, path: str) -> bool:
    if not isinstance(value, dict):
        return False
    api_version = _text(value.get("apiVersion"))
    return (
        path.rpartition("/")[2] in _KUSTOMIZATION_FILES
        or api_version.startswith("kustomize.config.k8s.io/")
        or (not api_version and value.get("kind") == "Kustomization")
    )
