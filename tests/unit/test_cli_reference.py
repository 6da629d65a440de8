"""Every command is documented: docs/reference/cli.md is what `--help` says."""

from tools.docs.cli_reference import FILE, cli_reference


def test_the_reference_is_what_the_commands_say() -> None:
    assert FILE.read_text(encoding="utf-8") == cli_reference(), "run `make docs`"
