"""`doctor`: check the set-up, and name the next step for whatever is wrong."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import click

from reconciler.base.errors import Exit
from reconciler.base.suggestions import next_step
from reconciler.base.text import message_line, plural, terminal
from reconciler.cli.output import Printer, control_options, output_options
from reconciler.report.console import Color, Paint, plain
from reconciler.report.machine import listing
from reconciler.run.doctor import Diagnosis, Severity, diagnose
from reconciler.run.options import RunOptions

_COLORS = {Severity.OK: Color.GREEN, Severity.WARNING: Color.YELLOW, Severity.ERROR: Color.RED}


def finding_lines(findings: Iterable[Diagnosis], *, paint: Paint = plain) -> Iterator[str]:
    """Yield a line for each check that succeeds, then what is wrong, and a sum."""
    every = list(findings)
    succeeded = Counter(finding.check for finding in every if finding.severity is Severity.OK)
    wrong = [finding for finding in every if finding.severity is not Severity.OK]
    failing = {finding.check for finding in wrong}
    for check, count in succeeded.items():
        if check not in failing:
            subject = next(finding.subject for finding in every if finding.check == check)
            what = terminal(subject) if count == 1 else f"{count} checked"
            yield f"{paint('ok', Color.GREEN)}       {check}: {what}"
    for finding in sorted(wrong, key=lambda finding: finding.severity is Severity.WARNING):
        word = paint(finding.severity, _COLORS[finding.severity]) + " " * (8 - len(finding.severity))
        subject = f"{terminal(finding.subject)}: " if finding.subject != finding.check else ""
        yield f"{word} {finding.check}: {subject}{message_line(finding.message)}"
        if finding.hint:
            yield f"         next: {message_line(next_step(finding.hint, 'it'))}"
    errors = sum(finding.severity is Severity.ERROR for finding in wrong)
    if wrong:
        yield f"{plural(errors, 'error')}, {plural(len(wrong) - errors, 'warning')}."
    else:
        yield "Nothing is wrong."


def findings_value(findings: Iterable[Diagnosis]) -> dict[str, Any]:
    """Return the findings as a JSON value."""
    items = [{**finding._asdict(), "severity": str(finding.severity)} for finding in findings]
    return listing("Diagnosis", items)


@click.command()
@control_options
@output_options()
def doctor(settings: RunOptions, printer: Printer) -> Exit:
    r"""Check the set-up: git, configuration, credentials, engines, clock, snapshots, and every repository.

    Of a repository: whether it can be reached and written, its branches and tags, and its forge. Nothing is
    written; a server is asked whether a push would be allowed. Exits 3 if something is wrong.

    \b
    Examples:
      reconciler doctor
      reconciler doctor -o json
    """
    findings = diagnose(settings)
    printer.show(findings_value(findings), finding_lines(findings, paint=printer.paint))
    wrong = any(finding.severity is Severity.ERROR for finding in findings)
    return Exit.INVALID_INPUT if wrong else Exit.DONE
