"""`graph`: the dependencies of a cluster or of the fleet as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.common import complete_names
from reconciler.cli.output import (
    Output,
    control_options,
    make_printer,
    out_file_option,
    output_options,
    show_unread,
)
from reconciler.errors import Exit, UsageError, worst
from reconciler.suggestions import suggest

if TYPE_CHECKING:
    from reconciler.run.options import RunOptions


@click.command()
@control_options
@click.option(
    "--cluster",
    default="",
    metavar="NAME",
    help="Only this cluster.",
    shell_complete=complete_names("clusters"),
)
@click.option(
    "--why",
    default="",
    metavar="PACKAGE|KIND",
    help="Highlight one path from a manifest to a package, or to the owner of a kind.",
)
@output_options(Output.TEXT, Output.MERMAID, Output.DOT, Output.SVG, Output.JSON)
@out_file_option("Write the picture to this file.")
def graph(settings: "RunOptions", cluster: str, why: str, output: str, out: Path | None) -> Exit:
    r"""Draw the dependencies of the fleet: what needs what, who owns which kind, what is shared or unused.

    It draws the locks as `lock` would write them now; clusters with equal locks are drawn once. A shared
    package is needed by several, and an unused one by none. Pictures are made here: nothing else is needed
    to draw them.

    \b
    Examples:
      reconciler graph                                        a tree of text
      reconciler graph --cluster prod --why db.io             why is db.io in prod?
      reconciler graph --why Bucket.s3.aws.io                 which package owns it, and why is it there?
      reconciler graph -o mermaid                             for Markdown
      reconciler graph -o svg --out dependencies.svg          light and dark, also on a phone
    """
    from reconciler.dependencies.graph import dependency_graph, highlight
    from reconciler.plan.unread import find_unread
    from reconciler.report.graph import Picture, draw, graph_value
    from reconciler.report.json import dump
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import resolve_inputs

    inputs = read_inputs(settings)
    printer = make_printer(color=False)
    exits = show_unread(printer, find_unread(inputs.inventory))
    locks = resolve_inputs(inputs).locks
    clusters = {scope.cluster for scope in locks.scopes}
    if cluster and cluster not in clusters:
        otherwise = "`reconciler lock --check` lists the clusters with dependencies."
        hint = suggest(cluster, clusters, otherwise=otherwise)
        raise UsageError(f"No cluster with dependencies is called {cluster}", hint=hint)
    picture = dependency_graph(locks, cluster=cluster)
    if why:
        picture = highlight(picture, why)
        if not picture.groups:
            hint = "`reconciler graph` prints the names of packages, and the kinds that they own."
            raise UsageError(f"No package is called {why}, and none owns such a kind", hint=hint)
    if not picture.groups and output == Picture.TEXT:
        printer.lines(["No cluster has dependencies."])
        return worst(exits)
    if output == Output.JSON:
        text = dump(graph_value(picture), printer.redactor)
    else:
        text = printer.redactor.text(draw(picture, Picture(output)))
    if out is not None:
        out.write_text(text, encoding="utf-8")
    else:
        printer.text(text)
    return worst(exits)
