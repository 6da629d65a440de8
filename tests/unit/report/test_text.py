from dataclasses import replace

from reconciler.plan.changes import Op, Outcome, Plan
from reconciler.reasons import Reason
from reconciler.report.paint import ansi
from reconciler.report.text import change_lines, outcome_lines, plan_lines
from tests.unit.report.plans import CREATED, NAMES, OUTCOME, PLAN, REFUSED, change


def test_a_plan_is_a_table_then_what_is_wrong_then_one_line() -> None:
    assert list(plan_lines(PLAN, NAMES)) == [
        "CHANGE  PACKAGE          REASON           DETAIL",
        "create  edge-east/nginx  New              nginx/v1; waits for a person",
        "update  edge-west/nginx  UpstreamChanged  nginx/v1 -> nginx/v2; 1 of 4 files differs",
        "keep    edge-west/a      NotOurs",
        "keep    edge-west/b      UpToDate",
        "note: Snapshot is 3 days old",
        "problem: config/bad.yaml:12:5: InvalidExpression: Undeclared reference to 'nam\\x1b[2Je'",
        "  stalls: PackageVariantSet default/bad",
        "  hint: Use target.name",
        "1 to create, 1 to update, 2 kept, 1 waiting for people, 1 problem (checksum " + "c" * 64 + ")",
    ]


def test_the_order_of_changes_does_not_matter() -> None:
    shuffled = replace(PLAN, changes=PLAN.changes[::-1])

    assert list(plan_lines(shuffled, NAMES)) == list(plan_lines(PLAN, NAMES))


def test_quiet_leaves_out_the_table_and_nothing_else() -> None:
    full, quiet = list(plan_lines(PLAN, NAMES)), list(plan_lines(PLAN, NAMES, quiet=True))

    assert quiet == full[6:]


def test_a_refused_plan_is_shown_whole_before_it_says_why() -> None:
    lines = list(plan_lines(REFUSED, NAMES))

    assert lines[1].startswith("delete")
    assert lines[2:4] == ["refused: DeletionGuard: Deletes 1 of 1", "  hint: Pass --allow-deletes 1"]


def test_colours_change_no_word() -> None:
    import re

    coloured = [re.sub(r"\x1b\[\d+m", "", line) for line in plan_lines(PLAN, NAMES, paint=ansi)]

    assert coloured == list(plan_lines(PLAN, NAMES))


def test_an_empty_plan_says_that_nothing_is_to_do() -> None:
    plan = Plan((change(Op.KEEP),), checksum="e" * 64)

    assert list(plan_lines(plan, NAMES, quiet=True)) == [f"Nothing to do: 1 kept (checksum {'e' * 64})"]


def test_an_explanation_never_shows_a_value_of_a_secret() -> None:
    text = "\n".join(change_lines(CREATED, NAMES))

    assert "aHVudGVyMg==" not in text
    assert "c2VzYW1l" not in text
    assert "conflict: secret.yaml data.p" in text
    assert "upstream: 3" in text
    assert "local: 5" in text
    assert "manifest: config/set.yaml:3" in text


def test_a_name_cannot_forge_a_row() -> None:
    plan = Plan((change(Op.CREATE, "x\ndelete  everything", Reason.NEW),))

    assert len(list(plan_lines(plan, NAMES))) == 3


def test_failures_come_after_what_was_done() -> None:
    assert list(outcome_lines(OUTCOME)) == [
        "push     file:///edge-east.git refs/heads/x",
        "failed: push file:///edge-west.git refs/heads/y: stale info",
        "1 effect done, 1 failed.",
    ]
    assert list(outcome_lines(Outcome())) == ["Nothing was written."]
