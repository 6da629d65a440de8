"""`pr`: pull requests of the local forge."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.output import (
    Output,
    control_options,
    make_printer,
    output_options,
    require_readable,
    show_unread,
)
from reconciler.errors import Exit, RefusedError, worst
from reconciler.report.console import table_lines
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.cli.pull_requests import ListedPull
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
    from reconciler.cli.pull_requests import list_pulls
    from reconciler.inventory import PullState
    from reconciler.plan.unread import find_unread
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings)
    listed = [f for f in list_pulls(world) if every or f.pull.state is PullState.OPEN]
    recorded = {(s.repository, s.head): s for s in world.inventory.statuses.values()}
    unread = find_unread(world.inventory)
    printer = make_printer(color=not no_color)
    if output == Output.JSON:
        printer.value(
            listing("PullRequest", ({**_value(f), "status": _recorded(f, recorded)} for f in listed))
        )
    else:
        printer.lines(_table(listed, recorded, is_whole=not unread, width=printer.width))
    return worst(show_unread(printer, unread))


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def show(settings: "RunOptions", output: str, name: str, *, no_color: bool) -> Exit:
    """Show the title, the text and the changes of a pull request."""
    from reconciler.cli.pull_requests import find_pulls, list_pulls
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings)
    require_readable(world.inventory, [name])
    listed = find_pulls(list_pulls(world), name)
    printer = make_printer(color=not no_color)
    if output == Output.JSON:
        printer.value(listing("PullRequest", (_value(f, body=True) for f in listed)))
    else:
        for each in listed:
            printer.lines(_details(each))
    return Exit.DONE


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def merge(settings: "RunOptions", output: str, name: str, *, no_color: bool) -> Exit:
    """Merge a pull request that is ready; a draft is approved with `reconciler approve`."""
    from reconciler.cli.pull_requests import find_pulls, list_pulls
    from reconciler.inventory import PullState
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs
    from reconciler.run.plan import plan_fleet

    world = read_inputs(settings, writes=True)
    require_readable(world.inventory, [name])
    listed = find_pulls(list_pulls(world), name)
    printer = make_printer(color=not no_color)
    plan = cache(lambda: plan_fleet(world).plan)
    merged = [(each, _merge(each, plan)) for each in listed]
    if output == Output.JSON:
        printer.value(listing("Merge", ({"pullRequest": each.name, "commit": oid} for each, oid in merged)))
    else:
        printer.lines(_result_line(each, "merged", PullState.MERGED) for each, _ in merged)
    return Exit.DONE


def _merge(listed: "ListedPull", plan: "Callable[[], Plan]") -> str:
    from reconciler.cli.pull_requests import closed_error, outdated_error
    from reconciler.forge.local_merge import OutdatedError

    if closed := closed_error(listed):
        raise closed
    try:
        return listed.forge.merge(listed.pull.number, expect=listed.pull.head_oid)
    except OutdatedError as error:
        raise outdated_error(error, listed, plan) from error


def _result_line(listed: "ListedPull", verb: str, state: str) -> str:
    """Return what was done to a pull request; nothing was if it had that state already."""
    done = f"already {state}" if listed.pull.state == state else verb
    return f"{done} {terminal(listed.name)} {terminal(listed.pull.title)}"


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
@click.option("--comment", default="", help="Why.")
def close(settings: "RunOptions", output: str, name: str, comment: str, *, no_color: bool) -> Exit:
    """Close a pull request: exactly this content is not proposed again."""
    from reconciler.cli.pull_requests import find_pulls, list_pulls
    from reconciler.inventory import PullState
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings, writes=True)
    require_readable(world.inventory, [name])
    listed = find_pulls(list_pulls(world), name)
    printer = make_printer(color=not no_color)
    merged = next((each for each in listed if each.pull.state is PullState.MERGED), None)
    if merged is not None:
        hint = "Revert its commit on the base, or change what its variant asks for."
        raise RefusedError(f"Pull request {merged.name} was merged and cannot be closed", hint=hint)
    for each in listed:
        each.forge.reject(each.pull.number, comment=comment)
    if output == Output.JSON:
        printer.value(listing("Close", ({"pullRequest": each.name} for each in listed)))
    else:
        printer.lines(_result_line(each, "closed", PullState.CLOSED) for each in listed)
    return Exit.DONE


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def reopen(settings: "RunOptions", output: str, name: str, *, no_color: bool) -> Exit:
    """Open a closed pull request again, as its branch is now: it is no rejection any more."""
    from reconciler.cli.pull_requests import find_pulls, list_pulls
    from reconciler.inventory import PullState
    from reconciler.report.json import listing
    from reconciler.run.inputs import read_inputs

    world = read_inputs(settings, writes=True)
    require_readable(world.inventory, [name])
    listed = find_pulls(list_pulls(world), name)
    printer = make_printer(color=not no_color)
    for each in listed:
        each.forge.reopen(each.pull.number)
    if output == Output.JSON:
        printer.value(listing("Reopen", ({"pullRequest": each.name} for each in listed)))
    else:
        printer.lines(_result_line(each, "reopened", PullState.OPEN) for each in listed)
    return Exit.DONE


def _value(listed: "ListedPull", *, body: bool = False) -> dict[str, Any]:
    from reconciler.report.json import pull_value

    value = {**pull_value(listed.pull), "name": listed.name, "package": listed.package}
    return {**value, "body": listed.pull.body} if body else value


def _recorded(listed: "ListedPull", recorded: "Recorded") -> dict[str, Any] | None:
    """Return where the last run saw the package of an open pull request, and since when."""
    from reconciler.forge.local_store import head_branches

    status = recorded.get((listed.view.key.name, head_branches(listed.pull.head)[0]))
    if status is None or listed.pull.state != "open":
        return None
    since = datetime.fromtimestamp(status.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if status.since else None
    return {"phase": status.phase, "since": since, "message": status.message}


def _table(
    listed: Sequence["ListedPull"], recorded: "Recorded", *, is_whole: bool, width: int | None
) -> Iterator[str]:
    if not listed:
        where = "" if is_whole else " in the repositories that were read"
        yield f"There are no open pull requests{where}."
        return
    heads = ("PULL REQUEST", "STATE", "PACKAGE", "TITLE", "SINCE", "STATUS")
    yield from table_lines(heads, [_row(f, _recorded(f, recorded) or {}) for f in listed], width)


def _row(listed: "ListedPull", status: Mapping[str, Any]) -> tuple[str, ...]:
    why = ": ".join(filter(None, (status.get("phase"), status.get("message"))))
    since = (status.get("since") or "")[:10]
    cells = (listed.name, _state(listed), listed.package, listed.pull.title, since, why)
    return tuple(terminal(cell) for cell in cells)


def _details(listed: "ListedPull") -> Iterator[str]:
    pull = listed.pull
    yield f"{terminal(listed.name)}: {terminal(pull.title)} ({_state(listed)})"
    yield f"  package: {terminal(listed.package)}"
    yield f"  head: {terminal(pull.head)} {pull.head_oid}"
    yield f"  base: {terminal(pull.base)}"
    yield ""
    yield from (f"  {terminal(line)}".rstrip() for line in pull.body.splitlines())


def _state(listed: "ListedPull") -> str:
    pull = listed.pull
    return "draft" if pull.state == "open" and pull.draft else str(pull.state)
