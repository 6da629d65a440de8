from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Phase, Reason
from reconciler.dependencies.lock.changes import MoveOp, VersionChange
from reconciler.names.problems import Problem
from reconciler.plan.changes import Op, Plan, Refusal
from reconciler.plan.status import PackageStatus
from reconciler.report.build import build_report, is_unchanged, summary_line
from reconciler.report.text import change_lines, plan_lines, problem_lines
from tests.support.plan_values import a_conflict
from tests.support.values import replace
from tests.unit.report.plans import CREATED, NAMES, change


@pytest.mark.parametrize(
    "news",
    [
        {"message": "Locked; upstream offers web/v2"},
        {"unready": ("x is not set",)},
        {"waits": True},
        {"reason": Reason.REJECTED},
        {"conflicts": (a_conflict("a.yaml", "spec.x", "1", "2"),)},
    ],
    ids=lambda news: next(iter(news)),
)
def test_kept_package_with_news_is_always_listed(news: dict[str, Any]) -> None:
    kept = replace(change(Op.KEEP), **news)

    lines = list(plan_lines(build_report(Plan((kept,)), NAMES), quiet=True))

    assert any(line.startswith("keep") for line in lines)


@pytest.mark.parametrize("phase", Phase)
def test_only_published_packages_are_unchanged(phase: Phase) -> None:
    kept = change(Op.KEEP)

    assert is_unchanged(kept, PackageStatus(phase, package=kept.package)) is (phase is Phase.PUBLISHED)


def test_an_explanation_never_shows_a_value_of_a_secret() -> None:
    text = "\n".join(change_lines(CREATED, NAMES))

    assert "aHVudGVyMg==" not in text
    assert "c2VzYW1l" not in text
    assert "conflict: secret.yaml data.p" in text
    assert "upstream: 3" in text
    assert "local: 5" in text
    assert "manifest: config/set.yaml:3" in text


def test_line_breaks_of_a_message_become_spaces() -> None:
    (line,) = problem_lines([Problem(Location("a.yaml"), "R", "one\ntwo\x1b[2J")])

    assert line == "problem: a.yaml: R: one two\\x1b[2J"


def test_a_plan_that_only_changes_pins_does_not_say_that_nothing_is_to_do() -> None:
    removed = VersionChange(
        MoveOp.REMOVE, "carvel:db.io", "1.0.0", "", "nothing requires it any more", ("dev",)
    )

    assert summary_line(Plan(), {}) == "Nothing to do: no packages"
    assert summary_line(Plan(version_changes=(removed,)), {}) == "1 pin to change in the lock"


def test_summary_counts_each_package_once_and_its_state_where_it_is_kept() -> None:
    waiting = [replace(change(op, str(op)), waits=True) for op in (Op.UPDATE, Op.KEEP, Op.BLOCK)]
    changes = (
        *waiting,
        replace(change(Op.CREATE, "new"), unready=("a", "b")),
        *(change(Op.KEEP, n) for n in "xyz"),
    )
    phases = {"x": Phase.IN_REVIEW, "y": Phase.PUBLISHED, "new": Phase.NOT_READY}
    statuses = {c.package: PackageStatus(phases[c.package.path]) for c in changes if c.package.path in phases}
    refusal = Refusal(Reason.DELETION_GUARD, "Deletes 1 of 1", "Consent.")
    problem = Problem(Location("a.yaml"), Reason.UNKNOWN_FIELD, "Unknown field x")
    moves = (
        VersionChange(MoveOp.ROLL_BACK, "db.io", "2.0.0", "1.0.0", "", ("dev", "prod")),
        VersionChange(MoveOp.ADD, "api.io", "", "1.0.0", "", ("dev",)),
    )

    line = summary_line(Plan(changes, (problem,), (refusal, refusal), version_changes=moves), statuses)

    assert line == (
        "1 revision to roll back, 1 to create, 1 to update, 1 blocked, 4 kept (1 published, 1 in review, "
        "2 not ours), 1 will wait for people, 1 not ready, 1 problem, 2 refusals, 1 pin to change in the lock"
    )
