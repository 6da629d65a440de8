"""Shared parts of commands: common options, the redacted printer and streams, unread repositories."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from reconciler.errors import Exit, Problem, UnavailableError, UsageError
from reconciler.report.console import Paint, ansi, plain
from reconciler.report.escape import inert, terminal
from reconciler.report.redact import Redactor
from reconciler.values import dataclass

if TYPE_CHECKING:
    from reconciler.inventory import Inventory
    from reconciler.policy import OnUnavailable
    from reconciler.run.options import RunOptions
    from reconciler.run.report_cache import ReportCache

_FORMS = ("text", "json")
_FORM = "Form of the report."
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


@dataclass(frozen=True, slots=True)
class Printer:
    """Writes to standard output; nothing gets past its redactor."""

    redactor: Redactor
    paint: Paint = plain
    width: int | None = None
    """Characters of a line of the terminal; None where there is none."""
    file: TextIO | None = None
    """Where to print instead of standard output."""
    printed: list[tuple[bool, str]] = field(default_factory=list)
    """Everything that was printed, and whether to standard error."""

    @property
    def is_colored(self) -> bool:
        """Whether the terminal gets colors."""
        return self.paint is ansi

    def lines(self, lines: Iterable[str], *, err: bool = False) -> None:
        """Print lines of text."""
        text = "\n".join(lines)
        if text:
            self.text(f"{text}\n", err=err)

    def text(self, text: str, *, err: bool = False) -> None:
        """Print text that brings its own newlines."""
        self.repeat([(err, inert(self.redactor.text(text)))])

    def value(self, value: Any) -> None:
        """Print a JSON value in its canonical form."""
        from reconciler.report.json import dump

        self.repeat([(False, dump(value, self.redactor))])

    def repeat(self, texts: Iterable[tuple[bool, str]]) -> None:
        """Print what a printer like this one printed before."""
        for err, text in texts:
            self.printed.append((err, text))
            click.echo(text, None if err else self.file, nl=False, err=err, color=self.is_colored)


def make_printer(*, color: bool = True) -> Printer:
    """Return the printer for this process; the environment gives secrets to mask and turns colors off."""
    colored = color and wants_color()
    # Pipes get whole rows: another program reads them.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return Printer(Redactor.of_environment(os.environ), ansi if colored else plain, width)


@contextmanager
def printer_to(out: Path | None, *, color: bool = True) -> Iterator[Printer]:
    """Yield the printer for this process; what it prints is written to a file, if there is one."""
    if out is None:
        yield make_printer(color=color)
        return
    with out.open("w", encoding="utf-8") as file:
        yield Printer(Redactor.of_environment(os.environ), file=file)


def wants_color() -> bool:
    """Return whether to use colors: on a terminal, unless NO_COLOR is set."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def output_options(*forms: Output) -> Callable[[F], F]:
    """Add `--output` with these forms, and `--no-color`, to a command."""

    def decorate(command: F) -> F:
        command = click.option(
            "--output",
            "-o",
            type=click.Choice([str(form) for form in forms]),
            default=str(Output.TEXT),
            show_default=True,
            help="Form of the report; JSON is an API with a schema.",
        )(command)
        return click.option("--no-color", is_flag=True, help="No colours, also on a terminal.")(command)

    return decorate


def listing_options(command: F) -> F:
    """Add `--all` and `--quiet`, which a command that prints a plan receives as `unchanged` and `quiet`."""
    command = click.option("--quiet", "-q", is_flag=True, help="Leave out progress and notes.")(command)
    return click.option(
        "--all", "unchanged", is_flag=True, help="List also the packages that stay as they are."
    )(command)


def format_option(command: F) -> F:
    """Add `--output text|json`, which the command receives as `output_format`, to one without a report."""
    forms = click.Choice([str(Output.TEXT), str(Output.JSON)])
    command = click.option("--output-format", type=forms, hidden=True)(command)
    return click.option(
        "--output", "-o", "output_format", type=forms, default="text", show_default=True, help=_FORM
    )(command)


def result_options(help_: str, *, required: bool = False) -> Callable[[F], Callable[..., Any]]:
    """Add `--out PATH` and `--output text|json`, which a command receives as `out` and `output_format`.

    `--output PATH`, as it was once, is still understood where the value is clearly a path.
    """

    def decorate(command: F) -> Callable[..., Any]:
        @click.option("--out", type=click.Path(path_type=Path), help=help_)
        @click.option(
            "--output", "-o", "form", default="text", show_default=True, metavar="[text|json]", help=_FORM
        )
        @click.option("--output-format", "old_form", type=click.Choice(_FORMS), hidden=True)
        @wraps(command)
        def with_result(*args: Any, out: Path | None, form: str, old_form: str | None, **options: Any) -> Any:
            if form not in _FORMS and out is None and (os.sep in form or Path(form).is_dir()):
                click.echo("note: --output names the form of the report: write --out PATH", err=True)
                out, form = Path(form), str(Output.TEXT)
            if form not in _FORMS:
                hint = "'text' or 'json' is the form of the report; a path is given with --out"
                raise click.BadParameter(f"{form!r} is none: {hint}", param_hint="'--output' / '-o'")
            if required and out is None:
                raise click.UsageError("Missing option '--out'.")
            return command(*args, out=out, output_format=old_form or form, **options)

        return with_result

    return decorate


