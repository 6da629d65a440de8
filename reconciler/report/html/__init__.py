"""One self-contained HTML page about a run, from a template; it loads nothing and needs no network. Pure."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from reconciler.base.escape import terminal
from reconciler.base.redact import Redactor
from reconciler.base.wording import plural
from reconciler.plan.status import Phase
from reconciler.report.causes import group_problems
from reconciler.report.html.encode import data_value, script_json
from reconciler.report.html.model import ALARMING, CauseRow, HtmlReport
from reconciler.report.markdown import load_template
from reconciler.report.timings import SLOWEST, Timings

_MOST_CAUSES = 500
"""Causes and effects that the summary lists; more of them are counted, and every package is in the table."""


def html_page(report: HtmlReport, redactor: Redactor) -> str:
    """Return the page. Deterministic: the same report gives the same bytes.

    Every text is escaped where it enters the page: in the template by autoescape, in the data as JSON. Only
    the page's own script and style run, which the policy in its head names by their digests.
    """
    script, style = load_template("report.js"), load_template("report.css")
    phases = Counter(package.phase for package in report.packages if package.phase)
    return (
        _environment(redactor)
        .get_template("report.html")
        .render(
            report=report,
            title=f"{report.kind} of {report.instance}" if report.instance else str(report.kind),
            policy=_policy(script, style),
            script=Markup(script),  # noqa: S704 - a file of this program
            style=Markup(style),  # noqa: S704 - the same
            data=Markup(script_json(data_value(report, redactor))),  # noqa: S704 - escaped as JSON
            graph=Markup(redactor.text(report.graph.svg)),  # noqa: S704 - escaped where it is drawn
            fleet=Markup(redactor.text(report.fleet.svg)),  # noqa: S704 - the same
            phases={str(phase): phases[phase] for phase in Phase if phases[phase]},
            causes=_cause_lists(report),
            more_causes=len(report.causes[_MOST_CAUSES:]),
            effects=report.effects[:_MOST_CAUSES],
            more_effects=len(report.effects[_MOST_CAUSES:]),
            problems={head: group_problems(problems) for head, problems in report.problems.items()},
            alarming=ALARMING,
            timings=list(_timing_tables(report.timings)) if report.timings else [],
            sets=sorted({package.set_name for package in report.packages if package.set_name}),
            clusters=len({package.cluster for package in report.packages if package.cluster}),
        )
    )


def _cause_lists(report: HtmlReport) -> dict[str, list[tuple[int, CauseRow]]]:
    """Return the causes below their headings, each with its place in the report."""
    numbered = list(enumerate(report.causes[:_MOST_CAUSES]))
    changes = "Changes, dangerous ones first" if report.risks else "Changes"
    lists = {
        changes: [(place, cause) for place, cause in numbered if not cause.phase],
        "Left as they are": [(place, cause) for place, cause in numbered if cause.phase],
    }
    return {heading: rows for heading, rows in lists.items() if rows}


def _timing_tables(timings: Timings) -> Iterator[tuple[str, str, list[tuple[str, int, float]]]]:
    """Yield tables of durations: a heading, what is counted, and rows."""
    yield "Stage", "Results", [(stage.name, stage.items, stage.seconds) for stage in timings.stages]
    outside = [work for work in (timings.git, timings.forge) if work.runs]
    groups = {
        "Outside": outside,
        "Slowest packages": timings.packages,
        "Slowest functions": timings.functions,
    }
    for heading, works in groups.items():
        yield heading, "Runs", [(work.name, work.runs, work.seconds) for work in works[:SLOWEST]]


def _policy(script: str, style: str) -> str:
    """Return a content security policy by which nothing is loaded, and no other script or style runs."""
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _environment(redactor: Redactor) -> Environment:
    shown = _shown(redactor)
    environment = Environment(
        loader=FunctionLoader(load_template),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
        keep_trailing_newline=True,
    )
    # A part of an address is the text as the page shows it, quoted: the script compares both.
    environment.filters["quoted"] = lambda text: quote(shown(text))
    environment.filters["plural"] = plural
    environment.filters["number"] = "{:,}".format
    return environment


def _shown(redactor: Redactor) -> Callable[[Any], Any]:
    """Return what every value passes before it is escaped: without secrets, and nothing invisible in it."""

    def finalize(value: Any) -> Any:
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return terminal(redactor.text(value))

    return finalize
