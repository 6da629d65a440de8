"""Mask the values of Secrets in the output of functions."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from reconciler.functions.resource import Resource
from reconciler.functions.step import StepRun
from reconciler.lazy import lazy_pattern
from reconciler.objects import File
from reconciler.values import replace

MASK: Final = "***"
_SHORTEST: Final = 6
"""In characters. Masking shorter values would mask ordinary words too."""

_SECRET_KIND = lazy_pattern(
    rb"""(?m)^["']?kind["']?\s*:\s*["']?Secret["']?\s*(?:#.*)?$|"kind"\s*:\s*"Secret\""""
)


def holds_secret(file: File | None) -> bool:
    """Return whether a file declares a Kubernetes Secret, so that no value of it may be shown."""
    return file is not None and _SECRET_KIND.search(file.data) is not None


def secret_values(resources: Iterable[Resource]) -> frozenset[str]:
    """Return the values of all Secrets: as written, as plain text and as base64."""
    secrets = (each for each in resources if each.kind == "Secret")
    return frozenset(value for each in secrets for value in _values(each.value) if len(value) >= _SHORTEST)


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
        )
        for each in run.results
    )
    return replace(run, results=results, stderr=pattern.sub(MASK, run.stderr))


def _values(secret: Mapping[str, Any]) -> Iterator[str]:
    for field in ("data", "stringData"):
        data = secret.get(field)
        for value in data.values() if isinstance(data, Mapping) else ():
            if isinstance(value, str):
                yield from _spellings(value, is_encoded=field == "data")


def _spellings(value: str, *, is_encoded: bool) -> Iterator[str]:
    """Yield a value as written, each of its lines, and its other form: base64 or decoded."""
    yield from (value, value.strip(), *(line.strip() for line in value.splitlines()))
    if not is_encoded:
        yield base64.b64encode(value.encode(errors="surrogateescape")).decode()
        return
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield from (text, text.strip(), *(line.strip() for line in text.splitlines()))


def _masked(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, Mapping):
        return {key: _masked(part, pattern) for key, part in value.items()}
    return [_masked(part, pattern) for part in value] if isinstance(value, list) else value
