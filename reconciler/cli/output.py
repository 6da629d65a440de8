"""How every command prints: one printer that redacts, and colours only on a terminal."""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import click

from reconciler.report.escape import inert
from reconciler.report.paint import Paint, ansi, plain
from reconciler.report.redact import Redactor

F = TypeVar("F", bound=Callable[..., Any])


class Output(StrEnum):
    """The forms a report comes in."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SARIF = "sarif"


@dataclass(frozen=True, slots=True)
class Printer:
    """Writes to standard output; nothing gets past its redactor."""

    redactor: Redactor
    paint: Paint = plain

    def lines(self, lines: Iterable[str], *, err: bool = False) -> None:
        """Print lines of text."""
        text = "\n".join(lines)
        if text:
            self.text(f"{text}\n", err=err)

    def text(self, text: str, *, err: bool = False) -> None:
        """Print text that brings its own newlines."""
        click.echo(inert(self.redactor.text(text)), nl=False, err=err, color=self.paint is ansi)

    def value(self, value: Any) -> None:
        """Print a JSON value in its canonical form."""
        from reconciler.report.json import dump

        click.echo(dump(value, self.redactor), nl=False)


def make_printer(*, colour: bool = True) -> Printer:
    """Return the printer for this process: its environment says what is secret and whether to colour."""
    coloured = colour and wants_colour()
    return Printer(Redactor.of_environment(os.environ), ansi if coloured else plain)


def wants_colour() -> bool:
    """Tell whether colours are wanted: on a terminal, and unless NO_COLOR says otherwise."""
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
