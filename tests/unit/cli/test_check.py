"""The exit code of a check: what the change brings, what could not be compared, and what is pending."""

from typing import Any

import pytest

from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Reason
from reconciler.cli.check import check_exit
from reconciler.names.ids import ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import PinChange, Refusal
from reconciler.plan.compare import Comparison, Fate, PackageDifference, VariantDifference
from reconciler.report.report import Names
from reconciler.run.check import CheckResult
from tests.support.plan_values import a_change


def problem(reason: Reason) -> tuple[Problem]:
    return (Problem(Location("a.yaml"), reason, "It is wrong"),)


def variants(*fates: Fate) -> dict[str, Any]:
    return {"variants": tuple(VariantDifference(ObjectName("default", fate), fate) for fate in fates)}


WRONG, UNREAD = problem(Reason.INVALID_MANIFEST), problem(Reason.REPOSITORY_UNAVAILABLE)
PENDING = {"detailed": True}
Fields = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        ({}, PENDING, Exit.DONE),
        ({"new": WRONG}, {}, Exit.INVALID_INPUT),
        ({"old": WRONG}, {}, Exit.DONE),
        ({"old": WRONG}, {"strict": True}, Exit.INVALID_INPUT),
        ({"old": problem(Reason.DEFECT)}, {}, Exit.BUG),
        ({"refusals": (Refusal(Reason.DELETION_GUARD, "It deletes all", "Agree."),)}, {}, Exit.REFUSED),
        ({"unread": UNREAD}, {"level": "fleet"}, Exit.UNAVAILABLE),
        ({"unread": UNREAD}, {"level": "diff"}, Exit.DONE),
        ({}, {"unavailable": True}, Exit.UNAVAILABLE),
        ({"postponed": 1}, {}, Exit.PARTIAL),
        (variants(Fate.KEEP), PENDING, Exit.DONE),
        (variants(Fate.KEEP, Fate.CREATE), PENDING, Exit.PENDING),
        (variants(Fate.CREATE), {}, Exit.DONE),
        ({"packages": (PackageDifference("update", None, a_change()),)}, PENDING, Exit.PENDING),
        ({"pins": (PinChange("db.io", "1.0.0", "2.0.0", ""),)}, PENDING, Exit.PENDING),
    ],
)
def test_exit_code_of_a_check(change: Fields, options: Fields, code: Exit) -> None:
    given = {"level": "fleet", "strict": False, "detailed": False, "unavailable": False, **options}
    checked = CheckResult(Comparison(**change), Names(), given.pop("unavailable"))

    assert check_exit(checked, **given) == code
