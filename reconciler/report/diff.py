"""Files that a change adds, edits or removes: what fits a pull request, and patches of Git. Pure."""

import zlib
from base64 import b85encode
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from functools import cache
from stat import S_IFMT
from types import MappingProxyType
from typing import Final, NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.base.text import inert, is_visible, plural, terminal
from reconciler.functions.secrets import NO_SECRET_VALUES, SecretValues, holds_secret, values_in_secrets
from reconciler.names.filled import changed_paths, masked_digest
from reconciler.names.objects import File, Files
from reconciler.names.substitution import OwnValues
from reconciler.render.update.sides import file_text, is_text
from reconciler.report.console import Color, Paint, plain

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
_MOST_COUNTS = 1 << 14


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
        self._lines: dict[object, int | None] = {}

    def changes(
        self, before: Files, after: Files, own_names: Iterable[str] = (), unmade: Files = MappingProxyType({})
    ) -> tuple[FileChange, ...]:
        """Return the changed files, with a difference where both sides have the file.

        Sorted by path, a Kptfile last, because it repeats the revision. Total. Secrets and binary files
        have no difference, and what is in Secrets of `unmade` is masked, too. `own_names` are as in
        `ImpactReader`; they change nothing.
        """
        own_values = OwnValues.of(own_names)
        # Of new and removed files nothing is shown, and many packages have no others.
        values = cache(lambda: values_in_secrets(before, after, unmade, own_values=own_values))
        changes: list[FileChange] = []
        room = MOST_TEXT
        for path in sorted(changed_paths(before, after), key=lambda path: (path == KPTFILE, path)):
            change = self._change(path, before, after, own_values, values)
            if len(change.text) > room:
                change = change._replace(text="", note="does not fit here")
            room -= len(change.text)
            changes.append(change)
        return tuple(changes)

    def _change(
        self,
        path: str,
        before: Files,
        after: Files,
        own_values: OwnValues,
        values: Callable[[], SecretValues],
    ) -> FileChange:
        sides = [files for files in (before, after) if path in files]
        digests = [masked_digest(files, path, own_values) for files in sides]
        pairs = zip(digests, sides, strict=True)
        counts = [self._count_lines(digest, files, path, own_values) for digest, files in pairs]
        if len(sides) == 1:
            is_new, count = path in after, counts[0]
            note = "new" if is_new else "removed"
            if count is None:
                return FileChange(path, 0, 0, note=f"{note}, {file_text(sides[0][path])}")
            return FileChange(path, count * is_new, count * (not is_new), note=note)
        if None in counts:
            return FileChange(path, 0, 0, note=binary_note(before[path], after[path]))
        key = (path, *digests)
        change = self._changes.get(key)
        if change is None:
            old, new = before[path], after[path]
            is_masked = not any(b"\0" in side.data for side in (old, new))
            own_values = own_values if is_masked else OwnValues(())
            masked_sides = (own_values.mask(side.data) for side in (old, new))
            change = _masked_change(path, *masked_sides, hides_text=holds_secret(old, new))
            if len(self._changes) >= _MOST_CHANGES:
                self._changes.clear()
            if is_masked:
                self._changes[key] = change
        secrets = values()
        if secrets.unclear and secrets.hides_file(before[path], after[path]):
            return change._replace(text="", note=_NOT_SHOWN)
        text = secrets.text(own_values.fill_text(change.text) if own_values.values else change.text)
        return change._replace(text="\n".join(map(cut, text.split("\n"))))

    def _count_lines(self, digest: bytes, files: Files, path: str, own_values: OwnValues) -> int | None:
        """Return the number of lines of a file, None if it is no text: long lines are none."""
        key = (digest, *map(len, own_values.values))
        if key not in self._lines:
            if len(self._lines) >= _MOST_COUNTS:
                self._lines.clear()
            file = files[path]
            self._lines[key] = len(_lines(file.data)) if is_text(file) else None
        return self._lines[key]


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


_NO_OID: Final = "0" * 40
_BINARY: Final = "GIT binary patch"
_CHUNK: Final = 52
"""Bytes of one line of a binary patch."""
_COLORS: Final = {"+": Color.GREEN, "-": Color.RED, "@": Color.CYAN}


