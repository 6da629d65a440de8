"""`pr`: pull requests of the local forge."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options, require_readable, show_unread
from reconciler.errors import Exit, RefusedError, worst
from reconciler.report.console import table_lines
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.cli.pull_requests import Found
    from reconciler.inventory import RecordedStatus
    from reconciler.plan.changes import Plan
    from reconciler.run.inputs import RunOptions

    Recorded = Mapping[tuple[str, str], RecordedStatus]

FORMS = (Output.TEXT, Output.JSON)


@click.group()
def pr() -> None:
    r"""List, show, merge, close and reopen pull requests of the local forge.

    A pull request is named by repository and number (`edge-east#3`), by its number where that is
    enough, or by its package (`edge-east/nginx`).

    \b
    Examples:
      reconciler pr list
      reconciler pr show edge-east/nginx
      reconciler pr close edge-east#3 --comment "Not before the sale"
    """


@pr.command("list")
@control_options
@output_options(*FORMS)
@click.option("--all", "every", is_flag=True, help="Merged and closed ones too.")
def list_(settings: "RunOptions", output: str, *, no_color: bool, every: bool) -> Exit:
    """List the open pull requests of every repository."""
    from reconciler.cli.pull_requests import list_found
    from reconciler.inventory import PullState
    from reconciler.plan.unread import find_unread
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings)
    found = [f for f in list_found(world) if every or f.pull.state is PullState.OPEN]
    recorded = {(s.repository, s.head): s for s in world.inventory.statuses.values()}
    unread = find_unread(world.inventory)
    printer = make_printer(colour=not no_color)
    if output == Output.JSON:
        printer.value(
            listing("PullRequest", ({**_value(f), "status": _recorded(f, recorded)} for f in found))
        )
    else:
        printer.lines(_table(found, recorded, is_whole=not unread, width=printer.width))
    return worst(show_unread(printer, unread))


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def show(settings: "RunOptions", output: str, name: str, *, no_color: bool) -> Exit:
    """Show one pull request: what it says, and what it would change."""
    from reconciler.cli.pull_requests import find_pulls, list_found
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings)
    require_readable(world.inventory, [name])
    found = find_pulls(list_found(world), name)
    printer = make_printer(colour=not no_color)
    if output == Output.JSON:
        printer.value(listing("PullRequest", (_value(f, body=True) for f in found)))
    else:
        for one in found:
            printer.lines(_details(one))
    return Exit.DONE


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def merge(settings: "RunOptions", output: str, name: str, *, no_color: bool) -> Exit:
    """Merge a pull request that is ready; a draft is approved with `reconciler approve`."""
    from reconciler.cli.pull_requests import find_pulls, list_found
    from reconciler.inventory import PullState
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import plan_fleet

    world = read_inputs(settings, writes=True)
    require_readable(world.inventory, [name])
    found = find_pulls(list_found(world), name)
    printer = make_printer(colour=not no_color)
    plan = cache(lambda: plan_fleet(world).plan)
    merged = [(one, _merge(one, plan)) for one in found]
    if output == Output.JSON:
        printer.value(listing("Merge", ({"pullRequest": one.name, "commit": oid} for one, oid in merged)))
    else:
        printer.lines(_told(one, "merged", PullState.MERGED) for one, _ in merged)
    return Exit.DONE


def _merge(found: "Found", plan: "Callable[[], Plan]") -> str:
    from reconciler.cli.pull_requests import closed_error, outdated_error
    from reconciler.forge.local_merge import OutdatedError

    if closed := closed_error(found):
        raise closed
    try:
        return found.forge.merge(found.pull.number, expect=found.pull.head_oid)
    except OutdatedError as error:
        raise outdated_error(error, found, plan) from error


def _told(found: "Found", verb: str, state: str) -> str:
    """Return what was done to a pull request; nothing was if it had that state already."""
    done = f"already {state}" if found.pull.state == state else verb
    return f"{done} {terminal(found.name)} {terminal(found.pull.title)}"


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
@click.option("--comment", default="", help="Why.")
def close(settings: "RunOptions", output: str, name: str, comment: str, *, no_color: bool) -> Exit:
    """Close a pull request: exactly this content is not proposed again."""
    from reconciler.cli.pull_requests import find_pulls, list_found
    from reconciler.inventory import PullState
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings, writes=True)
    require_readable(world.inventory, [name])
    found = find_pulls(list_found(world), name)
    printer = make_printer(colour=not no_color)
    merged = next((one for one in found if one.pull.state is PullState.MERGED), None)
    if merged is not None:
        hint = "Revert its commit on the base, or change what its variant asks for."
        raise RefusedError(f"Pull request {merged.name} was merged and cannot be closed", hint=hint)
    for one in found:
        one.forge.reject(one.pull.number, comment=comment)
    if output == Output.JSON:
        printer.value(listing("Close", ({"pullRequest": one.name} for one in found)))
    else:
        printer.lines(_told(one, "closed", PullState.CLOSED) for one in found)
    return Exit.DONE


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def reopen(settings: "RunOptions", output: str, name: str, *, no_color: bool) -> Exit:
    """Open a closed pull request again, as its branch is now: it is no rejection any more."""
    from reconciler.cli.pull_requests import find_pulls, list_found
    from reconciler.inventory import PullState
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings, writes=True)
    require_readable(world.inventory, [name])
    found = find_pulls(list_found(world), name)
    printer = make_printer(colour=not no_color)
    for one in found:
        one.forge.reopen(one.pull.number)
    if output == Output.JSON:
        printer.value(listing("Reopen", ({"pullRequest": one.name} for one in found)))
    else:
        printer.lines(_told(one, "reopened", PullState.OPEN) for one in found)
    return Exit.DONE


def _value(found: "Found", *, body: bool = False) -> dict[str, Any]:
    from reconciler.report.json import pull_value

    value = {**pull_value(found.pull), "name": found.name, "package": found.package}
    return {**value, "body": found.pull.body} if body else value


def _recorded(found: "Found", recorded: "Recorded") -> dict[str, Any] | None:
    """Return where the last run saw the package of an open pull request, and since when."""
    from reconciler.forge.local_store import head_branches

    status = recorded.get((found.view.key.name, head_branches(found.pull.head)[0]))
    if status is None or found.pull.state != "open":
        return None
    since = datetime.fromtimestamp(status.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if status.since else None
    return {"phase": status.phase, "since": since, "message": status.message}


def _table(
    found: Sequence["Found"], recorded: "Recorded", *, is_whole: bool, width: int | None
) -> Iterator[str]:
    if not found:
        where = "" if is_whole else " in the repositories that were read"
        yield f"There are no open pull requests{where}."
        return
    heads = ("PULL REQUEST", "STATE", "PACKAGE", "TITLE", "SINCE", "STATUS")
    yield from table_lines(heads, [_row(f, _recorded(f, recorded) or {}) for f in found], width)


def _row(found: "Found", status: Mapping[str, Any]) -> tuple[str, ...]:
    why = ": ".join(filter(None, (status.get("phase"), status.get("message"))))
    since = (status.get("since") or "")[:10]
    cells = (found.name, _state(found), found.package, found.pull.title, since, why)
    return tuple(terminal(cell) for cell in cells)


def _details(found: "Found") -> Iterator[str]:
    pull = found.pull
    yield f"{terminal(found.name)}: {terminal(pull.title)} ({_state(found)})"
    yield f"  package: {terminal(found.package)}"
    yield f"  head: {terminal(pull.head)} {pull.head_oid}"
    yield f"  base: {terminal(pull.base)}"
    yield ""
    yield from (f"  {terminal(line)}".rstrip() for line in pull.body.splitlines())


def _state(found: "Found") -> str:
    pull = found.pull
    return "draft" if pull.state == "open" and pull.draft else str(pull.state)
