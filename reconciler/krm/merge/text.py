"""Three-way merge of plain text, line by line."""

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple, Self

from msgspec import Struct

_MAX_LINES = 20_000
_MAX_PAIRS = 2_000_000
_MARK = "\ufeff"


class Hunk(NamedTuple):
    """Lines that both sides changed differently."""

    base: str
    upstream: str
    local: str


class TextFormat(NamedTuple):
    """The byte order mark of a text, or "", and its line break: a line feed where it has several kinds."""

    mark: str = ""
    line_break: str = "\n"

    @classmethod
    def split(cls, text: str) -> tuple[Self, str]:
        """Return the format of a text, and the text without its mark and with line feeds."""
        mark = _MARK if text.startswith(_MARK) else ""
        text = text.removeprefix(mark)
        if "\r" not in text or not text.count("\r") == text.count("\n") == text.count("\r\n"):
            return cls(mark), text
        return cls(mark, "\r\n"), text.replace("\r\n", "\n")

    def joined(self, text: str) -> str:
        """Return a text with line feeds in this format."""
        return self.mark + (text.replace("\n", self.line_break) if self.line_break != "\n" else text)


def merge_formats(
    base: TextFormat | None, upstream: TextFormat | None, local: TextFormat | None
) -> TextFormat:
    """Return the format of a merged text: local's, unless only upstream changed it."""
    return (upstream if local in (None, base) else local) or local or TextFormat()


class MergedText(Struct, frozen=True):
    """The merged text; conflicting hunks have the lines of one side."""

    text: str
    hunks: tuple[Hunk, ...] = ()


def merge_text(base: str, upstream: str, local: str, *, prefer_upstream: bool = False) -> MergedText | None:
    """Return `local` with the lines that changed from `base` to `upstream`, None if a side is too long.

    Changes to neighbouring lines conflict; local wins, or upstream with `prefer_upstream`. The format of the
    text is merged apart from its lines.
    """
    formats, plain = zip(*map(TextFormat.split, (base, upstream, local)), strict=True)
    texts = [text.splitlines(keepends=True) for text in plain]
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
    return MergedText(merge_formats(*formats).joined("".join(pieces)), tuple(hunks))


_Lines = list[str]


def _equal_pairs(left: _Lines, right: _Lines) -> int:
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
