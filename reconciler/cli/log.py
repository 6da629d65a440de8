"""Lines on standard error as JSON: notes, errors, and with `--verbose` what takes time."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import orjson

from reconciler.base.wording import json_text
from reconciler.cli.output import RedactedStream

if TYPE_CHECKING:
    from reconciler.base.timing import TimeSpan

_LEVELS = {
    "error: ": "error",
    "Error: ": "error",
    "not read: ": "warning",
    "warning: ": "warning",
    "note: ": "info",
    "hint: ": "info",
}
"""Level of a line by its start."""
_TRACEBACK = "Traceback (most recent call last):"


def use_json() -> None:
    """Write every later line of standard error as a JSON object: time, level, event."""
    if isinstance(sys.stderr, RedactedStream):
        sys.stderr.form = json_lines


def json_lines(text: str) -> str:
    """Return each line of a text that is not empty as a JSON object; a traceback is one object."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(_TRACEBACK):
        return record("error", lines[-1], kind="bug", traceback=text.strip()) + "\n"
    return "".join(f"{_json_line(line)}\n" for line in lines)


def _json_line(line: str) -> str:
    """Return a line as a JSON object; one that is an object already stays as it is."""
    if line.startswith("{"):
        return line
    text = click.unstyle(line)
    for start, level in _LEVELS.items():
        if text.startswith(start):
            return record(level, text.removeprefix(start), kind=start.rstrip(": ").lower())
    return record("info", text.strip())


def record(level: str, event: str, **fields: Any) -> str:
    """Return one JSON object about an event that happens now."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json_text(orjson.dumps({"time": now, "level": level, "event": event, **fields}).decode())


def span_line(span: "TimeSpan") -> str:
    """Return one JSON object about something that took time."""
    fields: dict[str, Any] = {"kind": str(span.kind), "seconds": round(span.seconds, 6)}
    fields |= {"items": span.items} if span.items else {}
    fields |= {"where": span.where} if span.where else {}
    return record("debug", span.name, **fields)
