"""`apply`: plan, then do it."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import orjson

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Exit, RefusedError, UsageError
from reconciler.base.progress import open_task
from reconciler.cli.differences import html_option, write_page
from reconciler.cli.metrics import Measuring, measuring_options
from reconciler.cli.output import (
    Output,
    Printer,
    listing_option,
    output_options,
    resolving_options,
    shard_option,
    with_shard,
    writing_control_options,
)
from reconciler.cli.plan import show_report
from reconciler.cli.workflow import check_event
from reconciler.plan.changes import Effect, Outcome, exit_of
from reconciler.report.build import tell_outcome
from reconciler.report.text import effect_line, outcome_lines
from reconciler.run.apply import apply_plan
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, plan_run
from reconciler.run.report import plan_report


@click.command()
@writing_control_options
@shard_option
@output_options(Output.TEXT, Output.JSON, Output.MARKDOWN)
@click.option("--checksum", default="", metavar="SUM", help="Apply only the plan whose sum begins so.")
@listing_option
@resolving_options
@html_option
@measuring_options
@click.argument(
    "saved", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]"
)
def apply(
    settings: RunOptions,
    printer: Printer,
    checksum: str,
    html_file: Path | None,
    saved: Path | None,
    *,
    measuring: Measuring,
    shard: str,
    unchanged: bool,
) -> Exit:
    r"""Plan, then do it: write drafts, open pull requests, publish what was merged.

    Safe to repeat and to interrupt: a second apply writes nothing, and a run that was killed is
    completed by the next one. Works from the tip of the default branch only: a checkout that is behind is
    refused.

    \b
    Examples:
      reconciler apply                             plan and apply
      reconciler apply --checksum 3f8a…            only the plan that was reviewed
      reconciler apply plan.json                   the same, as `reconciler plan -o json --out` saved it
      reconciler apply -o json > outcome.json      for machines
      reconciler apply --html report.html          one page for a browser about what was done
    """
    check_event(os.environ)
    checksum = _saved_checksum(saved, checksum) if saved else checksum
    settings = with_shard(settings, shard)
    planned = plan_run(settings, to_apply=True)
    measuring.count(planned)  # a plan that is refused has numbers, too
    outcome = _apply(printer, planned, checksum, unchanged=unchanged)
    code = exit_of(planned.plan, outcome=outcome)
    measuring.count(planned, outcome)
    if html_file is not None:
        write_page(html_file, plan_report(planned, outcome))
    return code


def _apply(printer: Printer, planned: PlannedRun, checksum: str, *, unchanged: bool) -> Outcome:
    """Show a plan, apply it, and show the outcome."""
    form = printer.form
    if form is Output.TEXT:
        show_report(printer, planned, unchanged=unchanged, to_apply=True)
    try:
        with _progress(printer, planned, is_printed=form is Output.TEXT and not printer.quiet) as on_effects:
            outcome = apply_plan(planned, checksum=checksum, on_effects=on_effects)
    except RefusedError:
        if form is not Output.TEXT:
            show_report(printer, planned)
        raise
    show_report(printer, planned, outcome)
    if form is Output.MARKDOWN:
        printer.lines(tell_outcome(outcome, lambda done: [*outcome_lines(done)] if done else []), err=True)
    return outcome


def _saved_checksum(saved: Path, checksum: str) -> str:
    """Return the checksum of a plan that was saved as JSON."""
    hint = "Write one with `reconciler plan -o json --out plan.json`."
    try:
        plan = orjson.loads(saved.read_bytes())
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{saved} is not JSON: {error}", hint=hint) from error
    is_plan = isinstance(plan, dict) and plan.get("kind") == "Plan"
    if not is_plan or not isinstance(plan.get("checksum"), str) or not plan["checksum"]:
        raise UsageError(f"{saved} is no plan", hint=hint)
    if checksum not in ("", plan["checksum"]):
        raise UsageError(f"--checksum {checksum} is not that of {saved}", hint="Leave one of them out.")
    return str(plan["checksum"])


@contextmanager
def _progress(
    printer: Printer, planned: PlannedRun, *, is_printed: bool
) -> Iterator[Callable[[Sequence[Effect]], None]]:
    """Yield what to call with new effects: steps of the progress on a terminal, a line each otherwise."""
    with open_task("applying", planned.steps) as task:

        def advance(effects: Sequence[Effect]) -> None:
            # What cannot be shown must not stop what is being done.
            with suppress(DefectError), guard("lines about effects"):
                lines = [effect_line(effect) for effect in effects]
                for line in lines:
                    task.advance(line)
                if is_printed and not printer.is_colored:
                    # Together: each piece of text is masked, checked and flushed by itself.
                    done = (line for line, effect in zip(lines, effects, strict=True) if not effect.error)
                    printer.lines(done)

        yield advance
