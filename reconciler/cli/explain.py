"""`explain`: the change of one package, its obstacles, its revisions, and the origin of its fields."""

from collections.abc import Iterator, Sequence

import click

from reconciler.api.porch import GROUP
from reconciler.base.errors import Exit, UsageError
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import message_line, plural, terminal
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    output_options,
    require_readable,
    show_standing,
)
from reconciler.expand import DesiredVariant
from reconciler.names.ids import ObjectKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change
from reconciler.plan.status import current_states
from reconciler.render.delivery import package_graph
from reconciler.report.build import package_row
from reconciler.report.explain import Origin, Standstill, problems_of
from reconciler.report.json import wire
from reconciler.report.locks import dependency_graph, node_names
from reconciler.report.machine import document
from reconciler.report.text import change_lines, history_lines, problem_lines
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun
from reconciler.run.queries import (
    explain_standstill,
    named_changes,
    plan_about,
    read_history,
    read_origins,
    trace_variant,
)

_NEWEST = "newest"


@click.command()
@control_options
@output_options()
@click.option(
    "--why-not",
    "goal",
    metavar="REVISION",
    help=f"What keeps it from this upstream revision, or `{_NEWEST}`.",
)
@click.option("--history", "shows_history", is_flag=True, help="Its revisions: when, from what, by whom.")
@click.argument("package", metavar="REPO/PACKAGE")
def explain(
    settings: RunOptions, printer: Printer, package: str, *, goal: str | None, shows_history: bool
) -> Exit:
    r"""Explain one package: its change, the reason, and the origin of each field that we put into it.

    With `--why-not` or `--history` it has that section in place of the fields; JSON has both.
    The first lists the obstacles on the way to an upstream revision, written as `v2`, `2` or `web/v2`: the
    manifest may ask for another one, the lock may hold it, the draft may wait for people; every obstacle
    has its next step. The second lists its revisions, the newest first, open drafts before them with their
    difference from main. BY is the author of the commit on main: of a merge the person who approved it.
    Below a revision are the labels that its variant had when it was drafted, and its risks.
    Of Repositories with one name write NAMESPACE/REPO/PACKAGE.

    \b
    Examples:
      reconciler explain edge-east/nginx
      reconciler explain edge-east/nginx --why-not newest
      reconciler explain edge-east/nginx --why-not v7
      reconciler explain edge-east/nginx --history
      reconciler explain edge-east/nginx -o json
    """
    planned = plan_about(settings, package)
    inventory = planned.inputs.inventory
    change = find_change(planned, package)
    variant = trace_variant(planned, change)
    origins, change = read_origins(planned, change, variant)
    standstill = history = None
    if goal is not None:
        standstill = explain_standstill(planned, change, variant, "" if goal == _NEWEST else goal)
    if shows_history:
        history = tuple(read_history(planned.inputs, change))
    view = inventory.views.get(change.repository)
    address = view.remote if view else ""
    problems = problems_of(planned.plan.problems, inventory, change.variant) if change.variant else []
    status = current_states(planned.plan).get(change.package)
    show_standing(printer, inventory.control.standing)
    if printer.form is Output.JSON:
        value = {
            **wire(package_row(change, planned.names, status)),
            "address": address,
            "trace": dict(_trace(variant)),
            "fields": wire(origins),
            "problems": wire(problems),
        }
        if standstill is not None:
            value["standstill"] = wire(standstill)
        if history is not None:
            value["history"] = wire(history)
        printer.value(document("Explanation", value))
        return Exit.DONE
    printer.lines(change_lines(change, planned.names, address=address, status=status, paint=printer.paint))
    if standstill is None:
        printer.lines(problem_lines(problems, paint=printer.paint))
    sources = [origin.source for origin in origins]
    others = ((n, v) for n, v in _trace(variant) if not any(f": {n} = {v}" in source for source in sources))
    printer.lines(f"  {name}: {terminal(value)}" for name, value in others)
    if standstill is not None:
        printer.lines(_standstill_lines(standstill))
    if history is not None:
        printer.lines(["  history:"])
        width = printer.width and printer.width - 4
        printer.lines(f"    {line}" for line in history_lines(history, width=width, paint=printer.paint))
    if standstill is None and history is None:
        printer.lines(_field_lines(origins))
    return Exit.DONE


