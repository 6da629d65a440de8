"""`explain`: why one package sees what it sees."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options
from reconciler.errors import Exit, UsageError
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.plan.changes import Change
    from reconciler.run import Planned, Settings


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("package", metavar="REPO/PACKAGE")
def explain(settings: "Settings", output: str, package: str, *, no_color: bool) -> Exit:
    r"""Say why one package sees what it sees, and where that comes from.

    \b
    Examples:
      reconciler explain edge-east/nginx
      reconciler explain edge-east/nginx -o json
    """
    from reconciler.report.json import change_value
    from reconciler.report.text import change_lines
    from reconciler.run import make_plan

    planned = make_plan(settings)
    change = _find(planned, package)
    printer = make_printer(colour=not no_color)
    if output == Output.JSON:
        trace = dict(_trace(planned, change))
        printer.value({**change_value(change, planned.names), "kind": "Explanation", "trace": trace})
    else:
        printer.lines(change_lines(change, planned.names, paint=printer.paint))
        printer.lines(f"  {name}: {terminal(value)}" for name, value in _trace(planned, change))
    return Exit.DONE


def _find(planned: "Planned", package: str) -> "Change":
    from reconciler.cli.selection import suggest

    names = planned.names
    for change in planned.plan.changes:
        if package in (names.of(change), f"{change.repository.name}/{change.package.path}"):
            return change
    known = [names.of(change) for change in planned.plan.changes]
    raise UsageError(f"The plan holds no package {package}", hint=suggest(package, known))


def _trace(planned: "Planned", change: "Change") -> Iterator[tuple[str, str]]:
    """Yield where the variant came from: its set, and which expression gave which field."""
    variant = next((v for v in planned.desired.variants if v.key == change.variant), None)
    if variant is None:
        return
    if variant.set_key:
        yield "set", f"PackageVariantSet {variant.set_key}"
    yield from sorted(variant.trace.items())
