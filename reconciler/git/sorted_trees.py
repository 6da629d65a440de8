"""Trees that many commits change in one place each: an edit is a search and a copy, stored as a delta."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from reconciler.git.trees import RawEntry, parse_tree

_COPY = 0xFF
_LARGEST_COPY, _LONGEST_INSERT = 0xFFFFFF, 127


class Splice(NamedTuple):
    """The bytes of a tree from `start` to `end` are replaced by `fresh`."""

    start: int
    end: int
    fresh: bytes


class SortedTree(NamedTuple):
    """A tree object, its entries in Git's order: their sort keys, and where each starts, then the end.

    Trees that differ in one entry only may have their lists in common.
    """

    keys: list[bytes]
    starts: list[int]
    data: bytes

    @classmethod
    def of(cls, entries: Iterable[RawEntry]) -> "SortedTree":
        """Return a tree of these entries, in any order."""
        pairs = sorted(((_key(entry), entry) for entry in entries), key=lambda pair: pair[0])
        stored = [b"%b %b\0%b" % entry for _, entry in pairs]
        return cls([key for key, _ in pairs], [*accumulate(map(len, stored), initial=0)], b"".join(stored))

    def find(self, name: bytes) -> RawEntry | None:
        """Return the entry with a name, a file before a directory; None if there is none."""
        index = next((index for start, end in self._places(name) for index in range(start, end)), None)
        return None if index is None else parse_tree(self._stored(index))[0]

    def replaced(self, name: bytes, entry: RawEntry | None) -> "tuple[SortedTree, Splice | None]":
        """Return the tree with this entry in the place of all of its name (None: with none of that name).

        Returns: the difference in bytes, too, unless entries change in two places.
        """
        places = [(start, end) for start, end in self._places(name) if start < end]
        new = [] if entry is None else [_key(entry)]
        if not places and new:
            place = bisect_left(self.keys, new[0])
            places = [(place, place)]
        start, end = places[0] if places else (0, 0)
        if len(places) > 1 or (new and start < end and self.keys[start] != new[0]):
            raw = (parse_tree(self._stored(index))[0] for index in range(len(self.keys)))
            kept = [each for each in raw if each.name != name]
            return SortedTree.of([*kept, *([entry] if entry else [])]), None
        fresh = b"" if entry is None else b"%b %b\0%b" % entry
        splice = Splice(self.starts[start], self.starts[end], fresh)
        return self._spliced(start, end, new, splice), splice

    def _spliced(self, start: int, end: int, new: list[bytes], splice: Splice) -> "SortedTree":
        """Return the tree with entries from `start` to `end` replaced by one, or by none."""
        data = self.data[: splice.start] + splice.fresh + self.data[splice.end :]
        moved = len(data) - len(self.data)
        if not moved and end - start == len(new):
            return SortedTree(self.keys, self.starts, data)
        before, after = self.starts[: start + len(new)], self.starts[end:]
        return SortedTree(
            [*self.keys[:start], *new, *self.keys[end:]], [*before, *(place + moved for place in after)], data
        )

    def _stored(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.starts[index + 1]]

    def _places(self, name: bytes) -> Iterator[tuple[int, int]]:
        for key in (name, name + b"/"):
            yield bisect_left(self.keys, key), bisect_right(self.keys, key)


def _key(entry: RawEntry) -> bytes:
    # Git sorts directories as if their names ended with a slash.
    return entry.name + b"/" if entry.is_tree else entry.name


def delta(size: int, splice: Splice) -> bytes:
    """Return the delta of a pack that makes a splice in an object of so many bytes.

    Source: git Documentation/gitformat-pack.txt, deltified representation.
    """
    fresh_size = size - (splice.end - splice.start) + len(splice.fresh)
    parts = [_varint(size), _varint(fresh_size), *_copies(0, splice.start)]
    for place in range(0, len(splice.fresh), _LONGEST_INSERT):
        piece = splice.fresh[place : place + _LONGEST_INSERT]
        parts.append(bytes([len(piece)]) + piece)
    return b"".join([*parts, *_copies(splice.end, size)])


def apply_delta(base: bytes, data: bytes) -> bytes:
    """Return the object that a delta of this module makes of its base."""
    place = _end_of_varint(data, _end_of_varint(data, 0))
    parts = []
    while place < len(data):
        operation, place = data[place], place + 1
        if operation == _COPY:
            start = int.from_bytes(data[place : place + 4], "little")
            parts.append(base[start : start + int.from_bytes(data[place + 4 : place + 7], "little")])
            place += 7
        else:
            parts.append(data[place : place + operation])
            place += operation
    return b"".join(parts)


def _copies(start: int, end: int) -> Iterator[bytes]:
    """Yield operations that copy a range of the base."""
    for place in range(start, end, _LARGEST_COPY):
        size = min(_LARGEST_COPY, end - place)
        # All seven bytes, also those that are zero: a few bytes more, and one form.
        yield bytes([_COPY]) + place.to_bytes(4, "little") + size.to_bytes(3, "little")


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number & ~0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _end_of_varint(data: bytes, start: int) -> int:
    while data[start] & 0x80:
        start += 1
    return start + 1
