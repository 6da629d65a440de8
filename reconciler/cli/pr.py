"""`pr`: pull requests of repositories without a forge: Git keeps them."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import click

from reconciler.base.errors import Exit, RefusedError, UsageError, worst
from reconciler.base.progress import track
from reconciler.base.reasons import Phase
from reconciler.base.text import date_text, iso_time, terminal
from reconciler.cli.guesses import CommandGroup
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    dry_run_option,
    filter_options,
    output_options,
    require_readable,
    show_standing,
    show_unread,
    terminal_width,
    writing_control_options,
)
from reconciler.cli.pull_requests import (
    ON_EVERY_FORGE,
    ListedPull,
    PullFilter,
    closed_error,
    find_pulls,
    hosted_text,
    list_pulls,
    local_forge,
    outdated_error,
    shared_error,
    unheld_error,
)
from reconciler.forge.local.forge import LocalForge
from reconciler.forge.local.merge import DeletionHead, OutdatedError, parse_head
from reconciler.forge.local.pulls import head_branches
from reconciler.inventory.inventory import PullState, RecordedStatus
from reconciler.names.ids import ObjectName
from reconciler.plan.build import find_unread
from reconciler.report.console import markdown_lines, table_lines
from reconciler.report.json import wire
from reconciler.report.machine import listing
from reconciler.run.options import RunOptions
from reconciler.run.plan import plan_run, read_inputs

Recorded = Mapping[tuple[ObjectName, str], RecordedStatus]


@click.group(cls=CommandGroup)
def pr() -> None:
    r"""List, show, merge, close and reopen pull requests that Git keeps.

    That is for repositories without a forge. A forge has pages and a command line of its own, as `gh pr`;
    there these commands are refused, and name the page.

    A pull request is named by repository and number (`edge-east#3`), by its number where that is
    enough, or by its package (`edge-east/nginx`). A pattern names all open ones that it matches
    (`edge-*/nginx`). Of Repositories with one name write NAMESPACE/REPO.

    \b
    Examples:
      reconciler pr list --set nginx
      reconciler pr show edge-east/nginx
      reconciler pr close edge-east#3 --comment "Not before the sale"
      reconciler pr merge 'edge-*/nginx' --dry-run
    """


@pr.command("list")
@control_options
@output_options()
@click.option("--all", "every", is_flag=True, help="Merged and closed ones too.")
@filter_options
def list_(
    settings: RunOptions, printer: Printer, *, every: bool, sets: tuple[str, ...], labels: tuple[str, ...]
) -> Exit:
    r"""List the open pull requests of every repository without a forge.

    \b
    Example:
      reconciler pr list --set nginx
    """
    world = read_inputs(settings, lists_ended=every)
    chosen = PullFilter(sets, labels)
    chosen.check_sets(world.inventory)
    hosted = hosted_text(world.inventory)
    local = [f for f in chosen.select(list_pulls(world)) if f.is_local]
    listed = [f for f in local if every or f.pull.state is PullState.OPEN]
    if hosted and not listed:
        raise UsageError(hosted, hint=ON_EVERY_FORGE)
    statuses = world.inventory.statuses
    recorded = {(ObjectName(key.namespace, s.repository), s.head): s for key, s in statuses.items()}
    unread = find_unread(world.inventory)
    show_standing(printer, world.inventory.control.standing)
    printer.notes(filter(None, [terminal(hosted)]))
    none = f"There are no {'' if every else 'open '}pull requests{' that match' if chosen else ''}"
    none = none if world.inventory.repositories else f"{none}: no repository is registered"
    seen = [(f, _recorded(f, recorded)) for f in listed]
    rows = (
        {**_value(f), "status": s and {"phase": s.phase, "since": iso_time(s.since), "message": s.message}}
        for f, s in seen
    )
    lines = _table(seen, none, printer, is_whole=not unread)
    printer.show(listing("PullRequest", rows), lines)
    return worst(show_unread(printer, unread))


@pr.command()
@control_options
@output_options(whole_lines=True)
@click.argument("name")
def show(settings: RunOptions, printer: Printer, name: str) -> Exit:
    r"""Show the title, the text and the changes of a pull request.

    \b
    Example:
      reconciler pr show edge-east/nginx
    """
    world = read_inputs(settings, lists_ended=True)
    require_readable(world.inventory, [name])
    listed = find_pulls(list_pulls(world), name)
    for pull in listed:
        local_forge(pull, "Show")
    show_standing(printer, world.inventory.control.standing)
    if printer.form is Output.JSON:
        printer.value(listing("PullRequest", (_value(f, body=True) for f in listed)))
    else:
        for pull in listed:
            printer.lines(_details(pull, printer))
    return Exit.DONE


@pr.command()
@writing_control_options
@output_options()
@click.argument("name")
@dry_run_option
def merge(settings: RunOptions, printer: Printer, name: str, *, dry_run: bool) -> Exit:
    r"""Merge a pull request that is ready.

    A draft is approved with `reconciler approve`.

    \b
    Examples:
      reconciler pr merge edge-east/nginx
      reconciler pr merge 'edge-*/nginx' --dry-run
    """
    plan = cache(lambda: plan_run(settings))

    def check(listed: ListedPull) -> RefusedError | None:
        shared = shared_error(listed, [name], "Merge", "pr merge")
        return closed_error(listed) or unheld_error(listed) or shared

    def act(forge: LocalForge, listed: ListedPull) -> dict[str, str]:
        try:
            return {"commit": forge.merge(listed.pull.number, expect=listed.pull.head_oid)}
        except OutdatedError as error:
            raise outdated_error(error, listed, plan) from error

    step = _Step("Merge", "merged", "merged", check, act)
    return step.take(settings, name, printer, dry_run=dry_run)


@pr.command()
@writing_control_options
@output_options()
@click.argument("name")
@click.option("--comment", default="", help="Why.")
@dry_run_option
def close(settings: RunOptions, printer: Printer, name: str, comment: str, *, dry_run: bool) -> Exit:
    r"""Close a pull request: its content is not proposed again.

    \b
    Example:
      reconciler pr close edge-east#3 --comment "Not before the sale"
    """

    def check(listed: ListedPull) -> RefusedError | None:
        shared = shared_error(listed, [name], "Close", "pr close")
        if shared or listed.pull.state is not PullState.MERGED:
            return shared
        hint = "Revert its commit on the base, or change what its variant asks for."
        return RefusedError(f"Pull request {listed.name} was merged and cannot be closed", hint=hint)

    def act(forge: LocalForge, listed: ListedPull) -> dict[str, str]:
        forge.reject(listed.pull.number, comment=comment)
        return {}

    step = _Step("Close", "closed", "closed", check, act)
    return step.take(settings, name, printer, dry_run=dry_run)


@pr.command()
@writing_control_options
@output_options()
@click.argument("name")
@dry_run_option
def reopen(settings: RunOptions, printer: Printer, name: str, *, dry_run: bool) -> Exit:
    r"""Open a closed pull request again, as its branch is now.

    It is no rejection any more.

    \b
    Example:
      reconciler pr reopen edge-east#3
    """

    def act(forge: LocalForge, listed: ListedPull) -> dict[str, str]:
        forge.reopen(listed.pull.number)
        return {}

    step = _Step("Reopen", "reopened", "open", lambda _: None, act)
    return step.take(settings, name, printer, dry_run=dry_run)


class _Step(NamedTuple):
    """A step of pull requests: its kind in JSON, participle, the state that it leads to, and what it does.

    `check` returns why a pull request may not take it.
    """

    kind: str
    done: str
    state: str
    check: Callable[[ListedPull], RefusedError | None]
    act: Callable[[LocalForge, ListedPull], dict[str, str]]

    def take(self, settings: RunOptions, name: str, printer: Printer, *, dry_run: bool) -> Exit:
        """Take the step for each pull request that matches `name`, or tell what it would do, and print it."""
        world = read_inputs(settings, writes=True, lists_ended=True)
        require_readable(world.inventory, [name])
        chosen = find_pulls(list_pulls(world), name)
        forges = [local_forge(listed, self.kind) for listed in chosen]
        for listed in chosen:
            if error := self.check(listed):
                raise error
        tasks = track(list(zip(forges, chosen, strict=True)), "changing pull requests")
        results = [(listed, {} if dry_run else self.act(forge, listed)) for forge, listed in tasks]
        mode = {"dryRun": True} if dry_run else {}
        rows = ({"pullRequest": listed.name, **fields, **mode} for listed, fields in results)
        lines = (self._line(listed, dry_run=dry_run) for listed in chosen)
        printer.show(listing(self.kind, rows), lines)
        return Exit.DONE

    def _line(self, listed: ListedPull, *, dry_run: bool) -> str:
        """Return what was done to a pull request; nothing was if it had that state already."""
        word = f"would {self.kind.lower()}" if dry_run else self.done
        if listed.pull.state == self.state:
            word = f"already {self.state}"
        return f"{word} {terminal(listed.name)} {terminal(listed.pull.title)}"


def _value(listed: ListedPull, *, body: bool = False) -> dict[str, Any]:
    value = {**wire(listed.pull), "name": listed.name, "package": listed.package}
    return {**value, "body": listed.pull.body} if body else value


def _recorded(listed: ListedPull, recorded: Recorded) -> RecordedStatus | None:
    """Return where the last run saw the package of an open pull request, and since when."""
    status = recorded.get((listed.view.key, head_branches(listed.pull.head)[0]))
    if listed.pull.state != "open":
        return None
    if status is None and isinstance(parse_head(listed.pull.head), DeletionHead) and not listed.instance:
        # A variant has one status, which is about the place where it is now.
        former = listed.view.former
        return RecordedStatus(Phase.IN_REVIEW, message=former.message if former else "")
    return status


def _table(
    seen: Sequence[tuple[ListedPull, RecordedStatus | None]], none: str, printer: Printer, *, is_whole: bool
) -> Iterator[str]:
    if not seen:
        yield f"{none}{'' if is_whole else ' in the repositories that were read'}."
        return
    heads = ("PULL REQUEST", "STATE", "PACKAGE", "TITLE", "AGE" if printer.now else "SINCE", "STATUS")
    rows = []
    for pull, recorded in seen:
        status = recorded or RecordedStatus("")
        foreign = f"belongs to instance {pull.instance}" if pull.instance else ""
        why = foreign or ": ".join(filter(None, (status.phase, status.message)))
        since = date_text(status.since, printer.now)
        rows.append([*map(terminal, (pull.name, _state(pull), pull.shown, pull.pull.title, since, why))])
    yield from table_lines(heads, rows, printer.width)


def _details(listed: ListedPull, printer: Printer) -> Iterator[str]:
    pull = listed.pull
    yield f"{terminal(listed.name)}: {terminal(pull.title)} ({_state(listed)})"
    yield f"  package: {terminal(listed.shown)}"
    if pull.url:
        yield f"  url: {terminal(pull.url)}"
    yield f"  head: {terminal(pull.head)} {pull.head_oid}"
    yield f"  base: {terminal(pull.base)}"
    yield ""
    body = "\n".join(map(terminal, pull.body.splitlines()))
    width = terminal_width(sys.stdout)
    if width is None:
        yield from (f"  {line}".rstrip() for line in body.splitlines())
    else:  # people read it; programs and pages get the Markdown
        yield from (f"  {line}".rstrip() for line in markdown_lines(body, width - 2, printer.paint))


def _state(listed: ListedPull) -> str:
    pull = listed.pull
    return "draft" if pull.state == "open" and pull.draft else str(pull.state)
