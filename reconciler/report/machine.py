"""JSON and SARIF 2.1.0 of every command, also of those without a plan."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import orjson

from reconciler import __version__
from reconciler.base.errors import Location
from reconciler.base.redact import Redactor
from reconciler.base.text import Text, json_text, message_line
from reconciler.names.problems import Problem

_API_VERSION = "reconciler.dev/v1alpha1"
FALLBACK = "reconciler.yaml"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def dump(value: Any, redactor: Redactor) -> str:
    """Return canonical JSON text: redacted, visible, sorted keys, two-space indent, final newline."""
    option = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    with suppress(TypeError):  # orjson knows fewer types than the redactor
        text = orjson.dumps(value, option=option).decode()
        # Large outputs seldom have anything to mask, and each string then need not be looked at.
        if redactor.is_clean(text):
            return json_text(text)
    return json_text(orjson.dumps(redactor.value(value), option=option).decode())


def document(kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON value with its head."""
    return {"apiVersion": _API_VERSION, "kind": kind, **value}


def listing(kind: str, items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a list of things of one kind as a JSON value."""
    return document(f"{kind}List", {"items": list(items)})


def problem_value(problem: Problem) -> dict[str, object]:
    """Return a problem as JSON has it."""
    where = problem.location._asdict()
    what = {"reason": str(problem.reason), "message": str(problem.message), "hint": str(problem.hint)}
    return {**what, "location": where, "subject": problem.subject}


def problems_sarif(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return a SARIF log of problems, each an error."""
    return sarif_log([*problem_results("error", problems)])


def problem_results(level: str, problems: Iterable[Problem]) -> Iterator[dict[str, Any]]:
    """Yield problems as results of a SARIF log."""
    return (sarif_result(level, p.reason, sentence(p.message, p.hint), p.location) for p in problems)


def sarif_log(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a SARIF log with these results."""
    rules = [{"id": rule} for rule in sorted({result["ruleId"] for result in results})]
    driver = {"name": "reconciler", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def sarif_result(level: str, rule: str, message: str, location: Location | None) -> dict[str, Any]:
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


def sentence(message: Text, hint: Text) -> str:
    """Return a message with its hint as one line."""
    return f"{message_line(message)}. {message_line(hint)}" if hint else message_line(message)
