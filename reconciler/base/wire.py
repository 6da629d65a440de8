"""Records that machines write and read again: structs of msgspec, as JSON in stable bytes."""

import re
from typing import Any, TypeVar

import msgspec
import orjson


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of records: immutable, camelCase on disk, unknown fields refused."""


R = TypeVar("R")
_SURE_DEPTH = 200
"""Less nested values can be written."""
_LONG_INTEGER = re.compile(rb"[0-9]{19}")


def read_record(data: bytes | str, model: type[R]) -> R:
    """Return the record that a JSON text has.

    Raises:
        ValueError: It is none, or none that could be written again; the message names the field.
    """
    try:
        record = msgspec.json.decode(data, type=model)
        text = data if isinstance(data, bytes) else data.encode()
        if text.count(b"{") + text.count(b"[") > _SURE_DEPTH or _LONG_INTEGER.search(text):
            canonical_json(record)
    except TypeError as error:
        raise ValueError(f"It cannot be written again: {error}") from error
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"Invalid JSON: {error}") from error
    return record


def canonical_json(value: Any) -> bytes:
    """Return a record or plain data as JSON: sorted keys, two-space indent, final newline. Deterministic."""
    plain = msgspec.to_builtins(value)
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
