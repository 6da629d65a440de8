"""Lines of standard error: events, and bugs with what to report."""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Self

import click

from reconciler.base.defects import LOGGER, DefectError
from reconciler.base.redact import Redactor
from reconciler.base.text import inert
from reconciler.report.console import folded

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


def rendered(event: Event, redactor: Redactor, width: int | None = None) -> str:
    """Return an event as whole lines that are not wider than a terminal."""
    text = f"{event.kind}: {event.text}" if event.kind else event.text
    # A hint below a problem is indented, as in reports.
    hint = f"\n{'' if event.kind == 'error' else '  '}hint: {event.hint}" if event.hint else ""
    # Masked first: a secret may have spaces.
    return inert("\n".join(folded([redactor.text(text + hint)], width))) + "\n"


def show(event: Event, redactor: Redactor, width: int | None = None) -> None:
    """Print an event to standard error."""
    click.echo(rendered(event, redactor, width), err=True, nl=False)


def bug_lines(error: BaseException, redactor: Redactor) -> str:
    """Return the lines about an unforeseen error: its traceback, and the versions to report."""
    import traceback

    text = redactor.text("".join(traceback.format_exception(error)))
    return "\n".join([text, *_OF_A_BUG, *_versions(), ""])


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
        click.echo(inert(self._redactor.text(f"{text}\n{traceback}\n")), err=True, nl=False)

    def summary(self) -> str:
        """Return how often defects of a run were met, and the versions to report; "" if there were none."""
        if not self.counts:
            return ""
        counts = (f"{count - 1} more: {cause}" for cause, count in self.counts.items() if count > 1)
        return "\n".join([*counts, *_OF_DEFECTS, *_versions(), ""])


def _versions() -> Iterator[str]:
    import platform
    from importlib import metadata

    from reconciler import __version__

    yield from (f"  reconciler {__version__}", f"  python {platform.python_version()}")
    yield f"  platform {platform.platform()}"
    for name in ("pygit2", "pydantic", "PyYAML", "ruamel.yaml", "cel-expr-python", "python-sat", "click"):
        try:
            yield f"  {name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"  {name} not installed"
