"""Deletions as a decision table: every combination of evidence, and of what the guard weighs."""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest

from reconciler.expand import Desired, expand
from reconciler.ids import ObjectKey, ObjectName
from reconciler.inventory import Inventory
from reconciler.plan.deletion_diff import diff_variants
from reconciler.plan.deletion_guard import exceeded_limit, guard_deletions, refused_variants
from reconciler.policy import DeletionGuard, Policy
from reconciler.reasons import Reason
from reconciler.state import PackageVariantRecord, RefusedDeletionsRecord, RefusedVariant
from tests.support.sets import cluster, package_set, record_all, select, snapshot, world

REGION = select({"downstream": {"repo": "edge", "packageExpr": "target.name"}}, region="eu")
CLUSTERS = tuple(cluster(f"c{n}", region="eu") for n in range(4))
GROUP = "config.porch.kpt.dev"
GONE = ObjectName("default", "fleet-edge-c0")

EVIDENCE = {
    "suspended": Reason.PAUSED,
    "the variant is stalled": Reason.OWNER_STALLED,
    "the set is stalled": Reason.OWNER_STALLED,
    "a manifest path is unreadable": Reason.MANIFEST_UNREADABLE,
    "its file is broken": Reason.MANIFEST_UNREADABLE,
    "the set is paused": Reason.PAUSED,
    "its kind is listed in part": Reason.SNAPSHOT_INCOMPLETE,
    "the snapshot is stale": Reason.SNAPSHOT_STALE,
}
"""What keeps a variant whose target is gone, the first that holds first."""
COMBINATIONS = tuple(product([False, True], repeat=len(EVIDENCE)))


def target_gone(conditions: frozenset[str]) -> Inventory:
    """Return a set over four clusters that was applied, one of them gone, and what else is the case."""
    annotations = {"reconciler.dev/paused": "true"} if "the set is paused" in conditions else {}
    pvs = package_set(targets=[REGION], annotations=annotations)
    before = world(pvs, snapshot=snapshot(*CLUSTERS))
    records = record_all(before)
    stalled = set()
    if "the variant is stalled" in conditions:
        stalled.add(ObjectKey(GROUP, "PackageVariant", *GONE))
    if "the set is stalled" in conditions:
        stalled.add(ObjectKey(GROUP, "PackageVariantSet", "default", "fleet"))
    manifest = records[GONE].manifest
    control = replace(
        before.control,
        readable="a manifest path is unreadable" not in conditions,
        broken=frozenset({manifest} if "its file is broken" in conditions else ()),
    )
    complete = "its kind is listed in part" not in conditions
    taken = {"taken": 1} if "the snapshot is stale" in conditions else {}
    return replace(
        before,
        policy=Policy(suspend="suspended" in conditions),
        stalled=frozenset(stalled),
        records=records,
        control=control,
        snapshot=snapshot(*CLUSTERS[1:], complete=complete, **taken),
    )


def decided(conditions: frozenset[str]) -> Reason:
    inventory = target_gone(conditions)
    diff = diff_variants(expand(inventory), inventory)
    (change,) = [c for c in (*diff.delete, *diff.keep) if c.key == GONE]
    return change.reason


def test_a_variant_goes_only_if_no_condition_keeps_it() -> None:
    wrong = []
    for row in COMBINATIONS:
        conditions = frozenset(name for name, holds in zip(EVIDENCE, row, strict=True) if holds)
        want = next((EVIDENCE[name] for name in EVIDENCE if name in conditions), Reason.NOT_DESIRED)
        if decided(conditions) is not want:
            wrong.append((conditions, want))

    assert wrong == []


def test_the_table_of_evidence_is_complete() -> None:
    assert len(set(COMBINATIONS)) == 2 ** len(EVIDENCE)


class Case(NamedTuple):
    """One row: how many go, whether some of them only orphan, what was refused before, what consents."""

    deletes: int
    orphans: int
    before: bool
    consent: str


OWNED = 12
DELETES = (0, 1, 3, 4, 6)
ORPHANS = (0, 6)
CONSENTS = ("", "allowed", "set", "set, one too few", "checksum")
CASES = tuple(Case(*row) for row in product(DELETES, ORPHANS, [False, True], CONSENTS))
GUARD = DeletionGuard(share=0.3, minimum=10, count=5)
KEYS = tuple(ObjectName("default", f"v{number:02}") for number in range(OWNED))


def record(key: ObjectName, policy: str) -> PackageVariantRecord:
    return PackageVariantRecord(
        namespace=key.namespace,
        name=key.name,
        uid="",
        manifest="set.yaml",
        set_name="fleet",
        url="git.example/edge",
        path=key.name,
        repository="edge",
        deletion_policy=policy,
        spec={},
    )


