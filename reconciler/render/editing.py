"""Edit one document of a file, leaving every other byte as it is."""

import re
from collections.abc import Iterable

from reconciler.krm.yaml import Edit, YamlError, apply_edits
from reconciler.objects import File

_SEPARATOR = re.compile(r"^---[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)


def edit_file(file: File, edits: Iterable[Edit], *, index: int = 0) -> File:
    """Return the file with its document number `index` edited; the same file if nothing changes.

    Documents that are empty count, as they do between separators.

    Raises:
        YamlError: The file is no YAML, or an edit cannot be expressed in it.
    """
    wanted = tuple(edits)
    if not wanted:
        return file
    text = file.data.decode()
    start, end = _extent(text, index)
    edited = apply_edits(text[start:end], wanted).text
    data = (text[:start] + edited + text[end:]).encode()
    return file if data == file.data else File.of(data, file.mode)


def _extent(text: str, index: int) -> tuple[int, int]:
    """Return where a document's text stands; comment-only ones are passed over, as on reading."""
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    filled = [(s, e) for s, e in zip(starts, ends, strict=True) if _has_content(text[s:e])]
    if index >= len(filled):
        raise YamlError(f"There is no document number {index + 1}")
    return filled[index]


def _has_content(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith(("#", "%")) and line != "..." for line in lines)
