"""`status`: the state of every package, its age and pull request, and the conditions of its owner."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.output import Output, control_options, make_printer, output_options
from reconciler.errors import Exit, UsageError, worst
from reconciler.report.console import table_lines
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.run.inputs import RunOptions

HEADS = ("KIND", "NAME", "STATUS", "SINCE", "PULL REQUEST", "STALLED", "READY", "REASON", "MESSAGE")


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def status(settings: "RunOptions", output: str, names: Sequence[str], *, no_color: bool) -> Exit:
    r"""Show the state of every package, since when and in which pull request, and its conditions.

    A package is published, in review, not ready, in conflict, rejected, paused, held back, pending or
    stalled; docs/reasons.md explains each.
    Everything is looked at as it is now, in the repositories and on the forges; nothing is written.
    Exits 3 when something is stalled, 5 when a repository cannot be read.

    \b
    Examples:
      reconciler status
      reconciler status default/edge-nginx         one owner, by namespace and name
      reconciler status edge-east/nginx            or by its package
      reconciler status dev/shop/db.io             one package of a cluster
      reconciler status -o json
    """
    from reconciler.report.json import listing
    from reconciler.report.text import problem_lines
    from reconciler.run.queries import read_status

    observed = read_status(settings)
    owners = _chosen(observed.owners, names)
    stalled = any(_condition(owner, "Stalled").get("status") == "True" for owner in owners)
    exits = _exits(set(observed.exits), chosen=bool(names), stalled=stalled)
    printer = make_printer(color=not no_color)
    if output == Output.JSON:
        from reconciler.report.json import exits_value, problem_value

        problems = [problem_value(p) for p in observed.problems]
        printer.value({**listing("Status", owners), "problems": problems, **exits_value(exits)})
    else:
        printer.lines(_table(owners, printer.width))
        if not names:
            printer.lines(problem_lines(observed.problems, paint=printer.paint))
    return worst(exits)


def _exits(exits: set[Exit], *, chosen: bool, stalled: bool) -> set[Exit]:
    """Return 5 if a repository could not be read, 3 if something is stalled; of chosen owners only theirs."""
    own = {Exit.INVALID_INPUT} if stalled else set()
    return own if chosen else own | (exits & {Exit.INVALID_INPUT, Exit.UNAVAILABLE})


def _chosen(owners: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the owners of these names, all without any.

    Raises:
        UsageError: No owner or package has a name.
    """
    from reconciler.cli.pull_requests import suggest

    owner_names = {name for owner in owners for name in _names(owner)}
    for name in names:
        if name not in owner_names:
            hint = suggest(name, owner_names, otherwise="`reconciler status` shows every owner.")
            raise UsageError(f"There is no PackageVariant, set or package of a cluster {name}", hint=hint)
    return [owner for owner in owners if not names or not _names(owner).isdisjoint(names)]


def _names(owner: Mapping[str, Any]) -> set[str]:
    """Return the names that an owner answers to: its own, and that of its package."""
    package = owner.get("package") or {}
    own = f"{package['repository']}/{package['name']}" if package.get("repository") else _name(owner)
    return {_name(owner), own}


def _table(owners: Sequence[Mapping[str, Any]], width: int | None) -> Iterator[str]:
    if not owners:
        yield "There is no PackageVariant and no PackageVariantSet, and no package of ours is left."
        return
    yield from table_lines(HEADS, [_row(owner) for owner in owners], width)


def _row(owner: Mapping[str, Any]) -> tuple[str, ...]:
    stalled, ready = _condition(owner, "Stalled"), _condition(owner, "Ready")
    package = owner.get("package") or {}
    telling = stalled if stalled.get("status") == "True" else ready
    pull = package.get("pullRequest") or {}
    cells = (
        owner.get("kind", ""),
        _name(owner),
        package.get("phase", ""),
        (package.get("since") or "")[:10],
        pull.get("url") or (f"{package.get('repository')}#{pull['number']}" if pull else ""),
        stalled.get("status", ""),
        ready.get("status", ""),
        package.get("reason") or telling.get("reason", ""),
        package.get("message") or telling.get("message", ""),
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
