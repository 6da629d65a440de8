"""Packages that no variant wants: the guard of those that moved variants left."""

from collections.abc import Mapping
from functools import cache

import pytest

from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.changes import Change, MoveRef, Op
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.deletions import GuardedPackages, guard_moved
from reconciler.plan.set_diff import deletion_consent
from reconciler.policy import DeletionGuard, Policy
from reconciler.records.state import NOTHING_REFUSED, RefusedDeletionsRecord, RefusedPackage
from tests.support.decision_table import DecisionTable, Row
from tests.support.plan_values import URL, a_change, a_context, oid, staged
from tests.support.sets import a_package, repository, world
from tests.support.values import replace

GUARD = DeletionGuard(share=0.3, minimum=10, count=5)
SIZES = {
    "as many as the share": (3, 10),
    "one more than the share": (4, 10),
    "more than the share of few packages": (4, 9),
    "as many as the count": (5, 40),
    "one more than the count": (6, 40),
}
"""How many packages are left behind, of how many that this instance owns."""
KINDS = {
    "begins now": (Op.DELETE, "moved"),
    "was proposed before": (Op.DELETE, "moved"),
    "orphans": (Op.ORPHAN, "moved"),
    "is of variants that are gone": (Op.DELETE, "gone"),
}
OF_BEFORE = 60
"""The number of owned packages at the first refusal; any share of so many is small."""
MOVED: DecisionTable[bool] = DecisionTable(
    {
        "size": tuple(SIZES),
        "deletion": tuple(KINDS),
        "refused before": ("no", "yes", "record unreadable"),
        "consent": ("none", "checksum", "checksum of others"),
    },
    [
        ({"deletion": ("was proposed before", "orphans")}, False, "this plan begins no deletion"),
        ({"deletion": "is of variants that are gone"}, False, "the set diff guards them"),
        ({"consent": "checksum"}, False, "people consented to all"),
        ({"refused before": ("yes", "record unreadable")}, True, "they may have been refused before"),
        ({"size": ("one more than the share", "one more than the count")}, True, "they are too many"),
        ({}, False, "they are few enough"),
    ],
)


@cache
def empty() -> Inventory:
    return world(views=(repository("edge"),))


def packages(count: int) -> list[PackageKey]:
    return [PackageKey(URL, f"p{number:02}") for number in range(count)]


def left_behind(case: Mapping[str, str]) -> tuple[PlanContext, list[Change]]:
    deletes, owned = SIZES[case["size"]]
    view = repository("edge")
    op, variant = KINDS[case["deletion"]]
    keys = packages(owned)
    owner = ObjectName("default", "web")
    targets = {
        key: PlanTarget(key, view, a_package(key.path, main_tree=oid("b1")), owner=owner, main_owner=owner)
        for key in keys
    }
    writes = () if case["deletion"] == "was proposed before" else (MoveRef("refs/heads/x", oid("a1"), None),)
    name = owner if variant == "moved" else owner._replace(name="gone")
    reason = Reason.NOT_DESIRED
    changes = [
        a_change(package=key, repository=view.key, op=op, reason=reason, variant=name, writes=writes)
        for key in keys[:deletes]
    ]
    changes += [a_change(package=key, repository=view.key) for key in keys[deletes:]]
    before = tuple(RefusedPackage(**key._asdict(), of=OF_BEFORE) for key in keys[:deletes])
    refused = RefusedDeletionsRecord(packages=before) if case["refused before"] == "yes" else NOTHING_REFUSED
    consents = {
        "checksum": {deletion_consent(keys[:deletes]): "moved"},
        "checksum of others": {deletion_consent(keys[1:]): "moved"},
    }
    inventory = replace(
        empty(),
        policy=Policy(deletions=GUARD, consents=consents.get(case["consent"], {})),
        refused=None if case["refused before"] == "record unreadable" else refused,
    )
    return a_context(inventory, targets=targets, variants={owner: None}), changes


def check_waiting(case: Mapping[str, str], result: GuardedPackages, refused: list[Change]) -> None:
    """What is refused waits for consent, measured against what there was at the first refusal."""
    _, owned = SIZES[case["size"]]
    of = OF_BEFORE if case["refused before"] == "yes" else owned
    waiting = {change.package: result.waiting.get(change.package) for change in refused}
    assert waiting == dict.fromkeys(waiting, of)
    assert all(change.writes == () and not change.waits for change in refused)


def is_refused(case: Mapping[str, str]) -> bool:
    context, changes = left_behind(case)
    result = guard_moved(context, changes)
    guarded = staged("guard", lambda *_: result.vetoes, changes, context)
    refused = [change for change in guarded if change.reason is Reason.DELETION_GUARD]
    check_waiting(case, result, refused)
    assert len(result.refusals) == bool(refused)
    if refused:
        owned = OF_BEFORE if case["refused before"] == "yes" else SIZES[case["size"]][1]
        assert f"{len(refused)} of {owned} owned packages" in result.refusals[0].message
        assert [change.package for change in refused] == packages(SIZES[case["size"]][0])
        assert {change.op for change in refused} == {Op.KEEP}
    else:
        assert guarded == tuple(changes)
    return bool(refused)


@pytest.mark.parametrize("row", MOVED.rows, ids=str)
def test_packages_left_behind_by_moves_need_consent_if_they_are_too_many(row: Row[bool]) -> None:
    assert MOVED.mistakes(row, is_refused) == []
