"""Files of a package that a change adds, edits or removes, as far as they fit a pull request. Pure."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.base.wording import plural
from reconciler.functions.secrets import holds_secret
from reconciler.names.objects import File, Files

LONGEST_LINE = 300
MOST_LINES = 200
"""Lines of one file's difference; more than these are counted, not shown."""
MOST_FILES = 100
_NO_NEWLINE = "\\ No newline at end of file"
MOST_TEXT = 30_000
"""Characters of all differences together."""


_Identity = tuple[str, int] | None


class FileChange(NamedTuple):
    """One file that changed: lines added and removed, and the difference, empty where it is not shown."""

    path: str
    added: int
    removed: int
    text: str = ""
    note: str = ""


class DifferenceReader:
    """Compares files; equal changes of many packages are compared once."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, _Identity, _Identity], FileChange] = {}

    def changes(self, before: Files, after: Files) -> tuple[FileChange, ...]:
        """Return the changed files, with a difference where both sides have the file.

        Sorted by path, a Kptfile last, because it repeats the revision. Total. Secrets and binary files
        have no difference.
        """
        changes: list[FileChange] = []
        room = MOST_TEXT
        for path in sorted(before.keys() | after.keys(), key=lambda path: (path == KPTFILE, path)):
            if before.get(path) == after.get(path):
                continue
            change = self._change(path, before.get(path), after.get(path))
            if len(change.text) > room:
                change = change._replace(text="", note="does not fit here")
            room -= len(change.text)
            changes.append(change)
        return tuple(changes)

    def _change(self, path: str, before: File | None, after: File | None) -> FileChange:
        if path == KPTFILE:  # every package has another
            return _change(path, before, after)
        key = (path, _identity(before), _identity(after))
        if key not in self._changes:
            self._changes[key] = _change(path, before, after)
        return self._changes[key]


def _identity(file: File | None) -> _Identity:
    return (file.oid, file.mode) if file else None


def _change(path: str, before: File | None, after: File | None) -> FileChange:
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return FileChange(path, 0, 0, note="no text")
    body = list(_difference(old, new))
    signs = [line[:1] for line in body]
    added, removed = signs.count("+"), signs.count("-")
    if holds_secret(before, after):
        return FileChange(path, added, removed, note="may hold a Secret, not shown")
    if before is None or after is None:
        return FileChange(path, added, removed, note="new" if before is None else "removed")
    if not body:
        return FileChange(path, 0, 0, note="only its mode changes")
    return FileChange(path, added, removed, "\n".join(_shown(body)))


def _difference(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a difference, with three lines around each change.

    Source: difflib.unified_diff. Differs: which lines are equal decides it, not their text. That is equal
    for the Kptfiles of all packages of an upstream, so the slow part is done once for them.
    """
    numbers: dict[str, int] = {}
    before, after = (tuple(numbers.setdefault(line, len(numbers)) for line in side) for side in (old, new))
    for hunk in _hunks(before, after):
        yield f"@@ -{_range(hunk[0][1], hunk[-1][2])} +{_range(hunk[0][3], hunk[-1][4])} @@"
        for tag, start, end, start_after, end_after in hunk:
            if tag == "equal":
                yield from (f" {line}" for line in old[start:end])
                continue
            yield from (f"-{line}" for line in old[start:end])
            yield from (f"+{line}" for line in new[start_after:end_after])


@lru_cache(maxsize=64)
def _hunks(
    before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[list[tuple[str, int, int, int, int]], ...]:
    return tuple(SequenceMatcher(None, before, after).get_grouped_opcodes())


def _range(start: int, end: int) -> str:
    """Return a range of lines as `diff -u` writes it: an empty one begins at the line before."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _shown(body: list[str]) -> Iterator[str]:
    for line in body[:MOST_LINES]:
        yield line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"
    if len(body) > MOST_LINES:
        yield f"@@ and {plural(len(body) - MOST_LINES, 'line')} more @@"


def _lines(file: File | None) -> list[str] | None:
    """Return a file's lines, None if it is no text; a last line without its newline is marked as git does."""
    if file is None:
        return []
    try:
        *lines, last = file.data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    return [*lines, f"{last} {_NO_NEWLINE}"] if last else lines
