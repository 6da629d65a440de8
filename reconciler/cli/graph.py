"""`graph`: the dependencies of the fleet as a tree of text."""

from collections.abc import Iterable

import click

from reconciler.base.errors import Exit, UsageError, worst
from reconciler.base.suggestions import suggest
from reconciler.cli.output import control_options, make_printer, show_standing, show_unread
from reconciler.plan.build import find_unread
from reconciler.report.locks import Group, dependency_graph, highlight, node_names, text_tree
from reconciler.run.options import RunOptions
from reconciler.run.plan import read_inputs, resolve_inputs


@click.command()
@control_options
@click.option("--cluster", default="", metavar="NAME", help="Only this cluster.")
@click.option(
    "--why",
    default="",
    metavar="PACKAGE|KIND",
    help="Only one path from a manifest to a package, or to the owner of a kind.",
)
def graph(*, settings: RunOptions, cluster: str, why: str) -> Exit:
    r"""Draw the dependencies of the fleet: what needs what, who owns which kind, what is shared or unused.

    It draws the locks as `lock` would write them now; clusters with equal locks are drawn once. A shared
    package is needed by several, and an unused one by none.

    \b
    Examples:
      reconciler graph                              every cluster
      reconciler graph --cluster prod --why db.io   why is db.io in prod?
      reconciler graph --why Bucket.s3.aws.io       which package owns it, and why is it there?
    """
    printer = make_printer(color=False)
    inputs = read_inputs(settings)
    exits = show_unread(printer, find_unread(inputs.inventory))
    show_standing(printer, inputs.inventory.control.standing)
    fleet = resolve_inputs(inputs)
    locks = fleet.locks
    labels = {
        (world.cluster, install.namespace, install.name): install.label
        for world in fleet.clusters.worlds
        for install in world.installs
        if install.label
    }
    clusters = {scope.cluster for scope in locks.scopes}
    if cluster and cluster not in clusters:
        otherwise = "`reconciler lock --check` lists the clusters with dependencies."
        hint = suggest(cluster, clusters, otherwise=otherwise)
        raise UsageError(f"No cluster with dependencies is called {cluster}", hint=hint)
    groups = dependency_graph(locks, cluster=cluster, labels=labels)
    if why:
        every, groups = groups, highlight(groups, why)
        if not groups:
            raise _missing(why, cluster, every, dependency_graph(locks))
    if not groups:
        printer.lines(["No cluster has dependencies. `reconciler status` lists the packages of the fleet."])
    else:
        printer.lines(text_tree(groups))
    return worst(exits)


def _missing(name: str, cluster: str, drawn: Iterable[Group], fleet: Iterable[Group]) -> UsageError:
    """Return the error that no cluster that is drawn has a package."""
    elsewhere = [group.title for group in highlight(fleet, name)]
    if cluster and elsewhere:
        hint = f"Name one that has it: {', '.join(elsewhere)}."
        return UsageError(f"Cluster {cluster} has no package {name}", hint=hint)
    otherwise = "`reconciler graph` prints the names of packages, and the kinds that they own."
    message = f"No cluster has a package {name}, or one that owns such a kind"
    return UsageError(message, hint=suggest(name, node_names(drawn), otherwise=otherwise))
