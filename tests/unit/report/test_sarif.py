"""SARIF of a proposed change: its level by what the change is to blame for, and a place for everything."""

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.names.problems import Problem
from reconciler.report.json import report_sarif
from reconciler.report.machine import FALLBACK
from reconciler.report.report import Report


def problem(message: str, where: Location = Location("a.yaml", 2, 3)) -> Problem:  # noqa: B008 - a frozen value
    return Problem(where, Reason.INVALID_MANIFEST, message, "Mend it")


@pytest.mark.parametrize(
    ("where", "physical"),
    [
        (Location("a.yaml", 2, 3),
         {"artifactLocation": {"uri": "a.yaml"}, "region": {"startLine": 2, "startColumn": 3}}),
        (Location("a.yaml", 2), {"artifactLocation": {"uri": "a.yaml"}, "region": {"startLine": 2}}),
        (Location("a b.yaml"), {"artifactLocation": {"uri": "a%20b.yaml"}}),
        (Location(""), {"artifactLocation": {"uri": FALLBACK}}),
    ],
    ids=["column", "line", "file", "nowhere"],
)  # fmt: skip
def test_every_result_has_a_place(where: Location, physical: object) -> None:
    (result,) = report_sarif(Report(sentence="", problems=(problem("x", where),)))["runs"][0]["results"]

    assert result["locations"] == [{"physicalLocation": physical}]
