"""Options that every command has: colors, notes and progress, details of the work."""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from reconciler.base.errors import UsageError
from reconciler.base.progress import NoDisplay, open_task, show_on

if TYPE_CHECKING:
    from reconciler.base.timing import TimeSpan

_KEY = "reconciler.common"
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_names(*kinds: str) -> Completer:
    """Return a completion of names that the last run on this machine saw: `packages`, `sets`, …."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        from reconciler.git.cache_directory import is_own_cache
        from reconciler.run.name_cache import default_cache, read_names

        control = str(context.params.get("control") or ".")
        cache_dir = Path(context.params.get("cache_dir") or default_cache())
        if not is_own_cache(cache_dir):
            return []
        names = [name for kind in kinds for name in read_names(cache_dir, control, kind)]
        return [name for name in names if name.startswith(incomplete)]

    return complete


def add_common_options(command: click.Command) -> None:
    """Give a command `--quiet`, `--verbose` and `--no-color`, unless it has them."""
    present = {parameter.name for parameter in command.params}
    command.params += [option for option in _options() if option.name not in present]
    if "quiet" not in present and command.callback is not None:
        command.callback = _in_directory(command.callback)


def _in_directory(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Check where a command runs, and show that it works wherever nothing in it names its work."""

    @wraps(callback)
    def run(*args: Any, **options: Any) -> Any:
        _check_directory()
        with open_task("working"):
            return callback(*args, **options)

    return run


def _check_directory() -> None:
    """Refuse to run where no relative path means anything, and no Git command starts.

    Raises:
        UsageError: The current directory was deleted.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        hint = "Go to a directory that exists, then run again."
        raise UsageError("The current directory was deleted", hint=hint) from error


def _options() -> list[click.Option]:
    def flag(*names: str, text: str) -> click.Option:
        return click.Option(names, is_flag=True, expose_value=False, callback=_remember, help=text)

    return [
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            default="text",
            envvar="RECONCILER_LOG_FORMAT",
            expose_value=False,
            is_eager=True,
            callback=_set_log_format,
            help="Form of the lines on standard error.",
        ),
        click.Option(
            ["--profile"],
            type=click.Path(dir_okay=False),
            metavar="FILE",
            expose_value=False,
            is_eager=True,
            callback=_start_profile,
            help="Write a profile of Python functions, for pstats and snakeviz.",
        ),
        flag("--quiet", "-q", text="Leave out progress and notes."),
        flag("--verbose", "-v", text="Name each Git command and forge request with its time."),
        flag("--no-color", text="No colours, also on a terminal."),
    ]


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a flag for the whole call; what a group was called with holds for its command too."""
    key = f"{_KEY}.{parameter.name}"
    if value and parameter.name == "verbose" and key not in context.meta:
        from reconciler.base import timing

        context.find_root().with_resource(timing.watching(_show))
    if value:
        context.meta[key] = True
    if value and parameter.name == "quiet":
        show_on(NoDisplay())


def _set_log_format(context: click.Context, _: click.Parameter, value: str) -> None:
    if value == "json":
        from reconciler.cli.log import use_json

        context.meta[f"{_KEY}.json"] = True
        use_json()
        show_on(NoDisplay())


def _start_profile(context: click.Context, _: click.Parameter, value: str | None) -> None:
    """Profile the rest of the call; the file is written when it ends, also if it fails."""
    if value is None or f"{_KEY}.profile" in context.meta:
        return
    from cProfile import Profile

    context.meta[f"{_KEY}.profile"] = profile = Profile()

    def end() -> None:
        profile.disable()
        profile.dump_stats(value)

    context.call_on_close(end)
    profile.enable()


def _show(span: "TimeSpan") -> None:
    from reconciler.base.timing import SpanKind

    if _is_set("json"):
        from reconciler.cli.log import span_line

        click.echo(span_line(span), err=True)
        return
    if span.kind in {SpanKind.GIT, SpanKind.FORGE}:
        where = f" {span.where}" if span.kind is SpanKind.GIT and span.where else ""
        click.echo(f"{span.seconds:8.3f} s  {span.name}{where}", err=True)


def _is_set(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"{_KEY}.{name}"))


def is_quiet() -> bool:
    """Return whether the user wants neither notes nor progress."""
    return _is_set("quiet")


def wants_color() -> bool:
    """Return whether to use colors: on a terminal, unless `--no-color` or NO_COLOR is given."""
    refused = _is_set("no_color") or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not refused and sys.stdout.isatty()


def terminal_width(stream: TextIO) -> int | None:
    """Return the characters of a line of a terminal; None elsewhere: other programs get whole lines."""
    if not stream.isatty() or getattr(stream, "form", None) is not None:
        return None
    own = os.terminal_size((0, 0))
    with suppress(OSError, ValueError):  # an emulation that has no file
        own = os.get_terminal_size(stream.fileno())
    # A terminal that nobody gave a size, as in CI, has no columns.
    return shutil.get_terminal_size(own).columns or 80
