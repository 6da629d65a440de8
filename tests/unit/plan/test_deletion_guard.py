"""The deletion guard as decision tables: of variants that are gone, and of packages left behind by moves."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.expand import Desired, expand
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName
from reconciler.plan.set_diff import diff_variants, exceeded_limit, guard_deletions, refused_variants
from reconciler.policy import DeletionGuard, Policy
from reconciler.records.state import PackageVariantRecord, RefusedDeletionsRecord, RefusedVariant
from tests.support.decision_table import DecisionTable, Row
from tests.support.plan_values import a_record
from tests.support.sets import cluster, package_set, record_all, select, snapshot, world
from tests.support.values import replace

REGION = select({"downstream": {"repo": "edge", "packageExpr": "target.name"}}, region="eu")
CLUSTERS = tuple(cluster(f"c{n}", region="eu") for n in range(4))
GONE = ObjectName("default", "fleet-edge-c0")


def target_gone(**fields: Any) -> Inventory:
    """Return a set over four clusters that was applied, and one of them is gone."""
    before = world(package_set(targets=[REGION]), snapshot=snapshot(*CLUSTERS))
    return replace(before, records=record_all(before), snapshot=snapshot(*CLUSTERS[1:]), **fields)


SIZES = {
    "none": (0, 10),
    "as many as the share": (3, 10),
    "one more than the share": (4, 10),
    "more than the share of few packages": (4, 9),
    "as many as the count": (5, 40),
    "one more than the count": (6, 40),
}
"""How many are deleted, of how many. Beside them, five orphans leave: they delete nothing and never count."""
ORPHANS = 5
TOO_MANY = ("one more than the share", "one more than the count")
OF_BEFORE = 60
GUARD = DeletionGuard(share=0.3, minimum=10, count=5)
SET: DecisionTable[str] = DecisionTable(
    {
        "deletions": tuple(SIZES),
        "set": ("has targets", "is emptied", "none"),
        "refused before": ("no", "yes", "record unreadable"),
        "consent": ("none", "annotation for the deletions", "annotation for all", "annotation, one too few",
            "annotation of another set", "annotation without a number", "checksum"),
    },
    [
        ({"consent": ("annotation for all", "checksum")}, "all go", "people consented to all"),
        ({"set": "is emptied"}, "all stay", "a set that selects nothing is an accident until people consent"),
        ({"refused before": "record unreadable"}, "all stay",
            "what was refused before cannot be read, so everything may have been"),
        ({"deletions": "none"}, "all go", "orphans delete nothing"),
        ({"consent": "annotation for the deletions"}, "all go", "people consented to every deletion"),
        ({"refused before": "yes"}, "deletions stay", "they were refused before, and nobody consented since"),
        ({"deletions": TOO_MANY}, "deletions stay", "they are too many"),
        ({}, "all go", "they are few enough"),
    ],
    {
        "a set is annotated, an authored variant has none": {"set": "none",
            "consent": ("annotation for the deletions", "annotation for all", "annotation, one too few",
            "annotation without a number")},
        "the annotation for no deletion consents to none": {"deletions": "none",
            "consent": ("annotation for the deletions", "annotation, one too few")},
    },
)  # fmt: skip


def keys(count: int) -> tuple[ObjectName, ...]:
    return tuple(ObjectName("default", f"v{number:02}") for number in range(count))


def record(key: ObjectName, policy: str, set_name: str = "fleet") -> PackageVariantRecord:
    return a_record(
        namespace=key.namespace,
        name=key.name,
        manifest="set.yaml",
        set_name=set_name,
        url="git.example/edge",
        path=key.name,
        deletion_policy=policy,
    )


@cache
def annotated(name: str, consent: str) -> Inventory:
    annotations = {"reconciler.dev/allow-deletes": consent} if consent else {}
    return world(package_set(name, targets=[REGION], annotations=annotations))


def guarded(case: Mapping[str, str]) -> str:
    """Return what the guard keeps of the deletions and the orphans."""
    deletes, owned = SIZES[case["deletions"]]
    everyone = keys(owned)
    dying, leaving = everyone[:deletes], everyone[deletes : deletes + ORPHANS]
    set_name = "" if case["set"] == "none" else "fleet"
    records = {key: record(key, "orphan" if key in leaving else "delete", set_name) for key in everyone}
    texts = {
        "annotation for the deletions": f"{deletes}",
        "annotation for all": f"{deletes + ORPHANS}",
        "annotation, one too few": f"{deletes - 1}",
        "annotation of another set": "99",
        "annotation without a number": "+99",
    }
    name = "other" if case["consent"] == "annotation of another set" else "fleet"
    refused = tuple(RefusedVariant(**key._asdict(), of=OF_BEFORE) for key in dying)
    before = {"no": (), "yes": refused}.get(case["refused before"])
    inventory = replace(
        annotated(name, texts.get(case["consent"], "")),
        policy=Policy(deletions=GUARD),
        records=records,
        refused=None if before is None else RefusedDeletionsRecord(variants=before),
    )
    deletions = [records[key] for key in (*dying, *leaving)]
    targets = {"has targets": 1, "is emptied": 0}
    desired = Desired(
        targets={ObjectName("default", "fleet"): targets[case["set"]]} if case["set"] in targets else {}
    )
    result = guard_deletions(deletions, desired, inventory)
    if case["consent"] == "checksum" and result.refused:
        consents = {refusal.consent: "reviewed" for refusal in result.refused}
        consenting = replace(inventory.policy, consents=consents)
        result = guard_deletions(deletions, desired, replace(inventory, policy=consenting))
    kept = set(result.messages)
    assert bool(result.refused) is bool(kept)
    if not kept:
        return "all go"
    return {frozenset(dying): "deletions stay", frozenset((*dying, *leaving)): "all stay"}[frozenset(kept)]


@pytest.mark.parametrize("row", SET.rows, ids=str)
def test_deletions_that_are_too_many_need_consent(row: Row[str]) -> None:
    assert SET.mistakes(row, guarded) == []


@pytest.mark.parametrize(
    ("share", "deletions", "owned", "why"),
    [
        (0.3, 31, 101, "31% is over 30%"),
        (0.3, 302, 1000, "30.2% is over 30.0%"),
        (0.3, 3001, 10_000, "30.01% is over 30.00%"),
        (0.333, 1, 3, "33.33% is over 33.30%"),
        (0.333333333333, 1, 3, "0.3333333333333333 is over 0.333333333333"),
        (0.29, 29, 100, ""),
        (0.07, 7, 100, ""),
        (0.07, 8, 100, "8% is over 7%"),
    ],
)
def test_share_that_is_passed_is_never_equal_to_its_limit(share, deletions, owned, why) -> None:
    assert exceeded_limit(deletions, owned, DeletionGuard(share=share, minimum=0, count=10_000)) == why


def test_what_was_refused_is_remembered_with_what_there_was() -> None:
    inventory = target_gone()
    strict = Policy(deletions=DeletionGuard(share=0.0, minimum=1))
    assert diff_variants(expand(inventory), replace(inventory, policy=strict)).waiting == {GONE: 4}

    left = {key: inventory.records[key] for key in list(inventory.records)[:2]}
    refused = RefusedDeletionsRecord(variants=(RefusedVariant(**GONE._asdict(), of=4),))
    later = replace(inventory, records={**left, GONE: inventory.records[GONE]}, refused=refused)

    again = diff_variants(expand(later), later)

    assert refused_variants(later) == again.waiting == {GONE: 4}
    assert [c.reason for c in again.keep if c.key == GONE] == [Reason.DELETION_GUARD]


def test_what_is_wanted_again_is_not_refused_any_more() -> None:
    inventory = target_gone()
    refused = RefusedDeletionsRecord(variants=(RefusedVariant(**GONE._asdict(), of=4),))
    back = replace(inventory, snapshot=snapshot(*CLUSTERS), refused=refused)

    assert diff_variants(expand(back), back).waiting == {}


def test_a_refused_deletion_that_is_kept_for_another_reason_is_not_forgotten() -> None:
    refused = RefusedDeletionsRecord(variants=(RefusedVariant(**GONE._asdict(), of=4),))
    stopped = target_gone(policy=Policy(suspend=True), refused=refused)

    assert diff_variants(expand(stopped), stopped).waiting == {GONE: 4}


def by_region(region: str) -> dict[str, Any]:
    return select({"downstream": {"repo": "edge", "packageExpr": "target.name"}}, region=region)


NAMED = {"repositories": [{"name": "edge", "packageNames": ["named"]}]}
EU, US = (tuple(cluster(f"{region}-{n}", region=region) for n in range(2)) for region in ("eu", "us"))
BOTH = {"reconciler.dev/clusters": "one,two"}
OF_CLUSTER = "target.name + '-' + target.annotations['reconciler.dev/cluster']"


def of_clusters(**objects: Any) -> Any:
    return replace(
        snapshot(), clusters={name: replace(snapshot(*them), cluster=name) for name, them in objects.items()}
    )


@pytest.mark.parametrize(
    ("before", "after", "subjects"),
    [
        (([by_region("eu"), NAMED], snapshot(*EU), {}), ([by_region("eu"), NAMED], snapshot(), {}),
            ["spec.targets[0] of PackageVariantSet default/fleet"]),
        (([by_region("eu"), by_region("us")], snapshot(*EU, *US), {}),
            ([by_region("eu"), by_region("us")], snapshot(*EU), {}),
            ["spec.targets[1] of PackageVariantSet default/fleet"]),
        (([by_region("eu"), by_region("us")], snapshot(*EU, *US), {}),
            ([by_region("eu"), by_region("su")], snapshot(*EU, *US), {}),
            ["spec.targets[1] of PackageVariantSet default/fleet"]),
        (
            ([select({"downstream": {"repo": "edge", "packageExpr": OF_CLUSTER}})],
             of_clusters(one=EU, two=EU), BOTH),
            ([select({"downstream": {"repo": "edge", "packageExpr": OF_CLUSTER}})],
             of_clusters(one=EU, two=()), BOTH),
            ["spec.targets[0] of PackageVariantSet default/fleet in cluster two"],
        ),
        (([by_region("eu"), by_region("us")], snapshot(*EU), {}),
            ([by_region("eu"), by_region("us")], snapshot(*EU[:1]), {}), []),
        (([by_region("eu"), by_region("us")], snapshot(*EU, *US), {}),
            ([by_region("eu")], snapshot(*EU, *US), {}), []),
        (
            ([NAMED, by_region("us")], snapshot(*US), {}),
            ([{"repositories": [{"name": "edge", "packageNames": ["other"]}]}, by_region("us")],
             snapshot(*US), {}),
            [],
        ),
    ],
    ids=[
        "selector beside named packages", "one of two selectors", "selector with a misspelt label",
        "one of two clusters", "selector that was always empty", "target that people took out",
        "named packages",
    ],
)  # fmt: skip
def test_selector_that_selects_nothing_any_more_needs_consent(before, after, subjects) -> None:
    def inventory(targets: Any, objects: Any, annotations: dict[str, str], **fields: Any) -> Inventory:
        pvs = package_set(targets=targets, annotations=annotations)
        return world(pvs, snapshot=objects, policy=Policy(deletions=GUARD), **fields)

    records = record_all(inventory(*before))
    now = inventory(*after, records=records)
    diff = diff_variants(expand(now), now)

    assert [r.message.partition(" selects nothing any more")[0] for r in diff.refused] == subjects
    assert len(diff.delete) == (
        0 if subjects else len(records.keys() - {v.key for v in expand(now).variants})
    )
    if subjects:
        annotations = {**after[2], "reconciler.dev/allow-deletes": "2"}
        consenting = inventory(after[0], after[1], annotations, records=records)

        assert diff.refused[0].hint.startswith("Review the plan. To delete them, annotate PackageVariantSet")
        assert diff_variants(expand(consenting), consenting).refused == ()


def test_run_after_a_refusal_measures_it_against_the_same_number() -> None:
    gone = {key: record(key, "delete") for key in keys(12)}
    inventory = world(policy=Policy(deletions=GUARD), records=gone)
    first = guard_deletions(list(gone.values()), Desired(), inventory)
    made = {key: record(key, "delete") for key in keys(24)}
    waiting = tuple(RefusedVariant(**key._asdict(), of=first.refused[0].of) for key in gone)
    later = replace(inventory, records=made, refused=RefusedDeletionsRecord(variants=waiting))

    assert guard_deletions(list(gone.values()), Desired(), later).refused == first.refused
