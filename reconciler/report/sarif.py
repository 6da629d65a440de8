"""Problems and blocked packages as SARIF 2.1.0, for code scanning and editors."""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from reconciler import __version__
from reconciler.base.errors import Location, Problem
from reconciler.base.escape import message_line
from reconciler.plan.changes import Op, Plan, Refusal
from reconciler.plan.compare import Comparison
from reconciler.report.summary import Names, sorted_changes

FALLBACK = "reconciler.yaml"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def plan_sarif(plan: Plan, names: Names) -> dict[str, Any]:
    """Return a SARIF log of what is wrong: problems and refusals as errors, blocked packages as warnings."""
    results = [
        *_wrong(plan.problems, plan.refusals),
        *(
            _result("warning", c.reason, _sentence(f"{names.of(c)}: {c.detail or c.op}", ""), c.location)
            for c in sorted_changes(plan)
            if c.op is Op.BLOCK or c.waits
        ),
    ]
    return _log(results)


def comparison_sarif(comparison: Comparison) -> dict[str, Any]:
    """Return a SARIF log of a proposed change: what it brings as errors, what was there as notes.

    What could not be read is a warning.
    """
    unread = (
        _result("warning", p.reason, _sentence(p.message, p.hint), p.location) for p in comparison.unread
    )
    before = (_result("note", p.reason, _sentence(p.message, p.hint), p.location) for p in comparison.old)
    return _log([*_wrong(comparison.new, comparison.refusals), *unread, *before])


def problems_sarif(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return a SARIF log of problems, each an error."""
    return _log([*_wrong(problems, ())])


def _wrong(problems: Iterable[Problem], refusals: Iterable[Refusal]) -> Iterator[dict[str, Any]]:
    yield from (_result("error", p.reason, _sentence(p.message, p.hint), p.location) for p in problems)
    yield from (_result("error", r.reason, _sentence(r.message, r.hint), None) for r in refusals)


def _log(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "reconciler",
                        "version": __version__,
                        "rules": [{"id": rule} for rule in _rules(results)],
                    }
                },
                "results": results,
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


def _rules(results: Iterable[dict[str, Any]]) -> list[str]:
    return sorted({result["ruleId"] for result in results})


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


def _sentence(message: str, hint: str) -> str:
    return f"{message_line(message)}. {message_line(hint)}" if hint else message_line(message)
