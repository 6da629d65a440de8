"""`plan`: show what apply would do, and why."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from reconciler.base.errors import Exit, UsageError
from reconciler.cli.differences import (
    changed_files,
    diff_option,
    html_option,
    select_changes,
    show_differences,
    write_page,
)
from reconciler.cli.metrics import Measuring, measuring_options
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    detailed_exitcode_option,
    listing_option,
    make_printer,
    out_file_option,
    output_options,
    resolving_options,
    shard_option,
    with_shard,
)
from reconciler.plan.changes import Outcome, Plan, exit_of
from reconciler.report.build import build_report, needs_after, tell, tell_outcome
from reconciler.report.json import report_sarif, report_value
from reconciler.report.text import need_lines, outcome_lines, plan_lines
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, plan_run

FORMS = (Output.TEXT, Output.JSON, Output.MARKDOWN, Output.SARIF)


@click.command()
@control_options
@shard_option
@diff_option
@output_options(*FORMS)
@detailed_exitcode_option
@listing_option
@resolving_options
@out_file_option("Write the report to this file.")
@html_option
@measuring_options
@click.argument("names", nargs=-1, metavar="[PACKAGE|SET]...")
def plan(
    settings: RunOptions,
    printer: Printer,
    out: Path | None,
    html_file: Path | None,
    names: tuple[str, ...],
    *,
    measuring: Measuring,
    shard: str,
    detailed_exitcode: bool,
    shows_diff: bool,
    unchanged: bool,
) -> Exit:
    r"""Show what `apply` would do to every package, and why. Writes nothing.

    The last line has the counts and the plan's checksum. Changes of one cause are one row, dangerous ones
    first; problems follow with file and line. `--all` lists every package by itself, also those that stay
    as they are; JSON always does. `--diff` prints the differences of files instead, of all packages that
    change or of those that are named, equal ones once. `--html` also writes one page for a browser, with
    filters, a matrix of packages and clusters, and differences. See docs/reports.md.

    CHANGE is what `apply` would do with a package: create, update to another upstream revision, edit for its
    manifest, adopt one that people made, transfer to another variant, publish what was merged, propose to
    delete, orphan (release without deleting), close a draft that is obsolete, approve by policy, block what
    cannot be, or keep as it is; what waits has its state as its word, such as conflict or held back.

    \b
    Examples:
      reconciler plan                              of the repository around the current directory
      reconciler plan --control https://git.example/acme/control.git
      reconciler plan --detailed-exitcode -q       10 when something is pending: for scripts
      reconciler plan --diff edge-1/web            what its files would be
      reconciler plan --diff web --all             each package of the set web
      reconciler plan -o json --out plan.json      to look at, and for `reconciler apply plan.json`
      reconciler plan --html plan.html             one page for a browser, to share or to print
      reconciler plan -o markdown >> "$GITHUB_STEP_SUMMARY"
    """
    if names and not shows_diff:
        hint = f"Write `reconciler plan --diff {names[0]}`, or `reconciler explain {names[0]}`."
        raise UsageError("A plan is of the whole fleet; packages are named for --diff", hint=hint)
    if shows_diff and (printer.form is not Output.TEXT or out is not None):
        raise UsageError("--diff prints patches", hint="Leave out --output and --out; redirect it to a file.")
    settings = with_shard(settings, shard)
    if shows_diff:
        planned = plan_run(settings)
        measuring.count(planned)
        changes = select_changes(planned, names) if names else changed_files(planned)
        show_differences(printer, planned, changes, unfolded=unchanged)
        _write_html(html_file, planned)
        return exit_of(planned.plan, detailed=detailed_exitcode)
    with out.open("w", encoding="utf-8") if out else nullcontext() as file:
        planned = plan_run(settings)
        to_file = make_printer(printer.form, file=file) if file else printer
        show_report(to_file, planned, unchanged=unchanged, detailed=detailed_exitcode)
        _write_html(html_file, planned)
        measuring.count(planned)
    return exit_of(planned.plan, detailed=detailed_exitcode)


def _write_html(path: Path | None, planned: PlannedRun) -> None:
    if path is not None:
        from reconciler.run.report import plan_report

        write_page(path, plan_report(planned))


def show_report(
    printer: Printer,
    planned: PlannedRun,
    outcome: Outcome | None = None,
    *,
    unchanged: bool = False,
    detailed: bool = False,
    to_apply: bool = False,
) -> None:
    """Print a plan, or what became of it, in one form; what waits for people is last where it is applied."""
    paint, quiet, width = printer.paint, printer.quiet, printer.width

    def make(plan: Plan, done: Outcome | None) -> Any:
        is_text = printer.form is Output.TEXT
        if is_text and done is not None:
            needs = need_lines(needs_after(plan, done), paint=paint, width=width)
            return [*needs, *outcome_lines(done, paint=paint, quiet=True)]
        now, unfolded = printer.now if is_text else 0, unchanged and is_text
        report = build_report(plan, planned.names, done, unfolded=unfolded, detailed=detailed, now=now)
        match printer.form:
            case Output.JSON:
                return report_value(report)
            case Output.MARKDOWN:
                from reconciler.report.markdown import plan_markdown

                return plan_markdown(report)
            case Output.SARIF:
                return report_sarif(report)
        return [*plan_lines(report, paint=paint, quiet=quiet, shows_needs=not to_apply, width=width)]

    made = tell(planned.plan, lambda plan: tell_outcome(outcome, lambda done: make(plan, done)))
    printer.show(made, made)
