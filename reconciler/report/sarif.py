"""Problems and blocked packages as SARIF 2.1.0, for code scanning and editors."""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from reconciler import __version__
from reconciler.base.errors import Location
from reconciler.base.text import Text, message_line
from reconciler.names.problems import Problem
from reconciler.plan.changes import Op, Refusal
from reconciler.plan.compare import Comparison
from reconciler.report.report import Report

FALLBACK = "reconciler.yaml"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def plan_sarif(report: Report) -> dict[str, Any]:
    """Return a SARIF log of what is wrong: problems and refusals as errors, blocked packages as warnings."""
    changes = [(row.name, row.change) for row in report.packages]
    results = [
        *_wrong(report.problems, report.refusals),
        *(
            _result("warning", c.reason, _sentence(f"{name}: {c.detail or c.op}", ""), c.location)
            for name, c in changes
            if c.op is Op.BLOCK or c.waits
        ),
    ]
    return _log(results)


def comparison_sarif(comparison: Comparison) -> dict[str, Any]:
    """Return a SARIF log of a proposed change: what it brings as errors, what was there as notes.

    What could not be read is a warning.
    """
    others = (*_problems("warning", comparison.unread), *_problems("note", comparison.old))
    log = _log([*_wrong(comparison.new, comparison.refusals), *others])
    log["runs"][0]["properties"] = {"base": str(comparison.base), "head": str(comparison.head)}
    return log


def problems_sarif(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return a SARIF log of problems, each an error."""
    return _log([*_problems("error", problems)])


def _wrong(problems: Iterable[Problem], refusals: Iterable[Refusal]) -> Iterator[dict[str, Any]]:
    yield from _problems("error", problems)
    yield from (_result("error", r.reason, _sentence(r.message, r.hint), None) for r in refusals)


def _problems(level: str, problems: Iterable[Problem]) -> Iterator[dict[str, Any]]:
    return (_result(level, p.reason, _sentence(p.message, p.hint), p.location) for p in problems)


def _log(results: list[dict[str, Any]]) -> dict[str, Any]:
    rules = [{"id": rule} for rule in sorted({result["ruleId"] for result in results})]
    driver = {"name": "reconciler", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(level: str, rule: str, message: str, location: Location | None) -> dict[str, Any]:
    """Return one result; code scanning needs a place, so the default is the configuration."""
    where = location if location and location.path else Location(FALLBACK)
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(where.path)}}
    if where.line:
        physical["region"] = {"startLine": where.line}
        if where.column:
            physical["region"]["startColumn"] = where.column
    return {
        "ruleId": str(rule),
        "level": level,
        "message": {"text": message},
        "locations": [{"physicalLocation": physical}],
    }


def _sentence(message: Text, hint: Text) -> str:
    return f"{message_line(message)}. {message_line(hint)}" if hint else message_line(message)
