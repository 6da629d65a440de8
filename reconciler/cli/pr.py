"""`pr`: pull requests of the local forge."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import control_options
from reconciler.cli.output import Output, make_printer, output_options
from reconciler.errors import Exit
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.cli.selection import Found
    from reconciler.run import Settings

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
def list_(settings: "Settings", output: str, *, no_color: bool, every: bool) -> Exit:
    """List the open pull requests of every repository."""
    from reconciler.cli.selection import list_found
    from reconciler.inventory import PullState
    from reconciler.report.json import listing
    from reconciler.run import read_world

    found = [f for f in list_found(read_world(settings)) if every or f.pull.state is PullState.OPEN]
    printer = make_printer(colour=not no_color)
    if output == Output.JSON:
        printer.value(listing("PullRequest", (_value(f) for f in found)))
    else:
        printer.lines(_table(found))
    return Exit.DONE


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def show(settings: "Settings", output: str, name: str, *, no_color: bool) -> Exit:
    """Show one pull request: what it says, and what it would change."""
    from reconciler.cli.selection import find_pulls, list_found
    from reconciler.report.json import listing
    from reconciler.run import read_world

    found = find_pulls(list_found(read_world(settings)), name)
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
def merge(settings: "Settings", output: str, name: str, *, no_color: bool) -> Exit:
    """Merge a pull request that is ready; a draft is approved with `reconciler approve`."""
    from reconciler.cli.selection import find_pulls, list_found
    from reconciler.report.json import listing
    from reconciler.run import read_world

    found = find_pulls(list_found(read_world(settings, writes=True)), name)
    printer = make_printer(colour=not no_color)
    merged = [(one, one.forge.merge(one.pull.number, expect=one.pull.head_oid)) for one in found]
    if output == Output.JSON:
        printer.value(listing("Merge", ({"pullRequest": one.name, "commit": oid} for one, oid in merged)))
    else:
        printer.lines(f"merged {terminal(one.name)} {terminal(one.pull.title)}" for one, _ in merged)
    return Exit.DONE


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
@click.option("--comment", default="", help="Why.")
def close(settings: "Settings", output: str, name: str, comment: str, *, no_color: bool) -> Exit:
    """Close a pull request: exactly this content is not proposed again."""
    from reconciler.cli.selection import find_pulls, list_found
    from reconciler.report.json import listing
    from reconciler.run import read_world

    found = find_pulls(list_found(read_world(settings, writes=True)), name)
    printer = make_printer(colour=not no_color)
    for one in found:
        one.forge.reject(one.pull.number, comment=comment)
    if output == Output.JSON:
        printer.value(listing("Close", ({"pullRequest": one.name} for one in found)))
    else:
        printer.lines(f"closed {terminal(one.name)} {terminal(one.pull.title)}" for one in found)
    return Exit.DONE


@pr.command()
@control_options
@output_options(*FORMS)
@click.argument("name")
def reopen(settings: "Settings", output: str, name: str, *, no_color: bool) -> Exit:
    """Open a closed pull request again, as its branch is now: it is no rejection any more."""
    from reconciler.cli.selection import find_pulls, list_found
    from reconciler.report.json import listing
    from reconciler.run import read_world

    found = find_pulls(list_found(read_world(settings, writes=True)), name)
    printer = make_printer(colour=not no_color)
    for one in found:
        one.forge.reopen(one.pull.number)
    if output == Output.JSON:
        printer.value(listing("Reopen", ({"pullRequest": one.name} for one in found)))
    else:
        printer.lines(f"reopened {terminal(one.name)} {terminal(one.pull.title)}" for one in found)
    return Exit.DONE


def _value(found: "Found", *, body: bool = False) -> dict[str, Any]:
    from reconciler.report.json import pull_value

    value = {**pull_value(found.pull), "name": found.name, "package": found.package}
    return {**value, "body": found.pull.body} if body else value


def _table(found: Sequence["Found"]) -> Iterator[str]:
    if not found:
        yield "There are no open pull requests."
        return
    rows = [(f.name, _state(f), f.package, f.pull.title) for f in found]
    heads = ("PULL REQUEST", "STATE", "PACKAGE", "TITLE")
    shown = [heads, *(tuple(terminal(cell) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(3)]
    for row in shown:
        yield "  ".join([*(cell.ljust(w) for cell, w in zip(row[:3], widths, strict=True)), row[3]]).rstrip()


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