def guarded(case: Case) -> tuple[int, int]:
    """Return how many deletions and how many orphans the guard keeps."""
    dying = KEYS[: case.deletes]
    leaving = KEYS[case.deletes : case.deletes + case.orphans]
    records = {key: record(key, "orphan" if key in leaving else "delete") for key in KEYS}
    annotations = {}
    if case.consent.startswith("set"):
        count = case.deletes - ("few" in case.consent)
        annotations["reconciler.dev/allow-deletes"] = str(max(0, count))
    pvs = package_set(targets=[REGION], annotations=annotations)
    refused = tuple(RefusedVariant(**key._asdict(), of=20) for key in dying) if case.before else ()
    policy = Policy(deletions=GUARD)
    if case.consent == "allowed":
        policy = Policy(deletions=replace(GUARD, allowed=case.deletes))
    inventory = replace(
        world(pvs), policy=policy, records=records, refused=RefusedDeletionsRecord(variants=refused)
    )
    doomed = [records[key] for key in (*dying, *leaving)]
    desired = Desired(targets={pvs.key: 1})
    found = guard_deletions(doomed, desired, inventory)
    if case.consent == "checksum" and found.refused:
        consents = {found.refused[0].consent: "reviewed"}
        found = guard_deletions(
            doomed, desired, replace(inventory, policy=replace(policy, consents=consents))
        )
    return sum(key in found.kept for key in dying), sum(key in found.kept for key in leaving)


def wanted(case: Case) -> int:
    """Return how many deletions must be kept: all that are too many, or were refused, without consent."""
    is_too_many = case.deletes > GUARD.count or case.deletes > GUARD.share * (20 if case.before else OWNED)
    is_consented = case.consent in {"allowed", "set", "checksum"}
    return case.deletes if (is_too_many or case.before) and not is_consented else 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guard_keeps_what_nobody_consented_to_and_counts_no_orphans(case: Case) -> None:
    assert guarded(case) == (wanted(case), 0)


def test_the_table_of_the_guard_is_complete() -> None:
    assert len(set(CASES)) == len(DELETES) * len(ORPHANS) * 2 * len(CONSENTS)
    assert {wanted(case) > 0 for case in CASES} == {True, False}


@pytest.mark.parametrize(
    ("deletions", "owned", "why"),
    [
        (3, 10, ""),
        (4, 10, "40% is over 30%"),
        (4, 9, ""),
        (5, 9, ""),
        (5, 100, ""),
        (6, 100, "more than 5"),
        (6, 6, "more than 5"),
        (0, 0, ""),
    ],
)
def test_share_minimum_and_count_may_be_reached_and_not_passed(deletions: int, owned: int, why: str) -> None:
    assert exceeded_limit(deletions, owned, GUARD) == why


def test_an_emptied_set_keeps_its_orphans_too_and_needs_consent_to_all() -> None:
    records = [record(KEYS[0], "delete"), record(KEYS[1], "orphan")]
    for consent, kept in (("2", 0), ("1", 2)):
        pvs = package_set(targets=[REGION], annotations={"reconciler.dev/allow-deletes": consent})
        inventory = replace(world(pvs), records={one.key: one for one in records})

        found = guard_deletions(records, Desired(targets={pvs.key: 0}), inventory)

        assert len(found.kept) == kept


def test_what_was_refused_is_remembered_with_what_there_was() -> None:
    inventory = target_gone(frozenset())
    strict = Policy(deletions=DeletionGuard(share=0.0, minimum=1))
    first = diff_variants(expand(inventory), replace(inventory, policy=strict))
    assert first.waiting == {GONE: 4}

    left = {key: inventory.records[key] for key in list(inventory.records)[:2]}
    refused = RefusedDeletionsRecord(variants=(RefusedVariant(**GONE._asdict(), of=4),))
    later = replace(inventory, records={**left, GONE: inventory.records[GONE]}, refused=refused)

    again = diff_variants(expand(later), later)

    assert refused_variants(later) == again.waiting == {GONE: 4}
    assert [c.reason for c in again.keep if c.key == GONE] == [Reason.DELETION_GUARD]


def test_what_is_wanted_again_is_not_refused_any_more() -> None:
    inventory = target_gone(frozenset())
    refused = RefusedDeletionsRecord(variants=(RefusedVariant(**GONE._asdict(), of=4),))
    back = replace(inventory, snapshot=snapshot(*CLUSTERS), refused=refused)

    assert diff_variants(expand(back), back).waiting == {}


def test_a_refused_deletion_that_is_kept_for_another_reason_is_not_forgotten() -> None:
    refused = RefusedDeletionsRecord(variants=(RefusedVariant(**GONE._asdict(), of=4),))
    stopped = replace(target_gone(frozenset({"suspended"})), refused=refused)

    assert diff_variants(expand(stopped), stopped).waiting == {GONE: 4}