class RedactedStream:
    """A text stream that masks every line before it leaves; an unfinished line leaves when it is flushed."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._pending = ""

    def write(self, text: str) -> int:
        """Write text; whole lines leave at once."""
        lines, newline, self._pending = (self._pending + text).rpartition("\n")
        if newline:
            self._stream.write(self._redactor.text(lines) + newline)
        return len(text)

    def flush(self) -> None:
        """Let everything leave that was written."""
        if self._pending:
            self._stream.write(self._redactor.text(self._pending))
            self._pending = ""
        self._stream.flush()

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


def show_unread(printer: Printer, unread: "Mapping[Problem, OnUnavailable]") -> set[Exit]:
    """Print a line for each repository that could not be read; return the exit code that this asks for."""
    from reconciler.policy import OnUnavailable

    for problem in unread:
        printer.lines([f"not read: {terminal(str(problem))}"], err=True)
        if problem.hint:
            printer.lines([f"  hint: {terminal(problem.hint)}"], err=True)
    return {Exit.UNAVAILABLE} if OnUnavailable.FAIL in unread.values() else set()


def require_readable(inventory: "Inventory", names: Iterable[str]) -> None:
    """Refuse names, as `REPO/PACKAGE` or `REPO#3`, in repositories about which nothing is known.

    Raises:
        UnavailableError: The repository of one of them could not be read.
    """
    named = {name.partition("/")[0].partition("#")[0] for name in names}
    for view in inventory.repositories.values():
        if view.problem is not None and view.key.name in named:
            message = f"Repository {view.key} was not read: {view.problem.message}"
            raise UnavailableError(message, hint=view.problem.hint)


Command = Callable[..., Any]


def control_options(command: Command) -> Command:
    """Give a command `--control` and `--cache-dir`; it receives them as one `settings`."""

    @click.option(
        "--control",
        default=".",
        envvar="RECONCILER_CONTROL",
        show_default=True,
        help="The control repository: a working copy (its HEAD is read), a bare repository, or a URL.",
    )
    @click.option(
        "--cache-dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="RECONCILER_CACHE_DIR",
        help="Where mirrors of repositories are kept; safe to delete.  [default: the user's cache]",
    )
    @wraps(command)
    def with_settings(*args: Any, control: str, cache_dir: Path | None, **options: Any) -> Any:
        from reconciler.run.options import RunOptions

        return command(*args, settings=RunOptions(control, cache_dir), **options)

    return with_settings


def shard_option(command: Command) -> Command:
    """Give a command `--shard`: the part of the fleet that is this run's."""
    return click.option(
        "--shard",
        default="",
        envvar="RECONCILER_SHARD",
        metavar="I/N",
        help="Only the repositories of part I (from 0) of N; auto/N in a Kubernetes Indexed Job.",
    )(command)


full_option = click.option(
    "--full", is_flag=True, help="Compute everything, also if nothing changed since the last run."
)


def open_reports(settings: "RunOptions", printer: Printer, *, writes: bool = False) -> "ReportCache":
    """Return the kept reports of this command with these options, printed like this."""
    from reconciler.run.report_cache import ReportCache

    context = click.get_current_context()
    options = sorted((name, str(value)) for name, value in context.params.items() if name != "full")
    look = [str(printer.is_colored), str(printer.width)]
    question = [context.command_path, *(part for option in options for part in option), *look]
    return ReportCache(settings, question, os.environ, writes=writes)


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

    @click.option("--upgrade", multiple=True, metavar="NAME", help="Let this package move; repeatable.")
    @click.option("--no-dependencies", is_flag=True, help="Leave what is installed for others as it is.")
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
        from dataclasses import replace

        from reconciler.dependencies.update.options import ResolveOptions

        if no_dependencies and prune:
            raise UsageError("--no-dependencies and --prune contradict each other")
        resolving = ResolveOptions(frozenset(upgrade), dependencies=not no_dependencies, prune=prune)
        return command(*args, settings=replace(settings, resolving=resolving), **options)

    return with_resolving


dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would be done.")


def with_shard(settings: "RunOptions", shard: str) -> "RunOptions":
    """Return `settings` for one part of the fleet.

    Raises:
        UsageError: There is no such part.
    """
    from dataclasses import replace

    from reconciler.plan.shard import parse_shard

    return replace(settings, shard=parse_shard(shard, os.environ))
