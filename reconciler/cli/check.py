"""`check`: what merging a change of the control repository would do, and whether it may."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.base.errors import ConfigurationError, Exit, UsageError, worst
from reconciler.base.escape import terminal
from reconciler.base.reasons import Reason
from reconciler.cli.differences import diff_option, html_option, show_check_differences, write_page
from reconciler.cli.output import (
    Output,
    control_options,
    detailed_exitcode_option,
    make_printer,
    output_options,
)
from reconciler.cli.workflow import Runner, annotate_error, annotate_problem, current_runner

if TYPE_CHECKING:
    from reconciler.cli.output import Printer
    from reconciler.plan.compare import Comparison
    from reconciler.run.check import CheckResult
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
    settings: "RunOptions",
    output: str,
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
    from reconciler.run.check import Level, check_proposal

    if shows_diff and output != Output.TEXT:
        raise UsageError("--diff prints patches", hint="Leave out --output.")
    runner = current_runner()
    try:
        checked = check_proposal(settings, base=base, head=head, level=Level(level))
    except ConfigurationError as error:
        _say_unusable(runner, error)
        raise
    code = _exit_of(checked, level, strict=strict, detailed=detailed_exitcode)
    printer = make_printer()
    printer.notes(map(terminal, checked.notes))
    _show(printer, checked, Output(output))
    if shows_diff:
        show_check_differences(printer, checked)
    _tell(runner, checked, code, json_file, sarif_file)
    if html_file is not None:
        from reconciler.run.html_report import check_report

        write_page(html_file, check_report(checked))
    if comment_on:
        _comment(printer, checked, comment_on)
    return code


def _show(printer: "Printer", checked: "CheckResult", form: Output) -> None:
    from reconciler.report.comparison import comparison_lines, comparison_value
    from reconciler.report.markdown import comparison_markdown
    from reconciler.report.sarif import comparison_sarif

    comparison, names = checked.comparison, checked.names
    match form:
        case Output.TEXT:
            printer.lines(comparison_lines(comparison, names, paint=printer.paint))
        case Output.JSON:
            printer.value(comparison_value(comparison, names))
        case Output.MARKDOWN:
            printer.text(comparison_markdown(comparison, names))
        case Output.SARIF:
            printer.value(comparison_sarif(comparison))


def _tell(
    runner: Runner, checked: "CheckResult", code: Exit, json_file: Path | None, sarif_file: Path | None
) -> None:
    """Give the runner of a workflow what it shows, and write the files that were asked for."""
    import orjson

    from reconciler.report.comparison import comparison_value, counts, sentence
    from reconciler.report.markdown import comparison_markdown
    from reconciler.report.sarif import comparison_sarif

    comparison, names = checked.comparison, checked.names
    runner.save(json_file, comparison_value(comparison, names))
    runner.save(sarif_file, comparison_sarif(comparison))
    runner.annotate(
        [
            *map(annotate_problem, comparison.new),
            *(annotate_error(r.reason, r.message, r.hint) for r in comparison.refusals),
            *(annotate_problem(problem, "warning") for problem in comparison.unread),
            *(annotate_problem(problem, "warning") for problem in comparison.old),
        ]
    )
    runner.summarise(comparison_markdown(comparison, names))
    runner.tell(
        {
            "changed": _changed(comparison),
            "summary": sentence(comparison),
            "counts": orjson.dumps(counts(comparison)).decode(),
            "exit-code": str(int(code)),
        }
    )


def _changed(comparison: "Comparison") -> str:
    """Return `true`, `false`, or `unknown` where what was read changes nothing and not all was read."""
    if not comparison.is_empty:
        return "true"
    return "false" if comparison.is_complete else "unknown"


def _comment(printer: "Printer", checked: "CheckResult", number: int) -> None:
    """Comment on the pull request; a comment that cannot be written is a note."""
    from reconciler.apply.check_comment import write_check_comment
    from reconciler.report.markdown import comparison_markdown

    why = "the merged configuration cannot be read"
    if checked.trusted is not None and checked.control is not None:
        body = comparison_markdown(checked.comparison, checked.names)
        text = printer.redactor.text(body)
        why = write_check_comment(checked.control, checked.trusted, os.environ, number, text)
    if why:
        printer.notes([f"no comment on pull request {number}: {terminal(why)}"])


def _exit_of(checked: "CheckResult", level: str, *, strict: bool, detailed: bool) -> Exit:
    from reconciler.plan.changes import problem_exits

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
    if detailed and not comparison.is_empty:
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
