"""Options that every command has: colors, notes and progress, details of the work."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from msgspec import Struct

from reconciler.base.errors import Exit, RefusedError, UnavailableError, UsageError
from reconciler.base.progress import Display, current_display, listening, open_task, show_on
from reconciler.base.redact import Redactor
from reconciler.base.text import inert, some, terminal
from reconciler.cli.stderr import Event, rendered
from reconciler.report.console import Paint, ansi, folded, plain

if TYPE_CHECKING:
    from reconciler.inventory.inventory import Inventory
    from reconciler.inventory.standing import Standing
    from reconciler.names.problems import Problem
    from reconciler.policy import OnUnavailable
    from reconciler.run.options import RunOptions

_KEY = "reconciler.common"
_MOST_NAMES = 5


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
        show_on(Display())


def _show(name: str, seconds: float) -> None:
    click.echo(f"{seconds:8.3f} s  {name}", err=True)


def is_quiet() -> bool:
    """Return whether the user wants neither notes nor progress."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"{_KEY}.quiet"))


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


F = TypeVar("F", bound=Callable[..., Any])


class Output(StrEnum):
    """The forms a report comes in."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SARIF = "sarif"
    WIDE = "wide"
    YAML = "yaml"
    JSONL = "jsonl"
    CSV = "csv"


class Printer(Struct, frozen=True):
    """Writes to standard output; nothing gets past its redactor."""

    redactor: Redactor
    paint: Paint = plain
    width: int | None = None
    """Characters of a line of the terminal; None where there is none."""
    error_width: int | None = None
    """The same of standard error."""
    now: float = 0
    """The time from which a person at the terminal reads ages; 0 where texts have dates, to be compared."""
    file: TextIO | None = None
    """Where to print instead of standard output."""
    quiet: bool = False
    """Whether the user wants no notes."""
    form: Output = Output.TEXT
    """The form of the report that is asked for."""

    @property
    def is_colored(self) -> bool:
        """Whether the terminal gets colors."""
        return self.paint is ansi

    def lines(self, lines: Iterable[str], *, err: bool = False) -> None:
        """Print lines of text; on a terminal a line that is too long goes on below it."""
        text = "\n".join(lines)
        if text and err:
            self.event("", text)
        elif text:
            # Masked first: a secret may have spaces.
            self._echo(inert("\n".join(folded([self.redactor.text(text)], self.width))) + "\n")

    def event(self, kind: str, text: str, *, hint: str = "") -> None:
        """Print an event to standard error, such as a `note`."""
        line = rendered(Event(kind, text, hint), self.redactor, self.error_width)
        click.echo(line, nl=False, err=True, color=self.is_colored)

    def notes(self, notes: Iterable[str]) -> None:
        """Print notes to standard error, unless the user wants none."""
        for note in () if self.quiet else notes:
            self.event("note", terminal(note))

    def text(self, text: str) -> None:
        """Print text that brings its own newlines."""
        self._echo(inert(self.redactor.text(text)))

    def value(self, value: Any) -> None:
        """Print a JSON value in its canonical form."""
        from reconciler.report.machine import dump

        self._echo(dump(value, self.redactor))

    def show(self, value: Any, text: str | Iterable[str]) -> None:
        """Print a report in its form: its value as JSON or SARIF, else its text or lines."""
        if self.form in (Output.JSON, Output.SARIF):
            self.value(value)
        elif isinstance(text, str):
            self.text(text)
        else:
            self.lines(text)

    def files(self, lines: Iterable[str], *, written: Iterable[object], removed: Iterable[str] = ()) -> None:
        """Print which files a command wrote and removed: as lines of text, or as JSON."""
        from reconciler.report.machine import document

        files = {"written": [str(path) for path in written], "removed": list(removed)}
        self.show(document("Files", files), lines)

    def _echo(self, text: str) -> None:
        click.echo(text, self.file, nl=False, color=self.is_colored)


def make_printer(
    form: Output = Output.TEXT, *, color: bool = True, wraps: bool = True, file: TextIO | None = None
) -> Printer:
    """Return the printer for this process; the environment gives secrets to mask and turns colors off.

    Unless it wraps, lines stay whole on a terminal too: patches, files and commands are copied. With a `file`
    that gets what is printed.
    """
    paint = ansi if color and file is None and wants_color() else plain
    width = terminal_width(sys.stdout) if wraps and file is None else None
    error_width = terminal_width(sys.stderr) if wraps else None
    redactor, now = Redactor.of_environment(os.environ), time.time() if width else 0
    return Printer(redactor, paint, width, error_width, now, file, is_quiet(), form)


def output_options(*forms: Output, color: bool = True, whole_lines: bool = False) -> Callable[[F], F]:
    """Add `--output` with these forms to a command, the first one by default; it receives a `printer`."""
    forms = forms or (Output.TEXT, Output.JSON)

    def decorate(command: F) -> F:
        @click.option(
            "--output",
            "-o",
            type=click.Choice([str(form) for form in forms]),
            default=str(forms[0]),
            show_default=True,
            help="Form of the report; JSON is an API with a schema.",
        )
        @wraps(command)
        def with_printer(*args: Any, output: str, **options: Any) -> Any:
            printer = make_printer(Output(output), color=color, wraps=not whole_lines)
            return command(*args, printer=printer, **options)

        return with_printer  # type: ignore[return-value]

    return decorate


listing_option = click.option(
    "--all", "unchanged", is_flag=True, help="List also the packages that stay as they are."
)
detailed_exitcode_option = click.option(
    "--detailed-exitcode", is_flag=True, help="Exit 10 instead of 0 where something changes or differs."
)
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="A reconciler.yaml whose settings count: functions, registries, credentials, limits.",
)


def out_file_option(help_: str) -> Callable[[F], F]:
    """Add `--out FILE`, which a command receives as `out`."""
    return click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=help_)


def out_directory_option(help_: str, *, required: bool = False) -> Callable[[F], F]:
    """Add `--out-dir DIRECTORY`, which a command receives as `out`."""
    path = click.Path(file_okay=False, path_type=Path)
    return click.option("--out-dir", "out", type=path, metavar="DIRECTORY", required=required, help=help_)


READER_LEFT = 128 + 13
"""The exit code of a shell for a command that SIGPIPE ended."""


class RedactedStream:
    """A text stream that masks every line before it leaves; an unfinished line leaves when it is flushed.

    When its reader left, as in `apply | head`, what is written goes nowhere: no work ends because of it.
    """

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._pending = ""
        self.reader_left = False

    def write(self, text: str) -> int:
        """Write text; whole lines leave at once."""
        lines, newline, self._pending = (self._pending + text).rpartition("\n")
        if newline:
            self._leave(lines, newline)
        return len(text)

    def _leave(self, lines: str, newline: str) -> None:
        text = self._redactor.text(lines) + newline
        with current_display().printing(text), self._until_reader_leaves():
            self._stream.write(text)

    def flush(self) -> None:
        """Let everything leave that was written."""
        if self._pending:
            self._leave(self._pending, "")
            self._pending = ""
        with self._until_reader_leaves():
            self._stream.flush()

    @contextmanager
    def _until_reader_leaves(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.reader_left = True
            # The buffer is written again when the process ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redact_standard_streams() -> None:
    """Put the redactor before both standard streams of this process."""
    redactor = Redactor.of_environment(os.environ)
    sys.stdout = RedactedStream(sys.stdout, redactor)
    sys.stderr = RedactedStream(sys.stderr, redactor)


def code_for_reader(code: int) -> int:
    """Return the exit code of a command that ends with `code`: that of SIGPIPE where its reader left."""
    is_left = isinstance(sys.stdout, RedactedStream) and sys.stdout.reader_left
    return code or (READER_LEFT if is_left else code)


def show_unread(printer: Printer, unread: "Mapping[Problem, OnUnavailable]") -> set[Exit]:
    """Print a line for each repository that could not be read; return the exit code that this asks for."""
    from reconciler.policy import OnUnavailable

    for problem in unread:
        printer.event("not read", terminal(str(problem)), hint=terminal(problem.hint))
    return {Exit.UNAVAILABLE} if OnUnavailable.FAIL in unread.values() else set()


def show_standing(printer: Printer, standing: "Standing") -> None:
    """Print a note if the commit that was read is not the newest of the control repository."""
    printer.notes([terminal(standing.sentence)] if standing.sentence else [])


def require_readable(inventory: "Inventory", names: Iterable[str]) -> None:
    """Refuse names, as `REPO/PACKAGE` or `REPO#3`, of which it is not known what they are about.

    Where Repositories of several namespaces have a name, only a pattern may leave the namespace out.

    Raises:
        UsageError: The namespace of one of them is missing.
        ConfigurationError, UnavailableError: The repository of one of them was not read.
    """
    texts, views = [*names], inventory.views.values()
    labels = {view.key: inventory.label(view.key) for view in views}
    for text in texts:
        is_labelled = any(_is_of(text, label) for label in labels.values())
        named = [str(key) for key in sorted(labels) if _is_of(text, key.name)]
        if named and not is_labelled and not {*"*?["} & {*text}:
            repository = named[0].partition("/")[2]
            ways = some([f"{name}{text.removeprefix(repository)}" for name in named], _MOST_NAMES)
            message = f"{text} is ambiguous: Repositories of several namespaces are called {repository}"
            raise UsageError(message, hint=f"Name the namespace, too: {ways}.")
    for view in views:
        if any(_is_of(text, labels[view.key]) for text in texts):
            view.require_read()


def _is_of(text: str, repository: str) -> bool:
    """Whether a name is that of a Repository, or begins with it."""
    return text.startswith((f"{repository}/", f"{repository}#")) or text == repository


Command = Callable[..., Any]
shard_option = click.option(
    "--shard",
    default="",
    envvar="RECONCILER_SHARD",
    metavar="I/N",
    help="Only the repositories of part I (from 0) of N; auto/N in a Kubernetes Indexed Job.",
)


def working_copy_option(command: Command) -> Command:
    """Give a command that changes files `--control`; it receives the `root` of that working copy."""

    @click.option(
        "--control",
        default=".",
        envvar="RECONCILER_CONTROL",
        show_default=True,
        help="The working copy of the control repository.",
    )
    @wraps(command)
    def with_root(*args: Any, control: str, **options: Any) -> Any:
        from reconciler.git.working_copy import find_working_copy

        copy = find_working_copy(Path(control))
        if copy is None:
            hint = "Name a working copy with --control, or run the command inside it."
            raise UsageError(f"{control} is no working copy of the control repository", hint=hint)
        return command(*args, root=copy.root, **options)

    return with_root


cache_dir_option = click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="RECONCILER_CACHE_DIR",
    metavar="DIRECTORY",
    help="Where mirrors of repositories are kept; safe to delete.  [default: the user's cache]",
)


def control_options(command: Command) -> Command:
    """Give a command that writes nothing `--control` and `--cache-dir`; it receives them as `settings`.

    A cache that cannot be used is replaced by a temporary one, with a note.
    """
    return _with_control(command, writes=False)


def writing_control_options(command: Command) -> Command:
    """Give a command that writes the same; a cache that cannot be used is an error."""
    return _with_control(command, writes=True)


def usable_cache(cache_dir: Path | None, *, writes: bool) -> Path | None:
    """Return the cache directory, or a temporary one until the end of the command.

    Raises:
        RefusedError: Others may write it, and the command `writes`.
        UnavailableError: This user may not, and the command `writes`.
    """
    from tempfile import TemporaryDirectory

    from reconciler.git.cache import default_cache, open_cache

    try:
        open_cache(cache_dir or default_cache())
    except (RefusedError, UnavailableError) as error:
        if writes:
            raise
        other = TemporaryDirectory(prefix="reconciler-")
        click.get_current_context().call_on_close(other.cleanup)
        make_printer().notes([f"{error}: this run uses a temporary one. {error.hint}"])
        return Path(other.name)
    return cache_dir


def _with_control(command: Command, *, writes: bool) -> Command:
    @click.option(
        "--control",
        default=".",
        envvar="RECONCILER_CONTROL",
        show_default=True,
        help="The control repository: a working copy (its HEAD is read), a bare repository, or a URL.",
    )
    @cache_dir_option
    @wraps(command)
    def with_settings(*args: Any, control: str, cache_dir: Path | None, **options: Any) -> Any:
        from reconciler.run.options import RunOptions

        if click.get_current_context().invoked_subcommand is None:  # else that opens it
            cache_dir = usable_cache(cache_dir, writes=writes)
        return command(*args, settings=RunOptions(control, cache_dir), **options)

    return with_settings


def filter_options(command: Command) -> Command:
    """Give a command `--set` and `--label`; it receives `sets` and `labels`."""
    for option in (
        click.option("--label", "labels", multiple=True, metavar="LABEL", help="Only those with this label."),
        click.option(
            "--set", "sets", multiple=True, metavar="SET", help="Only packages of this PackageVariantSet."
        ),
    ):
        command = option(command)
    return command


def resolving_options(command: Command) -> Command:
    """Give a command the options of dependency resolution; they are in the `resolving` of its `settings`."""

    @click.option(
        "--upgrade", multiple=True, metavar="NAME", help="Let this package take a newer version; repeatable."
    )
    @click.option(
        "--no-dependencies", is_flag=True, help="Keep what is there because others need it at its version."
    )
    @click.option("--prune", is_flag=True, help="Also remove unneeded packages that are retained by default.")
    @wraps(command)
    def with_resolving(
        *args: Any,
        settings: "RunOptions",
        upgrade: tuple[str, ...],
        no_dependencies: bool,
        prune: bool,
        **options: Any,
    ) -> Any:
        from msgspec.structs import replace

        from reconciler.dependencies.lock.format import ResolveOptions

        if no_dependencies and prune:
            raise UsageError(
                "--no-dependencies and --prune contradict each other",
                hint="The first keeps what others need at its version, the second lets it go: choose one.",
            )
        resolving = ResolveOptions(frozenset(upgrade), dependencies=not no_dependencies, prune=prune)
        return command(*args, settings=replace(settings, resolving=resolving), **options)

    return with_resolving


dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would be done.")


def with_shard(settings: "RunOptions", shard: str) -> "RunOptions":
    """Return `settings` for one part of the fleet.

    Raises:
        UsageError: There is no such part.
    """
    from msgspec.structs import replace

    from reconciler.inventory.shard import parse_shard

    return replace(settings, shard=parse_shard(shard, os.environ))
