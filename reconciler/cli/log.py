"""Lines of standard error: text, or with `RECONCILER_LOG_FORMAT=json` a JSON object for each event."""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

import click

from reconciler.base.defects import LOGGER, DefectError
from reconciler.base.errors import UsageError
from reconciler.base.escape import inert
from reconciler.base.redact import Redactor
from reconciler.base.wording import json_text
from reconciler.report.console import folded

VARIABLE: Final = "RECONCILER_LOG_FORMAT"
_LEVELS = {"": "info", "note": "info", "not read": "warning", "error": "error"}
"""Level of an event by its kind; what took time is `debug`."""
_OF_DEFECTS = (
    "This is a bug in reconciler: what it broke stays as it is, the rest is done, the next run tries again.",
    "Please report it with the traceback above and these versions:",
)
_OF_A_BUG = (
    "This is a bug in reconciler; nothing is half done: a plain `apply` completes it.",
    "Please report it with everything above and these versions:",
)


class Event(NamedTuple):
    """An event: its text and its kind, such as `note`; "" for lines of a report.

    The `hint` is the next step.
    """

    kind: str
    text: str
    hint: str = ""


def is_json() -> bool:
    """Tell whether a machine reads standard error."""
    return os.environ.get(VARIABLE) == "json"


def require_known_format() -> None:
    """Refuse a form of lines that does not exist.

    Raises:
        UsageError: The environment names another form.
    """
    if (name := os.environ.get(VARIABLE)) not in (None, "", "text", "json"):
        raise UsageError(f"{VARIABLE} is {name!r}: there is no such form", hint="Set it to text or json.")


def rendered(event: Event, redactor: Redactor, width: int | None = None, **fields: Any) -> str:
    """Return an event as whole lines: JSON with these `fields`, or text that is not wider than a terminal."""
    kind = event.kind
    if is_json():
        fields = {"kind": kind, "hint": event.hint, **fields}
        texts = [event.text] if kind else [line.strip() for line in event.text.splitlines()]
        values = {name: value for name, value in fields.items() if value}
        return "".join(
            json_line(_LEVELS.get(kind, "debug"), text, redactor, **values) for text in texts if text
        )
    text = f"{kind}: {event.text}" if kind else event.text
    # A hint below a problem is indented, as in reports.
    hint = f"\n{'' if kind == 'error' else '  '}hint: {event.hint}" if event.hint else ""
    # Masked first: a secret may have spaces.
    return inert("\n".join(folded([redactor.text(text + hint)], width))) + "\n"


def show(event: Event, redactor: Redactor, width: int | None = None, **fields: Any) -> None:
    """Print an event to standard error."""
    click.echo(rendered(event, redactor, width, **fields), err=True, nl=False)


def json_line(level: str, text: str, redactor: Redactor, **fields: Any) -> str:
    """Return a line with one JSON object about an event that happens now."""
    import orjson

    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    value = redactor.value({"time": now, "level": level, "event": text, **fields})
    return f"{json_text(orjson.dumps(value).decode())}\n"


def bug_lines(error: BaseException, redactor: Redactor) -> str:
    """Return the lines about an unforeseen error: its traceback, and the versions to report."""
    import traceback

    text, versions = "".join(traceback.format_exception(error)), dict(_versions())
    if is_json():
        event = "".join(traceback.format_exception_only(error)).strip()
        return json_line("error", event, redactor, kind="bug", traceback=text, versions=versions)
    return "\n".join([redactor.text(text), *_OF_A_BUG, *_listed(versions), ""])


class DefectLog(logging.Handler):
    """Prints the traceback of each defect, once for all units that have it, and at the end what to report."""

    def __init__(self, redactor: Redactor) -> None:
        """Print to standard error, masked."""
        super().__init__()
        self._redactor = redactor
        self.counts = Counter[str]()

    def __enter__(self) -> Self:
        """Take what guards log."""
        logging.getLogger(LOGGER).addHandler(self)
        logging.getLogger(LOGGER).propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the log as it was."""
        logging.getLogger(LOGGER).removeHandler(self)
        logging.getLogger(LOGGER).propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        """Print a defect with its traceback, unless another unit had it before."""
        if not record.exc_info or record.exc_info[1] is None:
            return
        cause = DefectError(record.exc_info[1]).cause
        self.counts[cause] += 1
        if self.counts[cause] > 1:
            return
        text, traceback = record.getMessage(), logging.Formatter().formatException(record.exc_info)
        if is_json():
            line = json_line("error", text, self._redactor, kind="bug", traceback=traceback)
        else:
            line = inert(self._redactor.text(f"{text}\n{traceback}\n"))
        click.echo(line, err=True, nl=False)

    def summary(self) -> str:
        """Return how often defects of a run were met, and the versions to report; "" if there were none."""
        if not self.counts:
            return ""
        versions, more = dict(_versions()), {cause: n - 1 for cause, n in self.counts.items() if n > 1}
        if is_json():
            return json_line(
                "error", " ".join(_OF_DEFECTS), self._redactor, kind="bug", more=more, versions=versions
            )
        counts = (f"{count} more: {cause}" for cause, count in more.items())
        return "\n".join([*counts, *_OF_DEFECTS, *_listed(versions), ""])


def _listed(versions: Mapping[str, str]) -> Iterator[str]:
    yield from (f"  {name} {version}" for name, version in versions.items())


def _versions() -> Iterator[tuple[str, str]]:
    import platform
    from importlib import metadata

    from reconciler import __version__

    yield from (("reconciler", __version__), ("python", platform.python_version()))
    yield "platform", platform.platform()
    for name in ("pygit2", "pydantic", "PyYAML", "ruamel.yaml", "cel-expr-python", "python-sat", "click"):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"


def use_json() -> None:
    """Write what libraries log, and warnings of Python, as JSON objects too."""
    import sys

    redactor = Redactor.of_environment(os.environ)

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            text = self.formatException(record.exc_info) if record.exc_info else ""
            fields = {"traceback": text} if text else {}
            line = json_line(
                record.levelname.lower(), record.getMessage().strip(), redactor, kind=record.name, **fields
            )
            return line.removesuffix("\n")

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    logging.basicConfig(handlers=[handler])
    logging.captureWarnings(capture=True)
