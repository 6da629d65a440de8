from dataclasses import replace
from typing import Any

import pytest

from reconciler.plan.changes import ConflictNote, Op, Outcome, Plan
from reconciler.plan.status import PackageStatus, Phase
from reconciler.reasons import Reason
from reconciler.report.console import ansi
from reconciler.report.summary import is_unchanged
from reconciler.report.text import change_lines, outcome_lines, plan_lines
from tests.unit.report.plans import CREATED, NAMES, OUTCOME, PLAN, REFUSED, change


def test_plan_is_counts_then_changes_then_problems() -> None:
    assert list(plan_lines(PLAN, NAMES)) == [
        "1 to create, 1 to update, 2 kept, 1 waiting for people, 1 problem (checksum " + "c" * 64 + ")",
        "CHANGE  PACKAGE          REASON           DETAIL",
        "create  edge-east/nginx  New              nginx/v1; waits for a person",
        "update  edge-west/nginx  UpstreamChanged  nginx/v1 -> nginx/v2; 1 of 4 files differs",
        "note: Snapshot is 3 days old",
        "problem: config/bad.yaml:12:5: InvalidExpression: Undeclared reference to 'nam\\x1b[2Je'",
        "  stalls: PackageVariantSet default/bad",
        "  hint: Use target.name",
    ]


def test_unchanged_packages_are_listed_on_request() -> None:
    short, full = list(plan_lines(PLAN, NAMES)), list(plan_lines(PLAN, NAMES, unchanged=True))

    assert [line for line in full if line not in short] == [
        "keep    edge-west/a      NotOurs",
        "keep    edge-west/b      UpToDate",
    ]
    assert [line for line in full if not line.startswith("keep")] == short


@pytest.mark.parametrize(
    "news",
    [
        {"message": "Locked; upstream offers web/v2"},
        {"unready": ("x is not set",)},
        {"warnings": ("x",)},
        {"waits": True},
        {"reason": Reason.REJECTED},
        {"conflicts": (ConflictNote("a.yaml", "spec.x", "1", "2"),)},
    ],
    ids=lambda news: next(iter(news)),
)
def test_kept_package_with_news_is_always_listed(news: dict[str, Any]) -> None:
    kept = replace(change(Op.KEEP), **news)

    lines = list(plan_lines(Plan((kept,)), NAMES, quiet=True))

    assert any(line.startswith("keep") for line in lines)


@pytest.mark.parametrize("phase", Phase)
def test_only_published_packages_are_unchanged(phase: Phase) -> None:
    kept = change(Op.KEEP)

    assert is_unchanged(kept, PackageStatus(phase, package=kept.package)) is (phase is Phase.PUBLISHED)


def test_the_order_of_changes_does_not_matter() -> None:
    shuffled = replace(PLAN, changes=PLAN.changes[::-1])

    assert list(plan_lines(shuffled, NAMES)) == list(plan_lines(PLAN, NAMES))


def test_quiet_leaves_out_notes_and_nothing_else() -> None:
    full, quiet = list(plan_lines(PLAN, NAMES)), list(plan_lines(PLAN, NAMES, quiet=True))

    assert quiet == [line for line in full if not line.startswith("note: ")]


def test_a_refused_plan_is_shown_whole_before_it_says_why() -> None:
    lines = list(plan_lines(REFUSED, NAMES))

    assert lines[2].startswith("delete")
    assert lines[3:5] == ["refused: DeletionGuard: Deletes 1 of 1", "  hint: Pass --allow-deletes 1"]


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
