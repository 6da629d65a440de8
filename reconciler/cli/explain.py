"""`explain`: the change of one package, its causes, and the origin of its fields."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.base.errors import Exit
from reconciler.base.escape import terminal
from reconciler.cli.common import complete_names
from reconciler.cli.output import (
    Output,
    control_options,
    make_printer,
    output_options,
    show_standing,
)
from reconciler.cli.selecting import find_change

if TYPE_CHECKING:
    from reconciler.expand import DesiredVariant
    from reconciler.plan.changes import Change
    from reconciler.plan.provenance import Origin
    from reconciler.run.options import RunOptions
    from reconciler.run.plan import PlannedRun


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("package", metavar="REPO/PACKAGE", shell_complete=complete_names("packages"))
def explain(settings: "RunOptions", output: str, package: str) -> Exit:
    r"""Explain the change of one package, and the origin of each field that we put into it.

    \b
    Examples:
      reconciler explain edge-east/nginx
      reconciler explain edge-east/nginx -o json
    """
    from reconciler.plan.obstacles import problems_of
    from reconciler.plan.status import current_states
    from reconciler.report.json import API_VERSION, change_value, problem_value
    from reconciler.report.text import change_lines, problem_lines
    from reconciler.run.plan import plan_run

    planned = plan_run(settings)
    change = find_change(planned, package)
    variant = _variant(planned, change)
    origins = _origins(planned, change, variant)
    view = planned.inputs.inventory.repositories.get(change.repository)
    address = view.remote if view else ""
    problems = (
        problems_of(planned.plan.problems, planned.inputs.inventory, change.variant) if change.variant else []
    )
    status = current_states(planned.plan).get(change.package)
    printer = make_printer()
    show_standing(printer, planned.inputs.inventory.control.standing)
    if output == Output.JSON:
        trace = dict(_trace(variant))
        fields = [_value(origin) for origin in origins]
        value = {
            **change_value(change, planned.names, status),
            "apiVersion": API_VERSION,
            "kind": "Explanation",
            "address": address,
            "trace": trace,
            "fields": fields,
            "problems": [problem_value(problem) for problem in problems],
        }
        printer.value(value)
    else:
        lines = change_lines(change, planned.names, address=address, status=status, paint=printer.paint)
        printer.lines(lines)
        printer.lines(problem_lines(problems, paint=printer.paint))
        sources = [origin.source for origin in origins]
        others = (
            (n, v) for n, v in _trace(variant) if not any(f": {n} = {v}" in source for source in sources)
        )
        printer.lines(f"  {name}: {terminal(value)}" for name, value in others)
        printer.lines(_lines(origins))
    return Exit.DONE


def _variant(planned: "PlannedRun", change: "Change") -> "DesiredVariant | None":
    """Return the change's variant with the origin of every field that a set gave it."""
    from reconciler.expand import expand

    traced = {v.key: v for v in expand(planned.inputs.inventory, trace=True).variants}
    variant = next((v for v in planned.desired.variants if v.key == change.variant), None)
    return traced.get(variant.key, variant) if variant else None


def _origins(
    planned: "PlannedRun", change: "Change", variant: "DesiredVariant | None"
) -> "tuple[Origin, ...]":
    """Return where each field of the package came from; none where no variant makes it."""
    from reconciler.plan.provenance import find_origins
    from reconciler.read.contents import fetch_contents
    from reconciler.resolve import Needs

    resolved = next((r for r in planned.resolution.variants if r.variant.key == change.variant), None)
    if variant is None or resolved is None or resolved.downstream != change.package:
        return ()
    inventory = planned.inputs.inventory
    files = change.written.files if change.written else None
    if not files and change.after is not None:
        needs = Needs({change.package.url: frozenset({change.after})})
        files = fetch_contents(needs, planned.inputs.mirrors, inventory.policy.limits).get(change.after)
    return find_origins(resolved, files or {}, inventory, variant.trace)


def _lines(origins: "Sequence[Origin]") -> Iterator[str]:
    if origins:
        yield "  fields:"
    for origin in origins:
        place = " ".join(part for part in (origin.file, origin.field) if part)
        value = f" = {origin.value}" if origin.value else ""
        where = f" ({origin.location})" if origin.location else ""
        yield f"    {terminal(place)}{terminal(value)}"
        yield f"      from {terminal(origin.source)}{terminal(where)}"


def _value(origin: "Origin") -> dict[str, Any]:
    location = origin.location._asdict() if origin.location else None
    return {
        "file": origin.file,
        "field": origin.field,
        "value": origin.value,
        "source": origin.source,
        "location": location,
    }


def _trace(variant: "DesiredVariant | None") -> Iterator[tuple[str, str]]:
    """Yield where the variant came from: its set, and which expression gave which field."""
    if variant is None:
        return
    if variant.set_key:
        yield "set", f"PackageVariantSet {variant.set_key}"
    if variant.requested_by:
        yield "required by", ", ".join(variant.requested_by)
    yield from sorted(variant.trace.items())
