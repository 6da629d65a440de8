"""Find Secrets in files and values, so that no output shows them (D17). Pure.

Whether a file may be shown is decided here and nowhere else.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from msgspec.structs import replace

from reconciler.functions.resource import Resource
from reconciler.functions.step import StepRun
from reconciler.functions.values import mappings_at
from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents
from reconciler.names.ids import Oid
from reconciler.names.objects import File

MASK: Final = "***"
_SHORTEST: Final = 6
"""In characters. Masking shorter values would mask ordinary words too."""

_LEVELS: Final = 5
"""Levels of manifests in texts of manifests that are parsed; the word in a text below them is enough."""

_DECIDED: Final[dict[Oid, bool]] = {}
"""Whether a file has a Secret: each conflict of a file asks again, and both sides of each difference."""
_MOST_DECIDED: Final = 1 << 16

_OTHER_SPELLING: Final = re.compile(rb"[\\!\0]")
"""Part of every spelling without the word itself: an escape, a tag such as `!!binary`, UTF-16."""
_ESCAPE: Final = re.compile(
    r"\\+(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5})|(\r?\n[ \t]*)|([abefnrtv]))?"
)
_KIND: Final = re.compile(r"""\bkind["'\s]*:\s*(?:(?:[!&]\S*|[|>][-+0-9]*)\s+)*["']?Secret(?:List)?\b""")
"""A Secret in a comment, a script or a template: its kind, as it is usually written."""
_WORD: Final = re.compile(r"\bSecret(?:List)?\b|![\w!<:.,/-]*(?:binary|%[0-9a-fA-F]{2})|%TAG")
"""Sign of a Secret in text that is not YAML: its kind, or a tag that may decode to it."""


def holds_secret(*files: File | None) -> bool:
    """Return whether any of these files has a Secret, or text that may be one, so that none may be shown.

    A Secret is a mapping of the kind Secret of any API group, or an item of a SecretList: a document, or
    anywhere in one, also in its texts. Of text that is not YAML the word is enough. Total.
    """
    return any(file is not None and _may_hold(file.data, b"Secret") and _decide(file) for file in files)


def _may_hold(data: bytes, *words: bytes) -> bool:
    """Return whether data can hold a Secret: most files cannot, and are not parsed."""
    return all(word in data for word in words) or _OTHER_SPELLING.search(data) is not None


def _decide(file: File) -> bool:
    decided = _DECIDED.get(file.oid)
    if decided is None:
        if len(_DECIDED) > _MOST_DECIDED:
            _DECIDED.clear()
        decided = next(_secrets_of_text(file.data, 0, set()), None) is not None
        _DECIDED[file.oid] = decided
    return decided


def _secrets_of_text(data: bytes, level: int, seen: set[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the Secrets of a text; for one that is not YAML, an empty one if it may have any.

    Args:
        data: The text.
        level: Number of texts that this one is in.
        seen: Texts that were looked at: an alias repeats a text at no cost.
    """
    # Without NULs, UTF-16 and UTF-32 are the characters of ASCII that they encode.
    text = _ESCAPE.sub(_unescaped, data.replace(b"\0", b"").decode(errors="replace"))
    try:
        documents = load_documents(data, PACKAGE_LIMITS) if level < _LEVELS else None
    except YamlError:
        documents = None
    for document in documents or ():
        yield from _secrets(document.value, level, seen)
    # A text in a document is prose more often than a manifest that is not YAML.
    pattern = _WORD if documents is None and level in (0, _LEVELS) else _KIND
    if pattern.search(text):
        yield {}


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of an escape of YAML or JSON, without the backslashes of others."""
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16)) if int(code, 16) < 0x110000 else " "  # noqa: PLR2004 - Unicode's end
    return " " if match[5] else ""


def _secrets(value: Any, level: int, seen: set[str]) -> Iterator[Mapping[str, Any]]:
    """Yield every Secret in a value, also those that are written as text."""
    if isinstance(value, Mapping):
        if value.get("kind") == "Secret":
            yield value
        elif value.get("kind") == "SecretList":
            yield from (value, *mappings_at(value, "items"))
        for part in value.values():
            yield from _secrets(part, level, seen)
    elif isinstance(value, list):
        for part in value:
            yield from _secrets(part, level, seen)
    elif isinstance(value, str) and ":" in value and value not in seen:
        seen.add(value)
        data = value.encode(errors="surrogatepass")
        if _may_hold(data, b"kind", b"Secret"):
            yield from _secrets_of_text(data, level + 1, seen)


def secret_values(resources: Iterable[Resource]) -> frozenset[str]:
    """Return the values of all Secrets in resources: as written, as plain text and as base64."""
    likely = (each.value for each in resources if _may_have_secret(each.value))
    secrets = (secret for value in likely for secret in _secrets(value, 0, set()))
    return frozenset(value for each in secrets for value in _values(each) if len(value) >= _SHORTEST)


def _may_have_secret(value: Any) -> bool:
    """Return whether a value can have a Secret: most have neither the word nor another spelling of it."""
    try:
        data = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    # What JSON itself escapes in ordinary texts is no other spelling.
    return _may_hold(data.replace(b"\\n", b"").replace(b'\\"', b""), b"Secret")


def hide_secrets(run: StepRun, values: frozenset[str]) -> StepRun:
    """Return a step's output with these values masked.

    The redactor of the command line knows no values of Secrets, so they are masked here.
    """
    if not values:
        return run
    # A short value may be a part of a longer one, of which the rest would stay readable.
    longest_first = sorted(values, key=lambda value: (-len(value), value))
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    results = tuple(
        replace(
            each,
            message=pattern.sub(MASK, each.message),
            field=_masked(each.field, pattern),
            tags=_masked(each.tags, pattern),
            resource_ref=_masked(each.resource_ref, pattern),
            file=_masked(each.file, pattern),
        )
        for each in run.results
    )
    return replace(run, results=results, stderr=pattern.sub(MASK, run.stderr))


def _values(secret: Mapping[str, Any]) -> Iterator[str]:
    for field in ("data", "stringData"):
        data = secret.get(field)
        for value in data.values() if isinstance(data, Mapping) else ():
            if isinstance(value, (str, int, float)):
                yield from _spellings(str(value), is_encoded=field == "data")


def _spellings(value: str, *, is_encoded: bool) -> Iterator[str]:
    """Yield a value as written, each of its lines, and its other form: base64 or decoded."""
    yield from _quotations(value)
    if not is_encoded:
        yield base64.b64encode(value.encode(errors="surrogateescape")).decode()
        return
    code = "".join(value.split())
    yield code
    try:
        yield from _quotations(base64.b64decode(code, validate=True).decode())
    except (binascii.Error, ValueError):
        return


def _quotations(value: str) -> Iterator[str]:
    """Yield a value and each of its lines, as they are and as a message quotes them."""
    for text in (value, value.strip(), *(line.strip() for line in value.splitlines())):
        quoted = (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text))
        yield from (text, *(each[1:-1] for each in quoted))


def _masked(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, Mapping):
        return {key: _masked(part, pattern) for key, part in value.items()}
    return [_masked(part, pattern) for part in value] if isinstance(value, list) else value
