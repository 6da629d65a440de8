"""Three-way merge of plain text, line by line."""

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from msgspec import Struct

_MAX_LINES = 20_000
_MAX_PAIRS = 2_000_000


class Hunk(NamedTuple):
    """Lines that both sides changed differently."""

    base: str
    upstream: str
    local: str


class MergedText(Struct, frozen=True):
    """The merged text; conflicting hunks have the lines of one side."""

    text: str
    hunks: tuple[Hunk, ...] = ()


def merge_text(base: str, upstream: str, local: str, *, prefer_upstream: bool = False) -> MergedText | None:
    """Return `local` with the lines that changed from `base` to `upstream`, None if a side is too long.

    Changes to neighbouring lines conflict; local wins, or upstream with `prefer_upstream`.
    """
    texts = [text.splitlines(keepends=True) for text in (base, upstream, local)]
    # difflib looks at every pair of equal lines: its time is quadratic for texts that repeat a line.
    if max(map(len, texts)) > _MAX_LINES or any(_equal_pairs(texts[0], s) > _MAX_PAIRS for s in texts[1:]):
        return None
    pieces: list[str] = []
    hunks: list[Hunk] = []
    for same, (old, theirs, ours) in _regions(*texts):
        if same or theirs in (old, ours):
            pieces += ours
        elif old == ours:
            pieces += theirs
        else:
            hunks.append(Hunk("".join(old), "".join(theirs), "".join(ours)))
            pieces += theirs if prefer_upstream else ours
    return MergedText("".join(pieces), tuple(hunks))


_Lines = list[str]


def _equal_pairs(left: _Lines, right: _Lines) -> int:
    """Return the number of pairs of equal lines."""
    counts = Counter(right)
    return sum(counts[line] for line in left)


def _regions(
    base: _Lines, theirs: _Lines, ours: _Lines
) -> Iterator[tuple[bool, tuple[_Lines, _Lines, _Lines]]]:
    """Yield (whether all sides are equal, lines of each side) for consecutive regions of the texts."""
    at_base = at_theirs = at_ours = 0
    for start, in_theirs, in_ours, size in _common(base, theirs, ours):
        before = (base[at_base:start], theirs[at_theirs:in_theirs], ours[at_ours:in_ours])
        if any(before):
            yield False, before
        yield True, (base[start : start + size],) * 3
        at_base, at_theirs, at_ours = start + size, in_theirs + size, in_ours + size
    rest = (base[at_base:], theirs[at_theirs:], ours[at_ours:])
    if any(rest):
        yield False, rest


def _common(base: _Lines, theirs: _Lines, ours: _Lines) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start in base, in theirs, in ours, length) of the runs of lines common to all three."""
    in_theirs = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    in_ours = SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    i = j = 0
    while i < len(in_theirs) and j < len(in_ours):
        block, our_block = in_theirs[i], in_ours[j]
        start = max(block.a, our_block.a)
        end = min(block.a + block.size, our_block.a + our_block.size)
        if start < end:
            yield start, block.b + start - block.a, our_block.b + start - our_block.a, end - start
        if block.a + block.size < our_block.a + our_block.size:
            i += 1
        else:
            j += 1