def package_patch(
    directory: str,
    before: Files,
    after: Files,
    *,
    name: str = "",
    paint: Paint = plain,
    values: SecretValues | None = None,
) -> Iterator[str]:
    """Yield the lines of the patch that turns one state of a package into the other.

    A file that may hold a Secret has a comment in place of its difference: `git apply` ignores comments, and
    leaves the file as it is. Lines with values of Secrets are masked, and all of that file are comments. Text
    with control characters is a binary patch, which shows none of them. `name` is that of the package in
    comments, `values` those of its Secrets, if these are not all of its files.

    Source: Git, Documentation/diff-generate-patch.txt, "Generating patch text with -p".
    """
    values = values or values_in_secrets(before, after)
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        whole = f"{directory}/{path}" if directory else path
        action = "adds" if old is None else "removes" if new is None else "changes"
        what = f"# {terminal(name or whole)}: {action} {terminal(whole)}"
        if holds_secret(old, new) or values.hides_file(old, new):
            note = "which may hold a Secret: not shown, and `git apply` leaves it as it is"
            yield paint(f"{what}, {note}", Color.YELLOW)
        elif hunks := _masked_hunks(old, new, values):
            note = "which has values of a Secret: masked, and `git apply` leaves it as it is"
            yield paint(f"{what}, {note}", Color.YELLOW)
            yield from (paint(f"# {line}", _COLORS.get(line[:1], Color.YELLOW)) for line in hunks)
        elif old and new and S_IFMT(old.mode) != S_IFMT(new.mode):
            yield from _file_patch(whole, old, None, paint)
            yield from _file_patch(whole, None, new, paint)
        else:
            yield from _file_patch(whole, old, new, paint)


def _masked_hunks(old: File | None, new: File | None, values: SecretValues) -> list[str]:
    """Return the hunks of a file without values of Secrets; none if it has no such values."""
    if values == NO_SECRET_VALUES:
        return []
    lines = list(_file_patch("", old, new, plain))
    if _BINARY in lines:
        texts = [file.data.decode(errors="replace") for file in (old, new) if file]
        return ["(no text)"] if any(values.text(text) != text for text in texts) else []
    text = "\n".join(lines[next((n for n, line in enumerate(lines) if line.startswith("@@")), len(lines)) :])
    masked = values.text(text)
    return [] if masked == text else masked.split("\n")


def _file_patch(path: str, old: File | None, new: File | None, paint: Paint) -> Iterator[str]:
    for line in _header(path, old, new):
        yield paint(line, Color.BOLD)
    before, after = (file.data if file else b"" for file in (old, new))
    if before == after:
        return
    old_lines, new_lines = _visible_lines(before), _visible_lines(after)
    if old_lines is None or new_lines is None:
        yield from _binary(after)
        return
    sides = (_quoted(f"a/{path}") if old else "/dev/null", _quoted(f"b/{path}") if new else "/dev/null")
    difference = unified_diff(old_lines, new_lines, *sides, lineterm="")
    for side in (next(difference), next(difference)):
        yield paint(side, Color.BOLD)
    for line in difference:
        color, text = _COLORS.get(line[:1]), line.removesuffix("\n")
        yield paint(text, color) if color else text
        if text == line and not line.startswith("@@"):
            yield NO_NEWLINE


def _header(path: str, old: File | None, new: File | None) -> Iterator[str]:
    yield f"diff --git {_quoted(f'a/{path}')} {_quoted(f'b/{path}')}"
    if old is None and new is not None:
        yield f"new file mode {new.mode:06o}"
    elif new is None and old is not None:
        yield f"deleted file mode {old.mode:06o}"
    elif old and new and old.mode != new.mode:
        yield f"old mode {old.mode:06o}"
        yield f"new mode {new.mode:06o}"
    oids = (old.oid if old else _NO_OID, new.oid if new else _NO_OID)
    if oids[0] != oids[1]:
        mode = f" {new.mode:06o}" if old and new and old.mode == new.mode else ""
        yield f"index {oids[0]}..{oids[1]}{mode}"


def _visible_lines(data: bytes) -> list[str] | None:
    """Return the lines of a text with their newlines; None for what a terminal must not get as it is."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    visible = text.replace("\r\n", "\n").replace("\n", "").replace("\t", "")
    if terminal(visible) != visible or inert(text) != text:
        return None
    lines = text.split("\n")
    ended = [f"{line}\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _binary(data: bytes) -> Iterator[str]:
    """Yield a file's content as Git's binary patch: zlib in base 85, the length of each line before it."""
    yield _BINARY
    yield f"literal {len(data)}"
    packed = zlib.compress(data)
    for start in range(0, len(packed), _CHUNK):
        chunk = packed[start : start + _CHUNK]
        length = len(chunk)
        letter = chr(ord("A") + length - 1) if length <= 26 else chr(ord("a") + length - 27)  # noqa: PLR2004
        yield letter + b85encode(chunk, pad=True).decode()
    yield ""


def _quoted(path: str) -> str:
    """Return a path as Git writes it: in quotes if a character needs to be escaped."""
    if all(is_visible(char) and char not in '"\\' for char in path):
        return path
    escaped = (
        f"\\{char}"
        if char in '"\\'
        else char
        if is_visible(char)
        else "".join(f"\\{byte:03o}" for byte in char.encode())
        for char in path
    )
    return f'"{"".join(escaped)}"'
