"""Reading JSON and newline-delimited JSON: the fast way in for exported objects."""

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

import orjson

from reconciler.krm.yaml.document import Document
from reconciler.krm.yaml.errors import YamlError
from reconciler.krm.yaml.limits import SNAPSHOT_LIMITS, YamlLimits
from reconciler.krm.yaml.marks import Source


def load_json(
    data: bytes, limits: YamlLimits = SNAPSHOT_LIMITS, *, check_duplicates: bool = True
) -> Document:
    """Return the one document of a JSON file.

    `check_duplicates` costs three times the parsing; leave it out for what a machine wrote.

    Raises:
        YamlError: The data is not JSON, has a duplicate key, or goes over a limit.
    """
    _check_size(data, limits)
    return _load(data, 0, len(data), 1, limits, check_duplicates=check_duplicates)


def load_json_lines(
    data: bytes, limits: YamlLimits = SNAPSHOT_LIMITS, *, check_duplicates: bool = False
) -> Iterator[Document]:
    """Yield one document for each line that is not blank.

    Raises:
        YamlError: As `load_json`, when the iteration reaches the line.
    """
    _check_size(data, limits)
    start = 0
    line = 0
    while start < len(data):
        line += 1
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        if data[start:end].strip():
            if line > limits.max_documents:
                raise YamlError(f"The file has more than {limits.max_documents} lines", line=line, column=1)
            yield _load(data, start, end, line, limits, check_duplicates=check_duplicates)
        start = end + 1


def _check_size(data: bytes, limits: YamlLimits) -> None:
    if len(data) > limits.max_bytes:
        raise YamlError(f"The file has {len(data)} bytes; the limit is {limits.max_bytes}")


def _load(
    data: bytes, start: int, end: int, line: int, limits: YamlLimits, *, check_duplicates: bool
) -> Document:
    part = memoryview(data)[start:end]
    try:
        value = orjson.loads(part)
    except orjson.JSONDecodeError as error:
        raise YamlError(f"Not JSON: {error.msg}", line=line + error.lineno - 1, column=error.colno) from error
    if _openers(data, start, end) > limits.max_depth and _depth(value, limits.max_depth) > limits.max_depth:
        raise YamlError(
            f"Collections are nested more than {limits.max_depth} levels deep", line=line, column=1
        )
    if check_duplicates:
        _check_duplicates(bytes(part), line)
    return Document(value, line, Source(data, start, end, line))


def _openers(data: bytes, start: int, end: int) -> int:
    return data.count(b"{", start, end) + data.count(b"[", start, end)


def _depth(value: Any, room: int) -> int:
    """Return how deep collections nest, looking no further than one level below `room`."""
    if not isinstance(value, (dict, list)):
        return 0
    if room < 0:
        return 1
    children = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(child, room - 1) for child in children), default=0)


def _check_duplicates(data: bytes, line: int) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise YamlError(f"Key {twice!r} is set twice in one object", line=line, column=1)

    try:
        JSONDecoder(object_pairs_hook=unique).decode(data.decode())
    except JSONDecodeError as error:
        raise YamlError("Not JSON", line=line, column=1) from error
