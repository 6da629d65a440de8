"""`check`: what merging a change of the control repository would do, and whether it may."""

import os
from pathlib import Path

import click
from msgspec.structs import replace

from reconciler.apply.dashboard import write_check_comment
from reconciler.base.errors import ConfigurationError, Exit, UsageError, worst
from reconciler.base.reasons import Reason
from reconciler.base.text import terminal
from reconciler.cli.differences import (
    check_difference,
    diff_option,
    html_option,
    show_check_differences,
    write_page,
)
from reconciler.cli.output import Output, Printer, control_options, detailed_exitcode_option, output_options
from reconciler.cli.workflow import Publication, Runner, annotate_error, publication
from reconciler.plan.changes import problem_exits
from reconciler.plan.compare import Comparison, Fate
from reconciler.report.build import tell_comparison
from reconciler.report.comparison import comparison_lines
from reconciler.run.check import CheckResult, Level, check_proposal
from reconciler.run.options import RunOptions

FORMS = (Output.TEXT, Output.JSON, Output.MARKDOWN, Output.SARIF)
LEVELS = ("auto", "manifests", "fleet")
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@control_options
@output_options(*FORMS)
@click.option(
    "--base",
    envvar=["GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"],
    default="",
    metavar="BRANCH",
    help="Where it would be merged.  [default: the default branch of the remote]",
)
@click.option(
    "--head", default="", metavar="REF", help="What is proposed: a branch or commit.  [default: HEAD]"
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="auto",
    show_default=True,
    help="Compare manifests alone, or the packages of the fleet too; auto: packages if they can be read.",
)
@click.option(
    "--comment-on",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Also write the report as one comment on this pull request, if the token may write.",
)
@diff_option
@click.option("--strict", is_flag=True, help="Problems that were there before count too.")
@detailed_exitcode_option
@click.option("--json-file", type=FILE, metavar="FILE", help="Also write the JSON report there.")
@click.option("--sarif-file", type=FILE, metavar="FILE", help="Also write the SARIF report there.")
@html_option
def check(
    *,
    settings: RunOptions,
    printer: Printer,
    base: str,
    head: str,
    level: str,
    comment_on: int | None,
    json_file: Path | None,
    sarif_file: Path | None,
    html_file: Path | None,
    shows_diff: bool,
    strict: bool,
    detailed_exitcode: bool,
) -> Exit:
    r"""Check a change of the control repository before it is merged. Writes nothing.

    Reads the proposed commit and the one it starts from, names and plans both, and lists what merging adds:
    which PackageVariants, which packages, which problems, among them drafts that cannot be approved.
    Credentials, what is executed and limits come from the default branch. What a shallow checkout lacks is
    fetched. In a GitHub workflow it annotates files, writes the job summary and sets outputs. See
    docs/check.md.

    \b
    Examples:
      reconciler check                          HEAD against the default branch of the remote
      reconciler check --base release-1         against another branch
      reconciler check --level manifests        without reading any other repository
      reconciler check --diff                   and print what it does to the files of packages
      reconciler check --html check.html        and write one page for a browser
      reconciler check --comment-on 7           and comment on pull request 7
      reconciler check --control https://git.example/acme/control.git --head my-branch
    """
    if shows_diff and printer.form is not Output.TEXT:
        raise UsageError("--diff prints patches", hint="Leave out --output.")
    from reconciler.report.markdown import comparison_markdown

    runner = Runner(os.environ)
    try:
        checked = check_proposal(settings, base=base, head=head, level=Level(level))
    except ConfigurationError as error:
        _say_unusable(runner, error)
        raise

    is_read = bool(comment_on) or printer.form is Output.MARKDOWN or runner.has_summary

    def make(comparison: Comparison) -> tuple[CheckResult, Exit, list[str], Publication]:
        part = replace(checked, comparison=comparison)
        code = check_exit(part, level, strict=strict, detailed=detailed_exitcode)
        difference = check_difference(printer, part) if is_read else ""
        markdown = comparison_markdown(part.report, difference=difference)
        lines = list(comparison_lines(part.report, paint=printer.paint))
        return part, code, lines, publication(part.report, code, _changed(comparison), markdown)

    checked, code, lines, made = tell_comparison(checked.comparison, make)
    printer.notes(map(terminal, checked.notes))
    value = made.sarif if printer.form is Output.SARIF else made.value
    printer.show(value, made.markdown if printer.form is Output.MARKDOWN else lines)
    if shows_diff:
        show_check_differences(printer, checked)
    runner.publish(made, json_file, sarif_file)
    if html_file is not None:
        from reconciler.run.report import check_report

        write_page(html_file, check_report(checked))
    if comment_on:
        _comment(printer, checked, made.markdown, comment_on, runner)
    return code


def _changes(comparison: Comparison) -> bool:
    """Whether merging changes anything: a variant that is kept all the same stays as it is."""
    variants = any(variant.fate is not Fate.KEEP for variant in comparison.variants)
    return variants or bool(comparison.packages or comparison.pins)


def _changed(comparison: Comparison) -> str:
    """Return `true`, `false`, or `unknown` where what was read changes nothing and not all was read."""
    if _changes(comparison):
        return "true"
    return "false" if comparison.is_complete else "unknown"


def _comment(printer: Printer, checked: CheckResult, markdown: str, number: int, runner: Runner) -> None:
    """Comment on the pull request; a comment that cannot be written is a note."""
    why = "the merged configuration cannot be read"
    if checked.trusted is not None and checked.control is not None:
        text = printer.redactor.text(runner.linked(markdown))
        why = write_check_comment(checked.control, checked.trusted, os.environ, number, text)
    if why:
        printer.notes([f"no comment on pull request {number}: {terminal(why)}"])


def check_exit(checked: CheckResult, level: str, *, strict: bool, detailed: bool) -> Exit:
    """Return the exit code of a check: old problems count if it is `strict`, changes if `detailed`."""
    comparison = checked.comparison
    exits = {*problem_exits(comparison.new), *(problem_exits(comparison.old) if strict else ())}
    if any(problem.reason == Reason.DEFECT for problem in comparison.old):
        exits.add(Exit.BUG)
    if comparison.refusals:
        exits.add(Exit.REFUSED)
    if checked.unavailable or (level == "fleet" and comparison.unread):
        exits.add(Exit.UNAVAILABLE)
    if comparison.postponed:
        exits.add(Exit.PARTIAL)
    if detailed and _changes(comparison):
        exits.add(Exit.PENDING)
    return worst(exits)


def _say_unusable(runner: Runner, error: ConfigurationError) -> None:
    """Annotate a configuration that cannot be read; nothing else is known about the change."""
    runner.annotate(
        annotate_error(Reason.INVALID_MANIFEST, part.message, part.hint, part.location)
        for part in error.parts
        if part.location is not None
    )
    runner.tell({"exit-code": str(int(error.exit_code))})
