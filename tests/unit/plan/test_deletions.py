"""Packages that no variant wants: the guard of those that moved variants left, and times of commits."""

from collections.abc import Mapping
from functools import cache

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Commit, DeletionBranch, Inventory
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.changes import Change, MoveRef, Op, WriteDraft, WriteRemoval
from reconciler.plan.compose import Parts, compose
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.deletion_diff import VariantChange
from reconciler.plan.deletion_guard import deletion_consent
from reconciler.plan.deletions import GuardedPackages, decide_unwanted, guard_moved
from reconciler.policy import DeletionGuard, Policy
from reconciler.records.state import NOTHING_REFUSED, RefusedDeletionsRecord, RefusedPackage
from tests.support.decision_table import DecisionTable, Row
from tests.support.model import EPOCH, MAIN, ModelWorld, blueprint
from tests.support.plan_values import PACKAGE, URL, a_change, a_context, a_pull, a_record, oid, staged
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


def test_table_of_packages_left_behind_is_complete() -> None:
    MOVED.check_complete()


@pytest.mark.parametrize("row", MOVED.rows, ids=str)
def test_packages_left_behind_by_moves_need_consent_if_they_are_too_many(row: Row[bool]) -> None:
    assert MOVED.mistakes(row, is_refused) == []


# Drafts and commits


def spec(**more: object) -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        downstream=Downstream(repo="edge", package="web"),
        **more,
    )


@pytest.fixture
def fleet() -> ModelWorld:
    fleet = ModelWorld()
    fleet.add_repository("blueprints")
    fleet.add_repository("edge")
    fleet.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    return fleet


def published(fleet: ModelWorld, **more: object) -> None:
    fleet.variants["web"] = spec(**more)
    fleet.run()
    fleet.merge("edge", fleet.drafts("edge")[0])
    fleet.run()


def written(fleet: ModelWorld) -> WriteDraft | WriteRemoval:
    (change,) = fleet.run().changes
    return next(write for write in change.writes if isinstance(write, WriteDraft | WriteRemoval))


@pytest.mark.parametrize("deletion", ["delete", "orphan"])
def test_draft_beside_a_package_of_others_goes_with_its_variant(fleet: ModelWorld, deletion: str) -> None:
    fleet.variants["web"] = spec(deletion_policy=deletion)
    fleet.run()
    theirs = fleet.push("edge", {"web": blueprint("web", a_yaml="a: 7\n")})
    fleet.variants.clear()

    (change,) = fleet.run().changes

    assert (change.op, change.reason, change.waits) == (Op.DELETE, Reason.NOT_DESIRED, False)
    assert (fleet.drafts("edge"), fleet.repositories["edge"].refs[MAIN]) == ([], theirs)


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_merged_draft_with_a_persons_commit_goes_with_its_variant(fleet: ModelWorld, how: str) -> None:
    fleet.variants["web"] = spec()
    fleet.run()
    (draft,) = fleet.drafts("edge")
    fleet.edit("edge", "web", {"mine.yaml": "b: 1\n"}, ref=draft)
    fleet.merge("edge", draft, how=how, keep_branch=True)
    fleet.variants.clear()

    (change,) = fleet.run().changes

    assert (change.op, change.reason, change.waits) == (Op.DELETE, Reason.NOT_DESIRED, False)
    assert fleet.drafts("edge") == []


@pytest.mark.parametrize("deletion", ["delete", "orphan"])
def test_commit_of_a_removed_manifest_is_as_old_as_its_removal(fleet: ModelWorld, deletion: str) -> None:
    published(fleet, deletion_policy=deletion)
    fleet.variants.clear()

    assert written(fleet).time == EPOCH, "the commit of the control repository"


def test_orphaning_commit_on_a_persons_draft_is_no_older_than_theirs(fleet: ModelWorld) -> None:
    fleet.variants["web"] = spec(deletion_policy="orphan")
    fleet.run()
    (draft,) = fleet.drafts("edge")
    tip = fleet.edit("edge", "web", {"mine.yaml": "b: 1\n"}, ref=draft)
    fleet.variants.clear()

    write = written(fleet)

    assert isinstance(write, WriteDraft)
    assert (write.onto, write.time) == (tip, fleet.repositories["edge"].commits[tip].time)


def test_orphaning_commit_on_our_own_draft_ignores_the_time_of_that_draft(fleet: ModelWorld) -> None:
    fleet.variants["web"] = spec(deletion_policy="orphan")
    fleet.run()
    head = fleet.repositories["edge"].refs[MAIN]
    fleet.variants.clear()

    write = written(fleet)

    assert isinstance(write, WriteDraft)
    assert (write.onto, write.time) == (head, EPOCH)


def removal(*, main_changed: bool, head_time: int) -> WriteRemoval | None:
    """Return the commit that proposes a deletion again, or for the first time without a branch."""
    owner = ObjectName("default", "web")
    ref = "reconciler/default/delete/web"
    standing = Commit(oid("a1"), 1)
    view = repository(
        "edge", head=Commit(oid("e1"), head_time), branches={ref: standing} if main_changed else {}
    )
    deletion = DeletionBranch(standing, base_tree=oid("b0")) if main_changed else None
    package = a_package(main_tree=oid("b1"), deletion=deletion)
    pull = a_pull(head=ref)
    target = PlanTarget(PACKAGE, view, package, owner=owner, main_owner=owner, pulls=(pull,))
    inventory = replace(empty(), records={owner: a_record()})
    gone = {owner: VariantChange(owner, Reason.NOT_DESIRED)}
    change = compose(
        Parts(decide_unwanted(target, a_context(inventory, gone=gone, targets={PACKAGE: target})))
    )
    return next((write for write in change.writes if isinstance(write, WriteRemoval)), None)


def test_removal_that_is_proposed_anew_is_as_old_as_the_change_on_main() -> None:
    control = empty().control.commit.time
    first = removal(main_changed=False, head_time=control + 500)
    anew = removal(main_changed=True, head_time=control + 500)

    assert first is not None
    assert anew is not None
    assert (first.time, first.expect) == (control, None)
    assert (anew.time, anew.expect, anew.onto) == (control + 500, oid("a1"), oid("e1"))
