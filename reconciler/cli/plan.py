"""`plan`: show what apply would do, and why."""

from typing import TYPE_CHECKING

import click

from reconciler.cli.output import (
    Output,
    control_options,
    listing_options,
    make_printer,
    output_options,
    resolving_options,
    shard_option,
    with_consent,
)
from reconciler.errors import Exit

if TYPE_CHECKING:
    from reconciler.cli.output import Printer
    from reconciler.run.inputs import RunOptions
    from reconciler.run.plan import PlannedRun

FORMS = (Output.TEXT, Output.JSON, Output.MARKDOWN, Output.SARIF)


@click.command()
@control_options
@shard_option
@output_options(*FORMS)
@click.option("--detailed-exitcode", is_flag=True, help="Exit 10 when changes are pending.")
@listing_options
@resolving_options
@click.option("--allow-deletes", type=click.IntRange(0), default=0, metavar="N", help="As `apply` takes it.")
def plan(
    settings: "RunOptions",
    output: str,
    allow_deletes: int,
    *,
    shard: str,
    no_color: bool,
    detailed_exitcode: bool,
    unchanged: bool,
    quiet: bool,
) -> Exit:
    r"""Show what `apply` would do to every package, and why. Writes nothing.

    The first line has the counts and the plan's checksum. Every package that changes, waits or has
    something to report is listed with a reason; problems follow with file and line. `--all` lists also
    the packages that stay as they are; JSON always has all of them.

    \b
    Examples:
      reconciler plan                              of the repository around the current directory
      reconciler plan --control https://git.example/acme/control.git
      reconciler plan --detailed-exitcode -q       10 when something is pending: for scripts
      reconciler plan -o json > plan.json          for machines; see docs/schemas/plan.schema.json
      reconciler plan -o markdown >> "$GITHUB_STEP_SUMMARY"
    """
    from reconciler.report.summary import exit_of
    from reconciler.run.plan import plan_run

    planned = plan_run(with_consent(settings, allow_deletes, shard))
    printer = make_printer(color=not no_color)
    show_plan(printer, planned, Output(output), quiet=quiet, unchanged=unchanged, detailed=detailed_exitcode)
    return exit_of(planned.plan, detailed=detailed_exitcode)


def show_plan(
    printer: "Printer",
    planned: "PlannedRun",
    output: Output,
    *,
    quiet: bool = False,
    unchanged: bool = False,
    detailed: bool = False,
) -> None:
    """Print a plan in the form that was asked for."""
    from reconciler.report.json import plan_value
    from reconciler.report.markdown import plan_markdown
    from reconciler.report.sarif import plan_sarif
    from reconciler.report.text import plan_lines

    match output:
        case Output.TEXT:
            lines = plan_lines(
                planned.plan,
                planned.names,
                paint=printer.paint,
                quiet=quiet,
                unchanged=unchanged,
                width=printer.width,
            )
            printer.lines(lines)
        case Output.JSON:
            printer.value(plan_value(planned.plan, planned.names, detailed=detailed))
        case Output.MARKDOWN:
            printer.text(plan_markdown(planned.plan, planned.names))
        case Output.SARIF:
            printer.value(plan_sarif(planned.plan, planned.names))
