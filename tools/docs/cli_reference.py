"""The reference of the command line, docs/reference/cli.md: the `--help` of every command (`make docs`)."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from reconciler.cli.main import main

FILE = Path(__file__).resolve().parents[2] / "docs/reference/cli.md"
WIDTH = 100
_HEAD = """\
# Commands

What `reconciler COMMAND --help` prints, for every command. Options that many commands have are here only:
each `--help` lists them too. This page is generated: `make docs` writes it.

```text
{shared}
```

Every command ends with one of the codes in [exit codes](../exit-codes.md). JSON output has a schema, which
`reconciler schema` prints.
"""


_MANY = 10
"""Commands that have an option in the same words, from which on it is listed once."""
_OPTION = re.compile(r"  --?\w.*\n(?: {6,}.*\n?)*", re.MULTILINE)


def cli_reference() -> str:
    """Return the page."""
    sections = list(_sections(main, click.Context(main, info_name="reconciler")))
    words = [" ".join(option.split()) for text in sections for option in _options(text)]
    shared = [option for option, count in Counter(words).most_common() if count >= _MANY]
    lines = (line for option in sorted(shared) for line in _formatted(option))
    pages = [_without(text, set(shared)) for text in sections]
    return "\n".join([_HEAD.format(shared="\n".join(lines)), *pages])


def _options(section: str) -> list[str]:
    return _OPTION.findall(section.partition("\nOptions:\n")[2])


def _formatted(option: str) -> Iterator[str]:
    name, text = re.fullmatch(r"((?:-\w, )?--[a-z-]+(?: (?:\[[^]]*\]|[A-Z]+))?) (.*)", option).groups()  # type: ignore[union-attr]
    yield f"  {name}"
    yield f"      {text}"


def _without(section: str, shared: set[str]) -> str:
    head, title, rest = section.partition("\nOptions:\n")
    kept = _OPTION.sub(lambda match: "" if " ".join(match[0].split()) in shared else match[0], rest)
    return f"{head}{title if kept.strip(' `' + chr(10)) else ''}{kept}"


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
