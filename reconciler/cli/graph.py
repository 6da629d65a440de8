"""`graph`: the dependencies of the fleet as a tree of text, or for Markdown."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.base.errors import Exit, UsageError, worst
from reconciler.base.suggestions import suggest
from reconciler.cli.output import (
    Output,
    control_options,
    make_printer,
    out_file_option,
    output_options,
    show_standing,
    show_unread,
)

if TYPE_CHECKING:
    from reconciler.report.graph import Graph
    from reconciler.run.options import RunOptions


@click.command()
@control_options
@click.option(
    "--cluster",
    default="",
    metavar="NAME",
    help="Only this cluster.",
)
@click.option(
    "--why",
    default="",
    metavar="PACKAGE|KIND",
    help="Highlight one path from a manifest to a package, or to the owner of a kind.",
)
@output_options(Output.TEXT, Output.MERMAID, Output.JSON)
@out_file_option("Write the picture to this file.")
def graph(*, settings: "RunOptions", cluster: str, why: str, output: str, out: Path | None) -> Exit:
    r"""Draw the dependencies of the fleet: what needs what, who owns which kind, what is shared or unused.

    It draws the locks as `lock` would write them now; clusters with equal locks are drawn once. A shared
    package is needed by several, and an unused one by none.

    \b
    Examples:
      reconciler graph                                        a tree of text
      reconciler graph --cluster prod --why db.io             why is db.io in prod?
      reconciler graph --why Bucket.s3.aws.io                 which package owns it, and why is it there?
      reconciler graph -o mermaid                             for Markdown
    """
    from reconciler.plan.unread import find_unread
    from reconciler.report.dependency_graph import dependency_graph, highlight
    from reconciler.report.graph import graph_value, mermaid, text_tree
    from reconciler.report.json import dump
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import resolve_inputs

    printer = make_printer(color=False)
    inputs = read_inputs(settings)
    exits = show_unread(printer, find_unread(inputs.inventory))
    show_standing(printer, inputs.inventory.control.standing)
    locks = resolve_inputs(inputs).locks
    clusters = {scope.cluster for scope in locks.scopes}
    if cluster and cluster not in clusters:
        otherwise = "`reconciler lock --check` lists the clusters with dependencies."
        hint = suggest(cluster, clusters, otherwise=otherwise)
        raise UsageError(f"No cluster with dependencies is called {cluster}", hint=hint)
    picture = dependency_graph(locks, cluster=cluster)
    if why:
        every, picture = picture, highlight(picture, why)
        if not picture.groups:
            raise _missing(why, cluster, every, dependency_graph(locks))
    if not picture.groups and output == Output.TEXT:
        printer.lines(["No cluster has dependencies. `reconciler status` lists the packages of the fleet."])
        return worst(exits)
    if output == Output.JSON:
        text = dump(graph_value(picture), printer.redactor)
    else:
        draw = mermaid if output == Output.MERMAID else text_tree
        text = printer.redactor.text(draw(picture))
    if out is not None:
        out.write_text(text, encoding="utf-8")
    elif output == Output.TEXT:
        printer.lines([text.removesuffix("\n")])
    else:
        printer.text(text)
    return worst(exits)


def _missing(name: str, cluster: str, drawn: "Graph", fleet: "Graph") -> UsageError:
    """Return the error that no cluster that is drawn has a package."""
    from reconciler.report.dependency_graph import highlight, node_names

    elsewhere = [group.title for group in highlight(fleet, name).groups]
    if cluster and elsewhere:
        hint = f"Name one that has it: {', '.join(elsewhere)}."
        return UsageError(f"Cluster {cluster} has no package {name}", hint=hint)
    otherwise = "`reconciler graph` prints the names of packages, and the kinds that they own."
    message = f"No cluster has a package {name}, or one that owns such a kind"
    return UsageError(message, hint=suggest(name, node_names(drawn), otherwise=otherwise))
