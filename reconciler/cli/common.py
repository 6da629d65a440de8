"""Options that every command has: colors, notes and progress, details of the work."""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TextIO

import click

from reconciler.base.errors import UsageError
from reconciler.base.progress import NoDisplay, listening, open_task, show_on

_KEY = "reconciler.common"


def add_common_options(command: click.Command) -> None:
    """Give a command `--quiet`, and one that reads repositories `--verbose`, unless it has them."""
    present = {parameter.name for parameter in command.params}
    if "quiet" not in present:
        command.params.append(_flag("--quiet", "-q", text="Leave out progress and notes."))
    if "cache_dir" in present and "verbose" not in present:
        command.params.append(
            _flag("--verbose", "-v", text="Name each Git command and forge request with its time.")
        )
    if "quiet" not in present and command.callback is not None:
        command.callback = _in_directory(command.callback)


def _in_directory(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Check where a command runs, and show that it works wherever nothing in it names its work."""

    @wraps(callback)
    def run(*args: Any, **options: Any) -> Any:
        try:
            Path.cwd()
        except FileNotFoundError as error:  # no relative path means anything, and no Git command starts
            hint = "Go to a directory that exists, then run again."
            raise UsageError("The current directory was deleted", hint=hint) from error
        with open_task("working"):
            return callback(*args, **options)

    return run


def _flag(*names: str, text: str) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, callback=_remember, help=text)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a flag for the whole call; what a group was called with holds for its command too."""
    key = f"{_KEY}.{parameter.name}"
    if value and parameter.name == "verbose" and key not in context.meta:
        context.find_root().with_resource(listening(_show))
    if value:
        context.meta[key] = True
    if value and parameter.name == "quiet":
        show_on(NoDisplay())


def _show(name: str, seconds: float) -> None:
    click.echo(f"{seconds:8.3f} s  {name}", err=True)


def _is_set(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"{_KEY}.{name}"))


def is_quiet() -> bool:
    """Return whether the user wants neither notes nor progress."""
    return _is_set("quiet")


def wants_color() -> bool:
    """Return whether to use colors: on a terminal, unless NO_COLOR is set."""
    refused = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not refused and sys.stdout.isatty()


def terminal_width(stream: TextIO) -> int | None:
    """Return the characters of a line of a terminal; None elsewhere: other programs get whole lines."""
    if not stream.isatty():
        return None
    size = os.terminal_size((0, 0))
    with suppress(OSError, ValueError):  # an emulation that has no file
        size = os.get_terminal_size(stream.fileno())
    # A terminal that nobody gave a size, as in CI, has no columns.
    return shutil.get_terminal_size(size).columns or 80
