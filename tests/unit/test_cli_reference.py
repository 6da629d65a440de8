"""Every command is documented: docs/reference/cli.md is what `--help` says, and each help has an example."""

import re

import click
import pytest

from reconciler.cli.main import main
from tests.support.cli_reference import FILE, cli_reference, walk

LEAVES = [
    (context.command_path, command)
    for command, context in walk(main, click.Context(main, info_name="reconciler"))
    if not isinstance(command, click.Group)
]


def test_the_reference_is_what_the_commands_say() -> None:
    assert FILE.read_text(encoding="utf-8") == cli_reference(), "run `make docs`"


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[path for path, _ in LEAVES])
def test_the_help_of_a_command_has_an_example_of_it(path: str, command: click.Command) -> None:
    examples = (command.help or "").partition("Example")[2]
    assert re.search(rf"\b{path}\b", examples)
