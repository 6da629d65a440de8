"""Files that many packages share, split once: variants of one blueprint differ in few of their files."""

from typing import Final

from reconciler.ids import Oid
from reconciler.krm.documents import PackageFile, split_file
from reconciler.objects import File

_MOST_TEXT: Final = 512 << 10
"""In bytes of the files that are kept; their nodes take some fifty times as much."""
_MOST_MET: Final = 1 << 16


class Shelf:
    """Split files by what is in them. What was met once only is not kept: it is not worth its memory.

    Transparent: with or without it, the same files give the same resources. What it hands out is
    shared, and must not be changed.
    """

    def __init__(self) -> None:
        self._met: set[tuple[Oid, str]] = set()
        self._kept: dict[tuple[Oid, str], PackageFile] = {}
        self._size = 0

    def split(self, file: File, path: str) -> PackageFile:
        """Return a file as `split_file` does."""
        key = (file.oid, path.rpartition("/")[2])
        known = self._kept.get(key)
        if known is not None:
            return known
        found = split_file(file.data, path)
        if key in self._met:
            self._keep(key, found, len(file.data))
        else:
            self._met = self._met if len(self._met) < _MOST_MET else set()
            self._met.add(key)
        return found

    def _keep(self, key: tuple[Oid, str], found: PackageFile, size: int) -> None:
        if size > _MOST_TEXT:
            return
        if self._size + size > _MOST_TEXT:
            self._kept, self._size = {}, 0
        self._kept[key] = found
        self._size += size
