"""Parse one file of manifests into Kubernetes objects with their positions, isolating broken documents."""

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.values import PartlyCompared
from reconciler.inventory.inventory import FieldPath
from reconciler.krm.yaml import Document, DocumentSource, YamlError, YamlLimits, load_documents
from reconciler.names.problems import Problem, defect_problem
from reconciler.policy import Limits

_SEPARATOR = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_DUPLICATE = re.compile(r"Key .* is set twice in ", re.DOTALL)
_LINE = re.compile(r"([ \t]*)([A-Za-z]+):[ \t]*[\"']?([^\s\"'#]*)")


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
    """Yield the object of a document, or the items of its list."""
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
