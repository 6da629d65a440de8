"""The words of editing: what to change in a document, as data.

Edits are applied in order, each to the result of the ones before it. Every path names a
field by typed keys and indexes, as `Document.mark` does.
"""

from dataclasses import dataclass
from typing import Any

from reconciler.krm.yaml.marks import Path


@dataclass(frozen=True, slots=True)
class SetValue:
    """Set the value at `path`, keeping its quotes, anchor and comments; add it, with its parents, if absent.

    A string put in place of a quoted or block scalar takes that style if it can.
    """

    path: Path
    value: Any


@dataclass(frozen=True, slots=True)
class AddKey:
    """Add `key` to the mapping at `path` (an absent or null value counts as an empty mapping).

    It stands before the key `before`, or after the key `after`, or last. With a `Raw` value,
    `key` must be the key that the raw text has.
    """

    path: Path
    key: str
    value: Any
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Delete the key at `path` with its own comments; a mapping that loses its only key becomes `{}`."""

    path: Path


@dataclass(frozen=True, slots=True)
class InsertItem:
    """Insert an item into the sequence at `path` so that it gets `index`; the length appends.

    An absent or null value counts as an empty sequence.
    """

    path: Path
    index: int
    value: Any


@dataclass(frozen=True, slots=True)
class DeleteItem:
    """Delete the item at `path` with its own comments; a sequence that loses its only item becomes `[]`."""

    path: Path


@dataclass(frozen=True, slots=True)
class SetLineComment:
    """Set the comment at the end of a field's line (of the key's line, for a block collection).

    `text` is one line with or without its `#`; None removes the comment.
    """

    path: Path
    text: str | None


@dataclass(frozen=True, slots=True)
class SetHeadComment:
    """Set the comment lines directly above a key or item; None removes them.

    Lines may come with or without their `#`.
    """

    path: Path
    text: str | None


Edit = SetValue | AddKey | DeleteKey | InsertItem | DeleteItem | SetLineComment | SetHeadComment


@dataclass(frozen=True, slots=True)
class EditResult:
    """An edited document's text, and how often (0 or 1) splicing had to give way to ruamel.yaml."""

    text: str
    fallbacks: int = 0
