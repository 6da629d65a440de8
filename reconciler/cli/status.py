"""`status`: every package with its cluster, versions, state, age, pull request and next step."""

import sys
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Exit, UsageError, worst
from reconciler.base.progress import current_display
from reconciler.base.reasons import Phase, Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import terminal
from reconciler.cli.differences import html_option, write_page
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    filter_options,
    output_options,
    show_standing,
)
from reconciler.expand.expansion import empty_selections
from reconciler.krm.yaml import emit
from reconciler.names.problems import Problem
from reconciler.report.build import tell_rows
from reconciler.report.json import exits_value, wire
from reconciler.report.machine import listing
from reconciler.report.report import StatusRow
from reconciler.report.status import (
    SORT_KEYS,
    StatusFilter,
    label_terms,
    sort_rows,
    status_csv,
    status_json_lines,
    status_lines,
    status_summary,
)
from reconciler.report.text import need_lines, problem_lines, rollout_lines, warning_lines
from reconciler.run.options import RunOptions
from reconciler.run.queries import FleetStatus, read_status

FORMS = (Output.TEXT, Output.WIDE, Output.JSON, Output.YAML, Output.JSONL, Output.CSV)
SECONDS = 30
"""Time between two looks of `--watch`."""


@click.command()
@control_options
@output_options(*FORMS)
@filter_options
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(tuple(map(str, Phase))),
    help="Only packages in this state.",
)
@click.option(
    "--repository", "repositories", multiple=True, metavar="NAME", help="Only this Repository, or a pattern."
)
@click.option(
    "--sort", type=click.Choice(SORT_KEYS), help="Order of rows.  [default: name; JSON and YAML: kind]"
)
@html_option
@click.option("--watch", is_flag=True, help=f"Look again every {SECONDS} seconds, on a terminal.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def status(
    *,
    settings: RunOptions,
    printer: Printer,
    sets: tuple[str, ...],
    labels: tuple[str, ...],
    states: tuple[str, ...],
    repositories: tuple[str, ...],
    sort: str | None,
    html_file: Path | None,
    names: Sequence[str],
    watch: bool,
) -> Exit:
    r"""Show every package: versions on main and in review, state, age, pull request, and what it waits for.

    A package is published, in review, not ready, in conflict, rejected, paused, held back, pending or
    stalled; docs/reference/reasons.md explains each.
    Everything is looked at as it is now, in the repositories and on the forges; nothing is written.
    Filters of different kinds must all match; repeated ones of one kind are alternatives, but every
    `--label` (KEY or KEY=VALUE, of the PackageVariant) must match. Names may be patterns.
    Exits 3 when something is stalled, 5 when a repository cannot be read (0 if it only warns).

    \b
    Examples:
      reconciler status
      reconciler status default/edge-nginx         one owner, by namespace and name
      reconciler status 'edge-*/nginx'             or by package, or by set
      reconciler status dev/shop/db.io             one package of a cluster
      reconciler status --state conflict --state stalled --sort since
      reconciler status --set web --watch          while a change travels
      reconciler status -o wide                    owners, sets, conditions and messages too
      reconciler status -o csv > fleet.csv
      reconciler status --html fleet.html          one page for a browser, of the whole fleet
    """
    if watch and (printer.form not in (Output.TEXT, Output.WIDE) or not sys.stdout.isatty()):
        raise UsageError("--watch needs a terminal, and text", hint="Run `reconciler status` from a timer.")
    filters = StatusFilter(tuple(names), sets, labels, states, repositories)
    # A page and a value tell of the whole fleet, whatever rows they show.
    is_whole = html_file is not None or printer.form in (Output.JSON, Output.YAML)
    about = "" if is_whole else filters.package
    while True:
        observed = read_status(settings, about)
        with suppress(DefectError), guard("names of rows"):  # one that has none is a problem below
            _check_names(observed.rows, filters)
        if watch:
            click.clear()
        code = _show(printer, observed, filters, sort)
        planned = observed.planned
        inventory = planned.inputs.inventory
        show_standing(printer, inventory.control.standing)
        printer.notes(map(terminal, empty_selections(planned.desired, inventory)))
        printer.notes(terminal(str(warning)) for warning in planned.fleet.locks.warnings)
        if html_file is not None:
            from reconciler.run.report import status_report

            write_page(html_file, status_report(planned))
        if not watch:
            return code
        with current_display().paused():
            time.sleep(SECONDS)


