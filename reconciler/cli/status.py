"""`status`: the conditions that the last apply recorded."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options
from reconciler.errors import Exit
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.run import Settings


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def status(settings: "Settings", output: str, names: Sequence[str], *, no_color: bool) -> Exit:
    r"""Show the conditions of every PackageVariant, set and package of a cluster, as last applied.

    They are read from the status branch of the control repository; nothing is computed anew.
    Exits 3 when something is stalled.

    \b
    Examples:
      reconciler status
      reconciler status default/edge-nginx         one owner, by namespace and name
      reconciler status dev/shop/db.io             one package of a cluster
      reconciler status -o json
    """
    from reconciler.report.json import listing
    from reconciler.run import read_status

    owners = [owner for owner in read_status(settings) if not names or _name(owner) in names]
    printer = make_printer(colour=not no_color)
    if output == Output.JSON:
        printer.value(listing("Status", owners))
    else:
        printer.lines(_table(owners))
    stalled = any(_condition(owner, "Stalled").get("status") == "True" for owner in owners)
    return Exit.INVALID_INPUT if stalled else Exit.DONE


def _table(owners: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not owners:
        yield "Nothing was recorded yet: run `reconciler apply`."
        return
    shown = [("KIND", "NAME", "STALLED", "READY", "REASON", "MESSAGE"), *map(_row, owners)]
    widths = [max(len(row[i]) for row in shown) for i in range(5)]
    for row in shown:
        yield "  ".join([*(c.ljust(w) for c, w in zip(row[:5], widths, strict=True)), row[5]]).rstrip()


def _row(owner: Mapping[str, Any]) -> tuple[str, ...]:
    stalled, ready = _condition(owner, "Stalled"), _condition(owner, "Ready")
    telling = stalled if stalled.get("status") == "True" else ready
    cells = (
        owner.get("kind", ""),
        _name(owner),
        stalled.get("status", "Unknown"),
        ready.get("status", "Unknown"),
        telling.get("reason", ""),
        telling.get("message", ""),
    )
    return tuple(terminal(str(cell)) for cell in cells)


def _condition(owner: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in owner.get("conditions", ()) if c.get("type") == kind), {})


def _name(owner: Mapping[str, Any]) -> str:
    """Return how an owner is asked for: a cluster's package has the cluster before its namespace, if any."""
    if cluster := owner.get("cluster"):
        parts = (cluster, owner.get("namespace"), owner.get("name"))
        return "/".join(part for part in parts if part)
    return f"{owner.get('namespace', '')}/{owner.get('name', '')}"
