"""`history`: the revisions of a package."""

from typing import TYPE_CHECKING

import click

from reconciler.base.errors import Exit, UsageError
from reconciler.cli.common import complete_names
from reconciler.cli.output import (
    Output,
    control_options,
    make_printer,
    output_options,
    require_readable,
    show_standing,
)

if TYPE_CHECKING:
    from reconciler.run.options import RunOptions


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("package", metavar="REPO/PACKAGE", shell_complete=complete_names("packages"))
def history(settings: "RunOptions", output: str, package: str) -> Exit:
    r"""List the revisions of a package, the newest first: when, from which upstream, what changed, by whom.

    BY is the author of the commit on main: of a merge the person who approved it. Open drafts come first,
    with their difference from main.

    \b
    Examples:
      reconciler history edge-east/nginx
      reconciler history edge-east/nginx -o json
    """
    from reconciler.base.suggestions import suggest
    from reconciler.report.history import history_lines, history_value
    from reconciler.run.history import package_names, read_history
    from reconciler.run.inputs import read_inputs

    inputs = read_inputs(settings)
    try:
        entries = read_history(inputs, package)
    except UsageError as error:
        require_readable(inputs.inventory, [package])
        hint = suggest(package, package_names(inputs), otherwise="`reconciler status` shows every package.")
        raise UsageError(str(error), hint=hint) from error
    printer = make_printer()
    show_standing(printer, inputs.inventory.control.standing)
    if output == Output.JSON:
        printer.value(history_value(package, entries))
    else:
        printer.lines(history_lines(entries, width=printer.width, paint=printer.paint))
    return Exit.DONE