def _show(printer: Printer, observed: FleetStatus, filters: StatusFilter, sort: str | None) -> Exit:
    """Print the rows of the fleet; one that a bug of ours breaks is a problem."""
    rows, report = observed.rows, observed.report

    def make(left_out: Collection[int], more: Sequence[Problem]) -> tuple[Exit, Any]:
        if not left_out:
            return _make_form(printer, observed, filters, sort)
        part = replace(report, problems=(*report.problems, *more), exits=report.exits | {Exit.BUG})
        rest = [row for index, row in enumerate(rows) if index not in left_out]
        return _make_form(printer, replace(observed, report=part, rows=rest), filters, sort)

    def subject(index: int) -> str:
        return f"{rows[index].owner.kind} {rows[index].owner.key}"

    code, made = tell_rows(range(len(rows)), make, subject)
    match printer.form:
        case Output.JSON:
            printer.value(made)
        case Output.YAML:
            printer.text("\n".join(map(terminal, emit(printer.redactor.value(made)).split("\n"))))
        case Output.JSONL | Output.CSV:
            printer.text(made)
        case _:
            printer.lines(made)
    return code


def _make_form(
    printer: Printer, observed: FleetStatus, filters: StatusFilter, sort: str | None
) -> tuple[Exit, Any]:
    """Return the exit code and one form: a value for JSON and YAML, a text, or lines."""
    report, chosen, whole = observed.report, filters.select(observed.rows), not any(filters)
    form = printer.form
    if sort or form not in (Output.JSON, Output.YAML):
        chosen = sort_rows(chosen, sort or SORT_KEYS[0])
    exits = chosen_exits(report.exits, None if whole else chosen)
    code, is_wide = worst(exits), form is Output.WIDE
    match form:
        case Output.JSON | Output.YAML:
            lists = {name: wire(getattr(report, name)) for name in ("needs", "problems", "rollouts")}
            return code, {**listing("Status", map(wire, chosen)), **lists, **exits_value(exits)}
        case Output.JSONL:
            return code, status_json_lines(printer.redactor.value(wire(row)) for row in chosen)
        case Output.CSV:
            return code, status_csv(chosen)
    width, paint, now = printer.width, printer.paint, printer.now
    texts = "\n".join(str(problem.message) for problem in report.problems if whole and not is_wide)
    lines = status_lines(chosen, wide=is_wide, folds=whole, width=width, paint=paint, now=now, problems=texts)
    if not whole:
        return code, list(lines)
    warnings = ((row.package_name, row.change.warnings) for row in chosen if row.change)
    return code, [
        *need_lines(report.needs, paint=paint, width=width),
        *lines,
        *map(terminal, rollout_lines(report.rollouts)),
        *warning_lines(warnings, paint),
        *problem_lines(report.problems, paint=paint),
        *filter(None, [status_summary(chosen)]),
    ]


def chosen_exits(exits: frozenset[Exit], chosen: Iterable[StatusRow] | None) -> set[Exit]:
    """Return 5 for a repository that must be read and was not, 3 for a stalled owner, of those chosen.

    A bug of ours, which may be about anything, is always 1.
    """
    if chosen is None:
        return {*exits} & {Exit.BUG, Exit.INVALID_INPUT, Exit.UNAVAILABLE}
    reasons = {row.condition("Valid").reason for row in chosen if row.is_stalled}
    codes = {Exit.BUG, *([Exit.UNAVAILABLE] if Reason.REPOSITORY_UNAVAILABLE in reasons else ())}
    stalls = {Exit.INVALID_INPUT} if reasons - {Reason.REPOSITORY_UNAVAILABLE, Reason.DEFECT} else set()
    return ({*exits} & codes) | stalls


def _check_names(rows: Sequence[StatusRow], filters: StatusFilter) -> None:
    """Refuse names that nothing has: they would look like packages that are gone."""
    groups = (
        ("PackageVariant, set or package of a cluster", filters.names, (row.names for row in rows)),
        ("PackageVariantSet", filters.sets, (row.set_names for row in rows)),
        ("Repository with packages", filters.repositories, ({row.repository} for row in rows)),
        ("label", filters.labels, map(label_terms, rows)),
    )
    for what, texts, names in groups:
        candidates = {name for aliases in names for name in aliases if name}
        for text in texts:
            if not any(fnmatchcase(name, text) for name in candidates):
                hint = suggest(text, candidates, otherwise="`reconciler status -o wide` shows every name.")
                raise UsageError(f"There is no {what} {text}", hint=hint)
