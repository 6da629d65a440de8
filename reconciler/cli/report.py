"""`report`: the reports of several shards as one."""

from pathlib import Path
from typing import Any

import click
import orjson

from reconciler.cli.output import Output, make_printer, output_options
from reconciler.errors import Exit, UsageError


@click.command()
@output_options(Output.TEXT, Output.JSON)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
def report(output: str, files: tuple[Path, ...]) -> Exit:
    r"""Merge the JSON reports of shards into one, and end as the worst of them did.

    Each FILE is the output of `plan -o json` or `apply -o json` with another `--shard`.

    \b
    Examples:
      reconciler report shard-*.json
      reconciler report shard-*.json -o json
    """
    from reconciler.report.shards import merge_reports, report_lines

    try:
        merged = merge_reports({str(file): _read(file) for file in files})
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"A file is no report of this version: {error!r}") from error
    printer = make_printer()
    if output == Output.JSON:
        printer.value(merged)
    else:
        printer.lines(report_lines(merged, len(files), width=printer.width))
    return Exit(merged["exitCode"])


def _read(file: Path) -> dict[str, Any]:
    """Return the JSON object of a file.

    Raises:
        UsageError: It cannot be read, or has no such object.
    """
    try:
        value = orjson.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{file} is no report of `plan -o json` or `apply -o json`")
    return value
