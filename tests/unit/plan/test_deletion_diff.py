"""The set diff: what is created, updated, taken over, deleted; and everything that keeps."""

from typing import Any, NamedTuple

import pytest

from reconciler.base.reasons import Reason
from reconciler.expand import expand
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.ids import ObjectName
from reconciler.plan.set_diff import SetDiff, diff_variants
from reconciler.policy import DeletionGuard, Policy
from tests.support.sets import (
    cluster,
    package_set,
    record_all,
    select,
    snapshot,
    variant,
    world,
)
from tests.support.values import replace

BY_NAME = {"downstream": {"repo": "edge", "packageExpr": "target.name"}}
REGION = select(BY_NAME, region="eu")
CLUSTERS = tuple(cluster(f"c{n}", region="eu") for n in range(4))


def diff(inventory: Inventory) -> SetDiff:
    return diff_variants(expand(inventory), inventory)


def applied(**fields: Any) -> Inventory:
    """Return a set over four clusters that was applied."""
    inventory = world(package_set(targets=[REGION]), snapshot=snapshot(*CLUSTERS), **fields)
    return replace(inventory, records=record_all(inventory))


def counts(found: SetDiff) -> tuple[int, int, int, int, int]:
    return tuple(map(len, (found.create, found.update, found.delete, found.transfer, found.keep)))  # type: ignore[return-value]


def without(inventory: Inventory, *gone: str, **fields: Any) -> Inventory:
    """Return the same world with some clusters gone."""
    left = [c for c in CLUSTERS if c.name not in gone]
    return replace(inventory, snapshot=snapshot(*left, **fields))


def test_what_was_applied_is_kept() -> None:
    assert counts(diff(applied())) == (0, 0, 0, 0, 4)


def test_a_new_target_is_created_and_a_changed_spec_updated() -> None:
    inventory = applied()
    more = replace(inventory, snapshot=snapshot(*CLUSTERS, cluster("c9", region="eu")))
    changed = replace(
        more, sets=(package_set(targets=[select({**BY_NAME, "deletionPolicy": "orphan"}, region="eu")]),)
    )

    found = diff(changed)

    assert counts(found) == (1, 4, 0, 0, 0)
    assert [c.key.name for c in found.create] == ["fleet-edge-c9"]
    assert {c.reason for c in found.update} == {Reason.CONTENT_CHANGED}


def test_a_target_that_went_is_deleted() -> None:
    found = diff(without(applied(), "c1"))

    assert [c.key.name for c in found.delete] == ["fleet-edge-c1"]
    assert counts(found) == (0, 0, 1, 0, 3)


def test_renaming_a_set_transfers_and_deletes_nothing() -> None:
    found = diff(replace(applied(), sets=(package_set("renamed", targets=[REGION]),)))

    assert counts(found) == (4, 0, 0, 4, 0)
    assert {(c.reason, str(c.successor)) for c in found.transfer} >= {
        (Reason.OWNER_CHANGED, "default/renamed-edge-c0"),
    }


class Kept(NamedTuple):
    reason: str
    world: Inventory
    want: Reason


def emptied() -> Inventory:
    return without(applied(), "c0", "c1", "c2", "c3")


KEEPS = [
    Kept("the set is stalled", replace(applied(), sets=(package_set(targets=[{}]),)), Reason.OWNER_STALLED),
    Kept("the snapshot is gone", replace(applied(), snapshot=Snapshot()), Reason.OWNER_STALLED),
    Kept("the selector was emptied", emptied(), Reason.DELETION_GUARD),
]


@pytest.mark.parametrize("case", KEEPS, ids=lambda c: c.reason)
def test_ignorance_never_deletes(case: Kept) -> None:
    found = diff(case.world)

    assert found.delete == ()
    assert case.want in {change.reason for change in found.keep}


def test_a_broken_file_keeps_only_what_it_declared() -> None:
    inventory = world(variant("here"), variant("there", downstream={"repo": "edge", "package": "there"}))
    records = record_all(inventory)
    here = ObjectName("default", "here")
    records[here] = replace(records[here], manifest="broken.yaml")
    control = replace(inventory.control, broken=frozenset({"broken.yaml"}))

    found = diff(replace(inventory, variants=(), records=records, control=control))

    assert [c.key.name for c in found.delete] == ["there"]
    assert [c.key for c in found.keep] == [here]


@pytest.mark.parametrize(("consent", "deleted"), [("4", 4), ("3", 0), ("many", 0), ("", 0)])
def test_an_emptied_selector_needs_consent_on_the_set(consent: str, deleted: int) -> None:
    pvs = package_set(targets=[REGION], annotations={"reconciler.dev/allow-deletes": consent})
    inventory = replace(without(applied(), "c0", "c1", "c2", "c3"), sets=(pvs,))

    found = diff(inventory)

    assert len(found.delete) == deleted
    assert [r.message for r in found.refused] == (
        [] if deleted else ["PackageVariantSet default/fleet selects nothing any more; it had 4 variants"]
    )


def test_hint_of_a_refusal_names_both_ways_to_consent() -> None:
    (refusal,) = diff(without(applied(), "c0", "c1", "c2", "c3")).refused

    annotation = 'annotate PackageVariantSet default/fleet with reconciler.dev/allow-deletes: "4"'
    assert refusal.annotation == annotation
    assert refusal.hint == (
        f"Review the plan. To delete them, {annotation}, or write in the configuration: "
        f"spec.consents: {{{refusal.consent}: why}}."
    )


def test_transfers_are_no_deletions_to_the_guard() -> None:
    policy = Policy(deletions=DeletionGuard(share=0.0, minimum=1))

    found = diff(replace(applied(policy=policy), sets=(package_set("renamed", targets=[REGION]),)))

    assert found.refused == ()
    assert len(found.transfer) == 4


def test_a_paused_variant_is_neither_created_nor_updated() -> None:
    stopped = variant(metadata={"annotations": {"reconciler.dev/paused": "true"}})

    assert [c.reason for c in diff(world(stopped)).keep] == [Reason.PAUSED]
