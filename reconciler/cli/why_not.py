"""`why-not`: what keeps a package from an upstream revision."""

from typing import TYPE_CHECKING

import click

from reconciler.base.errors import Exit
from reconciler.base.escape import message_line, terminal
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
    from reconciler.run.options import RunOptions


@click.command(name="why-not")
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("package", metavar="REPO/PACKAGE", shell_complete=complete_names("packages"))
@click.argument("version", default="", metavar="[VERSION]")
def why_not(settings: "RunOptions", output: str, package: str, version: str) -> Exit:
    r"""Explain what keeps a package from an upstream revision: the newest one unless VERSION names another.

    The manifest may ask for another one, the lock may hold it, the draft may wait for people; every
    obstacle has its next step. VERSION is `v2`, `2` or `web/v2`.

    \b
    Examples:
      reconciler why-not edge-east/nginx
      reconciler why-not edge-east/nginx v7
      reconciler why-not edge-east/nginx -o json
    """
    from reconciler.report.json import API_VERSION
    from reconciler.run.plan import plan_run
    from reconciler.run.why_not import explain_standstill

    planned = plan_run(settings)
    change = find_change(planned, package)
    standstill = explain_standstill(planned, change, version)
    printer = make_printer()
    show_standing(printer, planned.inputs.inventory.control.standing)
    name = planned.names.of(change)
    if output == Output.JSON:
        obstacles = [obstacle._asdict() for obstacle in standstill.obstacles]
        value = {**standstill._asdict(), "obstacles": obstacles, "name": name}
        printer.value({**value, "apiVersion": API_VERSION, "kind": "Standstill"})
        return Exit.DONE
    versions = {
        "on main": standstill.main,
        "in review": standstill.review,
        "requested": standstill.requested,
        "newest": standstill.newest,
    }
    lines = [f"{terminal(name)}: {'; '.join(f'{k} {terminal(v)}' for k, v in versions.items() if v)}"]
    for number, obstacle in enumerate(standstill.obstacles, start=1):
        lines.append(f"{number}. {message_line(obstacle.message)}")
        lines += [f"   next: {message_line(obstacle.hint)}"] if obstacle.hint else []
    printer.lines(lines)
    if not standstill.obstacles:
        printer.lines(["Nothing keeps it: main has this revision."])
    return Exit.DONE
