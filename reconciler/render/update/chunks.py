"""A file as its documents: split and joined again without losing a byte."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler.krm.merge import Identity, identity_of, root_of
from reconciler.krm.yaml import PACKAGE_LIMITS, Tree, YamlError
from reconciler.objects import File, Mode

_MARKER: Final = re.compile(r"^---[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z)", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^(?:%|---[ \t]*[^\s#])", re.MULTILINE)


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One document with content. `index` counts those of its file from 0; `ordinal` those of its identity."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Chunked:
    """A file of resources: its documents, and all its text as (marker line, text, document or none)."""

    chunks: tuple[tuple[str, str, Document | None], ...]
    encoding_mark: str = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents with content, in order."""
        return tuple(document for _, _, document in self.chunks if document is not None)


def split_documents(file: File) -> Chunked | None:
    """Return a file's documents; None if it is no YAML that could be put together again."""
    if file.mode == Mode.SYMLINK or len(file.data) > PACKAGE_LIMITS.max_bytes:
        return None
    try:
        text = file.data.decode()
    except UnicodeDecodeError:
        return None
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(mark)
    if _DIRECTIVE.search(text) is not None:
        return None
    try:
        return Chunked(tuple(_chunks(text)), mark)
    except YamlError:
        return None


def join_chunks(pieces: Sequence[tuple[str, str]], *, mark: str = "", line_break: str = "\n") -> bytes:
    """Return the bytes of a file made of (marker line, text) pieces; markers are added where needed."""
    parts = [mark]
    for place, (marker, text) in enumerate(pieces):
        if place and not marker:
            marker = f"---{line_break}"  # noqa: PLW2901 - the marker that this place needs
        if place and parts[-1] and not parts[-1].endswith("\n"):
            parts.append(line_break)
        parts += [marker, text]
    return "".join(parts).encode()


def _chunks(text: str) -> list[tuple[str, str, Document | None]]:
    found: list[tuple[str, str, Document | None]] = []
    seen: dict[Identity, int] = {}
    marker, start, index = "", 0, 0
    ends = [(match.start(), match.end(), match.group()) for match in _MARKER.finditer(text)]
    for end, after, next_marker in [*ends, (len(text), len(text), "")]:
        body = text[start:end]
        if marker or body:
            document = _document(body, index, seen)
            index += document is not None
            found.append((marker, body, document))
        marker, start = next_marker, after
    return found


def _document(body: str, index: int, seen: dict[Identity, int]) -> Document | None:
    tree = Tree.parse(body)
    root = root_of(tree)
    if root is None:
        return None
    data = tree.value
    metadata = root.fields.get("metadata") if root.is_mapping else None
    comment = metadata.comments.line if metadata is not None and "kpt-merge" in body else ""
    identity = identity_of(root, comment)
    ordinal = seen.get(identity, 0)
    seen[identity] = ordinal + 1
    return Document(tree, data, identity, index, ordinal, comment)
