"""JSON, SARIF and Markdown of one plan."""

from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.errors import Exit
from reconciler.base.redact import Redactor
from reconciler.base.text import block
from reconciler.plan.changes import (
    Approval,
    ClosePull,
    MoveRef,
    Op,
    Outcome,
    StartBranch,
    WriteGroup,
    WriteRemoval,
    exit_of,
    exits_of,
)
from reconciler.report.build import build_report
from reconciler.report.diff import FileChange
from reconciler.report.json import report_value
from reconciler.report.machine import dump
from reconciler.report.markdown import pull_body
from tests.support.plan_values import a_write, oid
from tests.support.schema import output_violations
from tests.support.values import replace
from tests.unit.report import rich
from tests.unit.report.plans import CREATED, NAMES, OUTCOME, PLAN, REFUSED


def test_exit_codes_follow_the_order_of_severity() -> None:
    assert exit_of(PLAN) is Exit.INVALID_INPUT
    assert exit_of(PLAN, outcome=OUTCOME) is Exit.UNAVAILABLE
    assert exit_of(REFUSED) is Exit.REFUSED
    clean = replace(PLAN, problems=(), exits=frozenset())
    assert exit_of(clean) is Exit.DONE
    assert exit_of(clean, detailed=True) is Exit.PENDING
    assert exit_of(clean, detailed=True, outcome=Outcome()) is Exit.DONE
    assert exits_of(PLAN, detailed=True) == {Exit.INVALID_INPUT, Exit.PENDING}


@given(st.text("a`|\\\0 01\n<é", min_size=1, max_size=6))
def test_differences_in_a_body_are_blocks_that_nothing_in_them_ends(text: str) -> None:
    shown = [FileChange("app.yaml", 1, 1, "-a\n+b"), FileChange("Kptfile", 1, 0, text)]

    assert block(text, "diff") in pull_body(CREATED, NAMES, shown, difference="https://x")


WRITES = (
    a_write(),
    WriteGroup("refs/heads/g", None, oid("a"), (), "Write", 1),
    WriteRemoval("refs/heads/r", None, oid("a"), "web", "Remove", 1),
    MoveRef("refs/heads/m", None, oid("a")),
    StartBranch("refs/heads/main", {}, oid("a"), "Begin", 1),
)


def test_json_has_the_fields_of_its_schema_and_no_other() -> None:
    merged = rich.web(
        0,
        Op.APPROVE,
        writes=WRITES,
        approve=Approval(1, "h", "e", by_forge=True),
        close=(ClosePull(2, "h", "c"),),
    )
    plan = replace(rich.PLAN, changes=(*rich.PLAN.changes[:-1], merged))

    text = dump(report_value(build_report(plan, rich.NAMES, rich.OUTCOME)), Redactor())

    assert output_violations("plan", text) == []
