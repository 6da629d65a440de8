"""`report`: the reports of several shards as one."""

from pathlib import Path
from typing import Any

import click
import orjson

from reconciler.base.errors import Exit, UsageError
from reconciler.cli.output import Output, make_printer, output_options


@click.command()
@output_options(Output.TEXT, Output.JSON)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
def report(output: str, files: tuple[Path, ...]) -> Exit:
    r"""Merge the JSON reports of shards into one, and end as the worst of them did.

    Each FILE is the output of `plan -o json` or `apply -o json` with another `--shard`. Where the report of
    a shard is missing, it is named, and the exit code is 5.

    \b
    Examples:
      reconciler report shard-*.json
      reconciler report shard-*.json -o json
    """
    from reconciler.report.shards import merge_reports, report_lines

    try:
        reports = {str(file): _read(file) for file in dict.fromkeys(files)}
        merged = merge_reports({name: value for name, value in reports.items() if value is not None})
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"A file is no report of this version: {error!r}") from error
    printer = make_printer()
    if output == Output.JSON:
        printer.value(merged)
    else:
        printer.lines(report_lines(merged, width=printer.width))
    return Exit(merged["exitCode"])


def _read(file: Path) -> dict[str, Any] | None:
    """Return the JSON object of a file, None if it is empty: that run did not get to its report.

    Raises:
        UsageError: It cannot be read, or has no such object.
    """
    hint = "Write it with `reconciler apply --shard I/N -o json >FILE`."
    try:
        data = file.read_bytes()
        value = orjson.loads(data) if data else None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=hint) from error
    except ValueError as error:
        raise UsageError(f"{file} is no JSON: {error}", hint=hint) from error
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{file} is no report of `plan -o json` or `apply -o json`")
    return value
