"""The reference of the command line, docs/cli.md: what `--help` prints, for every command (`make docs`)."""

from collections.abc import Iterator
from pathlib import Path

import click

from reconciler.cli.main import main

FILE = Path(__file__).resolve().parents[2] / "docs/cli.md"
WIDTH = 100
_HEAD = """\
# Commands

What `reconciler COMMAND --help` prints, for every command. This page is generated: `make docs` writes it.

Every command ends with one of the codes in [exit codes](exit-codes.md). JSON output has a schema, which
`reconciler schema` prints.
"""


def cli_reference() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_sections(main, click.Context(main, info_name="reconciler"))])


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all below it, each with its context."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            below._help_option = None  # click keeps that of the first context, which may be a test's
            yield from walk(below, click.Context(below, info_name=name, parent=context))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    for each, its_context in walk(command, context):
        if each is not command:
            its_context.max_content_width = its_context.terminal_width = WIDTH
            title = its_context.command_path
            help_text = each.get_help(its_context).rstrip()
            yield f"{'#' * (title.count(' ') + 1)} `{title}`\n\n```text\n{help_text}\n```\n"


if __name__ == "__main__":
    FILE.write_text(cli_reference(), encoding="utf-8")
