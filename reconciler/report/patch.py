"""Differences of packages as patches in Git's format, which `git apply` takes. Pure."""

import zlib
from base64 import b85encode
from collections.abc import Iterator
from difflib import unified_diff
from stat import S_IFMT
from typing import Final

from reconciler.base.escape import inert, is_visible, terminal
from reconciler.functions.secrets import NO_SECRET_VALUES, SecretValues, holds_secret, values_in_secrets
from reconciler.names.objects import File, Files
from reconciler.report.console import Color, Paint, plain
from reconciler.report.diff import NO_NEWLINE

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

    A file that may hold a Secret has a comment in place of its difference: `git apply` ignores comments,
    and leaves the file as it is. Lines with values of Secrets are masked, and all of that file are comments.
    Text with control characters is a binary patch, which shows none of them.

    Source: Git, Documentation/diff-generate-patch.txt, "Generating patch text with -p".

    Args:
        directory: Directory of the package in its repository.
        before: Files of the package, none if it is new.
        after: Files after the change, none if it is deleted.
        name: Name of the package in comments.
        paint: Adds colors.
        values: Values of its Secrets, if these are not all of its files.
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
    old_lines, new_lines = _lines(before), _lines(after)
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


def _lines(data: bytes) -> list[str] | None:
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
