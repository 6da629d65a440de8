"""`doctor`: check the set-up, and name the next step for whatever is wrong."""

import click

from reconciler.base.errors import Exit
from reconciler.cli.output import Output, control_options, make_printer, output_options
from reconciler.report.doctor import Severity, finding_lines, findings_value
from reconciler.run.doctor import diagnose
from reconciler.run.options import RunOptions


@click.command()
@control_options
@output_options(Output.TEXT, Output.JSON)
def doctor(settings: RunOptions, output: str) -> Exit:
    r"""Check the set-up: git, configuration, credentials, engines, clock, snapshots, and every repository.

    Of a repository: whether it can be reached and written, its branches and tags, and its forge. Nothing is
    written; a server is asked whether a push would be allowed. Exits 3 if something is wrong.

    \b
    Examples:
      reconciler doctor
      reconciler doctor -o json
    """
    findings = diagnose(settings)
    printer = make_printer()
    if output == Output.JSON:
        printer.value(findings_value(findings))
    else:
        printer.lines(finding_lines(findings, paint=printer.paint))
    wrong = any(finding.severity is Severity.ERROR for finding in findings)
    return Exit.INVALID_INPUT if wrong else Exit.DONE
