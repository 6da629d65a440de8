"""`graph`: the dependencies of the fleet, or its packages and their upstreams, as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.base.errors import Exit, UsageError, worst
from reconciler.base.suggestions import suggest
from reconciler.cli.common import complete_names
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    make_printer,
    out_file_option,
    output_options,
    show_standing,
    show_unread,
)

if TYPE_CHECKING:
    from reconciler.base.graph import Graph
    from reconciler.run.options import RunOptions

SUBJECTS = ("dependencies", "packages")


@click.command()
@control_options
@click.option(
    "--of",
    "subject",
    type=click.Choice(SUBJECTS),
    default=SUBJECTS[0],
    show_default=True,
    help="What to draw: what clusters need, or the packages of sets and where they come from.",
)
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
@click.argument(
    "names",
    nargs=-1,
    metavar="[NAME]...",
    shell_complete=complete_names("packages", "sets", "variants", "repositories"),
)
def graph(
    *,
    settings: "RunOptions",
    subject: str,
    cluster: str,
    why: str,
    output: str,
    out: Path | None,
    names: Sequence[str],
) -> Exit:
    r"""Draw the dependencies of the fleet: what needs what, who owns which kind, what is shared or unused.

    It draws the locks as `lock` would write them now; clusters with equal locks are drawn once. A shared
    package is needed by several, and an unused one by none. Pictures are made here: nothing else is needed
    to draw them.

    With `--of packages` it draws each set with the upstream revisions of its packages, on main and in
    review, and the packages themselves; then packages that were made from packages which were made from
    others. More than twelve boxes that are alike become one with their number. Names are packages,
    upstream packages, sets, PackageVariants or repositories, also as patterns.

    \b
    Examples:
      reconciler graph                                        a tree of text
      reconciler graph --cluster prod --why db.io             why is db.io in prod?
      reconciler graph --why Bucket.s3.aws.io                 which package owns it, and why is it there?
      reconciler graph -o mermaid                             for Markdown
      reconciler graph -o svg --out dependencies.svg          light and dark, also on a phone
      reconciler graph --of packages                          sets, upstream revisions, packages
      reconciler graph --of packages blueprints/web           what is made from one package
    """
    from reconciler.report.graph import Picture, draw, graph_value
    from reconciler.report.json import dump

    printer = make_printer(color=False)
    if subject == SUBJECTS[1]:
        picture, exits = _packages(settings, printer, names, cluster, why)
        nothing = "No package is there."
    else:
        picture, exits = _dependencies(settings, printer, names, cluster, why)
        nothing = "No cluster has dependencies. `reconciler graph --of packages` draws the packages of sets."
    if not picture.groups and output == Picture.TEXT:
        printer.lines([nothing])
        return worst(exits)
    if output == Output.JSON:
        text = dump(graph_value(picture), printer.redactor)
    else:
        text = printer.redactor.text(draw(picture, Picture(output)))
    if out is not None:
        out.write_text(text, encoding="utf-8")
    elif output == Picture.TEXT:
        printer.lines([text.removesuffix("\n")])
    else:
        printer.text(text)
    return worst(exits)


def _packages(
    settings: "RunOptions", printer: Printer, names: Sequence[str], cluster: str, why: str
) -> "tuple[Graph, set[Exit]]":
    """Return the graph of packages, and the exits that unread repositories ask for.

    Raises:
        UsageError: Nothing has one of the names, or the options are those of dependencies.
    """
    from fnmatch import fnmatchcase

    from reconciler.base.suggestions import suggest
    from reconciler.plan.unread import find_unread
    from reconciler.run.fleet_graph import draw_fleet, read_packages

    if why:
        hint = "Name packages, sets or repositories as arguments."
        raise UsageError("--why is about dependencies, not packages", hint=hint)
    planned, packages = read_packages(settings)
    clusters = {package.cluster for package in packages} - {""}
    if cluster and cluster not in clusters:
        hint = suggest(cluster, clusters, otherwise="`reconciler status` lists the clusters of packages.")
        raise UsageError(f"No cluster with packages is called {cluster}", hint=hint)
    candidates = {name for package in packages for name in package.names}
    for text in names:
        if not any(fnmatchcase(name, text) for name in candidates):
            hint = suggest(text, candidates, otherwise="`reconciler status -o wide` shows every name.")
            raise UsageError(f"There is no package, set, PackageVariant or repository {text}", hint=hint)
    exits = show_unread(printer, find_unread(planned.inputs.inventory))
    show_standing(printer, planned.inputs.inventory.control.standing)
    return draw_fleet(planned, packages, names, cluster), exits


def _dependencies(
    settings: "RunOptions", printer: Printer, names: Sequence[str], cluster: str, why: str
) -> "tuple[Graph, set[Exit]]":
    """Return the graph of dependencies, and the exits that unread repositories ask for.

    Raises:
        UsageError: No cluster or package has the name, or the arguments are those of packages.
    """
    from reconciler.dependencies.graph import dependency_graph, highlight
    from reconciler.plan.unread import find_unread
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import resolve_inputs

    if names:
        hint = f"Did you mean `reconciler graph --of packages {' '.join(names)}`, or `--why {names[0]}`?"
        raise UsageError("A graph of dependencies takes no names", hint=hint)
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
    return picture, exits


def _missing(name: str, cluster: str, drawn: "Graph", fleet: "Graph") -> UsageError:
    """Return the error that no cluster that is drawn has a package."""
    from reconciler.dependencies.graph import highlight, node_names

    elsewhere = [group.title for group in highlight(fleet, name).groups]
    if cluster and elsewhere:
        hint = f"It is in {', '.join(elsewhere)}."
        return UsageError(f"Cluster {cluster} has no package {name}", hint=hint)
    otherwise = "`reconciler graph` prints the names of packages, and the kinds that they own."
    message = f"No cluster has a package {name}, or one that owns such a kind"
    return UsageError(message, hint=suggest(name, node_names(drawn), otherwise=otherwise))
