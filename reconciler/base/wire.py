"""Records that machines write and read again: structs of msgspec, as JSON in stable bytes."""

from typing import Any, TypeVar

import msgspec
import orjson


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of records: immutable, camelCase on disk, unknown fields refused."""


R = TypeVar("R")


def read_record(data: bytes | str, model: type[R]) -> R:
    """Return the record that a JSON text has.

    Raises:
        ValueError: It is none; the message names the field.
    """
    try:
        return msgspec.json.decode(data, type=model)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"Invalid JSON: {error}") from error


def canonical_json(value: Any) -> bytes:
    """Return a record or plain data as JSON: sorted keys, two-space indent, final newline. Deterministic."""
    plain = msgspec.to_builtins(value)
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
