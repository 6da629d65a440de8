"""Split a file into its resource documents, join and edit them without losing a byte."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from reconciler.krm.merge import Identity, TextFormat, child, identity_of, root_of
from reconciler.krm.yaml import PACKAGE_LIMITS, Edit, Tree, YamlError, apply_edits, end_line
from reconciler.names.objects import File, Mode

_MARKER: Final = re.compile(r"^---[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z)", re.MULTILINE)
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^(?:%|---[ \t]*[^\s#])", re.MULTILINE)


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


class ResourceFile(Struct, frozen=True, eq=False):
    """A file of resources as its documents, the text below the last one, and its format.

    All texts have line feeds.
    """

    documents: tuple[ResourceDocument, ...]
    below: str = ""
    format: TextFormat = TextFormat()

    @property
    def between(self) -> str:
        """The text that belongs to no resource."""
        return "".join(document.above for document in self.documents) + self.below


def split_documents(file: File) -> ResourceFile | None:
    """Return the documents of a file; None if it is no YAML, or could not be joined again."""
    if file.mode == Mode.SYMLINK or len(file.data) > PACKAGE_LIMITS.max_bytes:
        return None
    try:
        text_format, text = TextFormat.split(file.data.decode())
    except UnicodeDecodeError:
        return None
    # A directive, or content on the marker line, ties a document to its place in the file.
    if _DIRECTIVE.search(text) is not None:
        return None
    try:
        return _split(text, text_format)
    except YamlError:
        return None


def documents_of(file: File) -> tuple[ResourceDocument, ...]:
    """Return the documents of a file, none if it is no YAML."""
    split = split_documents(file)
    return split.documents if split is not None else ()


_PLAIN = TextFormat()


def join_documents(pieces: Iterable[tuple[str, str]], below: str = "", form: TextFormat = _PLAIN) -> bytes:
    """Return the bytes of a file made of documents, each with the text above it; markers are added."""
    joined = ""
    for above, text in pieces:
        if joined:
            joined = end_line(joined)
            above = above if _MARKER.search(above) else f"{end_line(above)}---\n"  # noqa: PLW2901
        joined += above + text
    return form.joined((end_line(joined) if below else joined) + below).encode()


def _split(text: str, text_format: TextFormat) -> ResourceFile:
    documents: list[ResourceDocument] = []
    ordinals: Counter[Identity] = Counter()
    above = ""
    starts = [0, *(match.end() for match in _MARKER.finditer(text))]
    ends = [*(match.start() for match in _MARKER.finditer(text)), len(text)]
    for start, end, next_start in zip(starts, ends, [*starts[1:], len(text)], strict=True):
        tree = Tree.parse(text[start:end])
        root = root_of(tree)
        if root is None:
            above += text[start:next_start]
            continue
        data = tree.value
        metadata = child(root, "metadata")
        # kpt's merge comment is on the line of `metadata`, and names the resource as upstream has it.
        comment = metadata.line_comment if metadata is not None and "kpt-merge" in tree.text else ""
        identity = identity_of(root, comment)
        documents.append(
            ResourceDocument(tree, data, identity, len(documents), ordinals[identity], comment, above)
        )
        ordinals[identity] += 1
        above = text[end:next_start]
    return ResourceFile(tuple(documents), above, text_format)


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
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    spans = [(start, end) for start, end in zip(starts, ends, strict=True) if _has_content(text[start:end])]
    if index >= len(spans):
        raise YamlError(f"There is no document number {index + 1}")
    start, end = spans[index]
    edited = apply_edits(text[start:end], edits).text
    data = (text[:start] + edited + text[end:]).encode()
    return file if data == file.data else File.of(data, file.mode)


def _has_content(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith(("#", "%")) and line != "..." for line in lines)