def find_change(planned: PlannedRun, package: str) -> Change:
    """Return the change of the package that a text names, or the number of its pull request as reports do.

    Raises:
        UsageError: No repository has such a package, and none is planned; or a pull request has several.
        UnavailableError: Its repository could not be read.
    """
    changes = list(named_changes(planned))
    for *names, change in changes:
        if package in names:
            return change
    if "#" in package:
        states = current_states(planned.plan)
        opened = [(name, c) for name, _, c in changes if c.package in states and states[c.package].pull]
        named = [
            (name, c)
            for name, c in opened
            if package == f"{planned.names.repository(c)}#{states[c.package].pull}"
        ]
        if len(named) > 1:
            hint = f"Name one: {', '.join(name for name, _ in named)}."
            raise UsageError(f"{package} has {plural(len(named), 'package')}", hint=hint)
        if named:
            return named[0][1]
    require_readable(planned.inputs.inventory, [package])
    hint = suggest(
        package, [name for name, *_ in changes], otherwise="`reconciler status` shows every package."
    )
    locked = _locked_name(planned, package)
    if locked in node_names(dependency_graph(planned.fleet.locks)):
        hint = f"A cluster needs it: `reconciler graph --why {locked}` shows why."
        called = (locked, locked.partition(":")[2])
        withdrawn = (warning for warning in planned.fleet.locks.warnings if warning.subject in called)
        hint += "".join(f" {warning.message}." for warning in withdrawn)
    elif problem := _likely_cause(planned, package):
        hint += f" Or mend its manifest: {problem}."
    raise UsageError(f"The plan has no package {package}", hint=hint)


def _likely_cause(planned: PlannedRun, package: str) -> Problem | None:
    """Return the problem of the variant with this downstream, else another that may be about it.

    A manifest that cannot be parsed names no package, nor does a set. That of another package is no cause.
    """
    packages = {
        ObjectKey(GROUP, "PackageVariant", *variant.key): (
            downstream.package,
            f"{downstream.repo}/{downstream.package}",
        )
        for variant in planned.inputs.inventory.variants
        if (downstream := variant.manifest.spec.downstream) is not None and downstream.package
    }
    problems = [p for p in planned.plan.problems if p.reason != Reason.REPOSITORY_UNAVAILABLE]
    of_package = [p for p in problems if p.owner is not None and package in packages.get(p.owner, ())]
    of_none = (p for p in problems if p.owner is None or p.owner not in packages)
    return next(iter(of_package), next(of_none, None))


def _locked_name(planned: PlannedRun, text: str) -> str:
    """Return the package of a cluster that a row of `status` names, CLUSTER/NAME; any other text as it is."""
    cluster, _, name = text.partition("/")
    namespace = planned.inputs.inventory.policy.dependencies.shared_namespace
    locks = {scope.cluster: scope.after for scope in planned.fleet.locks.scopes}
    for world in planned.fleet.clusters.worlds:
        if world.cluster == cluster and (lock := locks.get(cluster)):
            graph = package_graph(world, lock, namespace)
            refs = ((graph.ref_of(package), instance) for instance, package in graph.packages.items())
            return next(
                (i.name for ref, i in refs if name in (ref.name, f"{ref.namespace}/{ref.name}")), text
            )
    return text


def _trace(variant: DesiredVariant | None) -> Iterator[tuple[str, str]]:
    """Yield where the variant came from: its set, and which expression gave which field."""
    if variant is None:
        return
    if variant.set_key:
        yield "set", f"PackageVariantSet {variant.set_key}"
    if variant.requested_by:
        yield "required by", ", ".join(variant.requested_by)
    yield from sorted(variant.trace.items())


def _standstill_lines(standstill: Standstill) -> Iterator[str]:
    versions = {
        "on main": standstill.main,
        "in review": standstill.review,
        "requested": standstill.requested,
        "newest": standstill.newest,
    }
    yield f"  revisions: {'; '.join(f'{k} {terminal(v)}' for k, v in versions.items() if v) or 'unknown'}"
    if not standstill.obstacles:
        yield "  Nothing keeps it: main has this revision."
        return
    yield "  what keeps it:"
    for number, obstacle in enumerate(standstill.obstacles, start=1):
        yield f"    {number}. {message_line(obstacle.message)}"
        if obstacle.hint:
            yield f"       next: {message_line(obstacle.hint)}"


def _field_lines(origins: Sequence[Origin]) -> Iterator[str]:
    if origins:
        yield "  fields:"
    for origin in origins:
        place = " ".join(part for part in (origin.file, origin.field) if part)
        value = f" = {origin.value}" if origin.value else ""
        where = f" ({origin.location})" if origin.location else ""
        yield f"    {terminal(place)}{terminal(value)}"
        yield f"      from {terminal(origin.source)}{terminal(where)}"
