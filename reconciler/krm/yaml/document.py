"""A loaded document: its value, and the position of each field."""

from dataclasses import dataclass, field
from typing import Any

from reconciler.krm.yaml.marks import Path, Source


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file: its value, and on demand where each field of it stands.

    `value` is made of dict, list, str, int, float, bool and None. `line` is the first line of
    the document's content in the file, from 1.
    """

    value: Any
    line: int
    source: Source = field(repr=False, compare=False)

    def mark(self, path: Path = ()) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path`, else of its nearest ancestor there is."""
        return self.source.mark(path)

    def mark_inside(self, path: Path, offset: int) -> tuple[int, int]:
        """Return line and column, from 1, of the character at `offset` of the text at `path`."""
        return self.source.mark_inside(path, offset)

    def key_mark(self, path: Path) -> tuple[int, int]:
        """Return line and column, from 1, of the key at `path`; of an item or an absent field, as `mark`."""
        return self.source.mark(path, of_key=True)
