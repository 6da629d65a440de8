"""Findings about a set-up: what works and what does not, each with its next step. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.base.escape import message_line, terminal
from reconciler.base.suggestions import next_step
from reconciler.base.text import Text
from reconciler.base.wording import plural
from reconciler.report.console import Color, Paint, plain
from reconciler.report.json import listing


class Severity(StrEnum):
    """Weight of a finding: an error keeps something from working."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Diagnosis(NamedTuple):
    """Result of one check of one subject, such as a repository; the hint is the next step."""

    check: str
    subject: str
    severity: Severity = Severity.OK
    message: Text = ""
    hint: Text = ""


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
