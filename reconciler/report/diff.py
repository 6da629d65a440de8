"""Files of a package that a change adds, edits or removes, as far as they fit a pull request. Pure."""

import hashlib
from collections.abc import Iterable
from difflib import unified_diff
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.base.wording import plural
from reconciler.functions.secrets import SecretValues, holds_secret, values_in_secrets
from reconciler.names.objects import File, Files
from reconciler.names.substitution import OwnValues
from reconciler.render.update.three_way import file_text, is_text

LONGEST_LINE = 300
MOST_LINES = 200
"""Lines of one file's difference; more than these are counted, not shown."""
MOST_FILES = 100
NO_NEWLINE = "\\ No newline at end of file"
MOST_TEXT = 30_000
"""Characters of all differences together."""
_NOT_SHOWN = "may hold a Secret, not shown"
_MOST_CHANGES = 1024
"""Of all packages of a run, the changes that are kept: those of the last repositories."""


class FileChange(NamedTuple):
    """One file that changed: lines added and removed, and the difference, empty where it is not shown."""

    path: str
    added: int
    removed: int
    text: str = ""
    note: str = ""


class DifferenceReader:
    """Compares files; changes of many packages that are equal but for own names are compared once."""

    def __init__(self) -> None:
        self._changes: dict[object, FileChange] = {}

    def changes(self, before: Files, after: Files, own_names: Iterable[str] = ()) -> tuple[FileChange, ...]:
        """Return the changed files, with a difference where both sides have the file.

        Sorted by path, a Kptfile last, because it repeats the revision. Total. Secrets and binary files
        have no difference. `own_names` are as in `ImpactReader`; they change nothing.
        """
        own_values, values = OwnValues.of(own_names), values_in_secrets(before, after)
        changes: list[FileChange] = []
        room = MOST_TEXT
        for path in sorted(before.keys() | after.keys(), key=lambda path: (path == KPTFILE, path)):
            if before.get(path) == after.get(path):
                continue
            change = self._change(path, before.get(path), after.get(path), own_values, values)
            if len(change.text) > room:
                change = change._replace(text="", note="does not fit here")
            room -= len(change.text)
            changes.append(change)
        return tuple(changes)

    def _change(
        self, path: str, before: File | None, after: File | None, own_values: OwnValues, values: SecretValues
    ) -> FileChange:
        if before is None or after is None:
            return _one_side(path, before, after)
        if not (is_text(before) and is_text(after)):
            return FileChange(path, 0, 0, note=binary_note(before, after))
        if b"\0" in before.data or b"\0" in after.data:  # it cannot be masked
            own_values = OwnValues(())
        old, new = own_values.mask(before.data), own_values.mask(after.data)
        key = (path, before.mode, after.mode, hashlib.sha256(old).digest(), hashlib.sha256(new).digest())
        change = self._changes.get(key)
        if change is None:
            if len(self._changes) >= _MOST_CHANGES:
                self._changes.clear()
            hides = holds_secret(before, after)
            change = self._changes[key] = _masked_change(path, old, new, hides_text=hides)
        if values.hides_file(before, after):
            return change._replace(text="", note=_NOT_SHOWN)
        text = values.text(own_values.fill_text(change.text) if own_values.values else change.text)
        return change._replace(text="\n".join(map(cut, text.split("\n"))))


def _one_side(path: str, before: File | None, after: File | None) -> FileChange:
    """Return a file that is new or removed, of which no line is shown."""
    note = "new" if before is None else "removed"
    if not all(map(is_text, filter(None, (before, after)))):
        return FileChange(path, 0, 0, note=f"{note}, {file_text(after or before)}")
    added, removed = (len(_lines(side.data)) if side else 0 for side in (after, before))
    return FileChange(path, added, removed, note=note)


def _masked_change(path: str, before: bytes, after: bytes, *, hides_text: bool) -> FileChange:
    body = list(unified_diff(_lines(before), _lines(after), lineterm=""))[2:]
    signs = [line[:1] for line in body]
    added, removed = signs.count("+"), signs.count("-")
    if hides_text:
        return FileChange(path, added, removed, note=_NOT_SHOWN)
    if not body:
        return FileChange(path, 0, 0, note="only its mode changes")
    if len(body) > MOST_LINES:
        body[MOST_LINES:] = [f"@@ and {plural(len(body) - MOST_LINES, 'line')} more @@"]
    return FileChange(path, added, removed, "\n".join(body))


def cut(line: str) -> str:
    """Return a line, of a long one its beginning."""
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def binary_note(before: File, after: File) -> str:
    """Return what is shown in place of the difference of files that are no text."""
    return f"binary files differ: {len(before.data)} -> {plural(len(after.data), 'byte')}"


def _lines(data: bytes) -> list[str]:
    """Return the lines of a text; a last line without newline is marked."""
    *lines, last = data.decode().split("\n")
    return [*lines, f"{last} {NO_NEWLINE}"] if last else lines
