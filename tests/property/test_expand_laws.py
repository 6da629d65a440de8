"""The laws of expansion and set diff, on random worlds of sets, variants, clusters and records."""

import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.reasons import Reason
from reconciler.expand import Desired, expand
from reconciler.expand.variants import set_key, variant_key
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName
from reconciler.plan.set_diff import SetDiff, diff_variants
from reconciler.policy import DeletionGuard, Policy
from tests.support.sets import (
    KIND,
    blueprints,
    cluster,
    package_set,
    record_all,
    repository,
    select,
    snapshot,
    variant,
    world,
)
from tests.support.values import replace

REGIONS = ("eu", "us")
TEMPLATES: tuple[dict[str, Any], ...] = (
    {"downstream": {"repo": "edge", "packageExpr": "target.name"}},
    {"downstream": {"repoExpr": "'edge'", "packageExpr": "'p-' + target.labels.region + '-' + target.name"}},
    {"downstream": {"repo": "core", "packageExpr": "target.name"}, "labels": {"a": "b"},
        "deletionPolicy": "orphan"},
    {"downstream": {"repo": "edge", "packageExpr": "target.labels.missing"}},
    {"downstream": {"repo": "edge", "packageExpr": "nope"}},
)  # fmt: skip
VIEWS = (
    blueprints(),
    repository("edge", labels={"tier": "edge"}),
    repository("core", labels={"tier": "core"}),
)

clusters = st.lists(
    st.builds(
        lambda name, region: cluster(name, region=region),
        st.sampled_from([f"c{n}" for n in range(6)]),
        st.sampled_from(REGIONS),
    ),
    unique_by=lambda item: item.name,
    max_size=6,
)
targets = st.one_of(
    st.builds(
        lambda t, region: select(t, region=region), st.sampled_from(TEMPLATES), st.sampled_from(REGIONS)
    ),
    st.sampled_from(TEMPLATES[:3]).map(select),
    st.builds(
        lambda repo, names: {"repositories": [{"name": repo, "packageNames": sorted(names)}]},
        st.sampled_from(("edge", "core", "nowhere")),
        st.sets(st.sampled_from(("x", "y", "z")), min_size=1),
    ),
    st.builds(
        lambda tier: {"repositorySelector": {"matchLabels": {"tier": tier}}},
        st.sampled_from(("edge", "none")),
    ),
)
sets = st.lists(
    st.builds(
        lambda name, found, notes: package_set(name, targets=found, annotations=notes),
        st.sampled_from(("a", "b", "a-b")),
        st.lists(targets, min_size=1, max_size=3),
        st.sampled_from(({}, {"reconciler.dev/paused": "true"}, {"reconciler.dev/allow-deletes": "2"})),
    ),
    unique_by=lambda pvs: pvs.key,
    max_size=3,
)
variants = st.lists(
    st.builds(
        lambda name, repo, package: variant(name, downstream={"repo": repo, "package": package}),
        st.sampled_from(("one", "two", "a-edge-x")),
        st.sampled_from(("edge", "core", "nowhere")),
        st.sampled_from(("x", "c1", "other")),
    ),
    unique_by=lambda pv: pv.key,
    max_size=2,
)


@st.composite
def worlds(draw: st.DrawFn) -> Inventory:
    """Return a world, with records of what an earlier one asked for."""
    earlier = world(
        *draw(sets), *draw(variants), views=VIEWS, snapshot=snapshot(*draw(clusters)), policy=Policy()
    )
    guard = draw(
        st.sampled_from((DeletionGuard(), DeletionGuard(share=0.2, minimum=2), DeletionGuard(share=1.0)))
    )
    found = draw(st.sampled_from((True, True, False)))
    return world(
        *draw(sets),
        *draw(variants),
        views=VIEWS,
        snapshot=snapshot(*draw(clusters), complete=found),
        records=record_all(earlier),
        policy=Policy(deletions=guard),
    )


def shuffled(inventory: Inventory, seed: int) -> Inventory:
    """Return the same world with everything in another order."""
    draw = random.Random(seed)

    def mix(items: Any) -> list[Any]:
        return draw.sample(list(items), len(list(items)))

    held = inventory.snapshot
    return replace(
        inventory,
        sets=tuple(mix(inventory.sets)),
        variants=tuple(mix(inventory.variants)),
        repositories=dict(mix(inventory.repositories.items())),
        records=dict(mix(inventory.records.items())),
        snapshot=replace(held, objects={KIND: tuple(mix(held.of_kind(*KIND)))}),
    )


def both(inventory: Inventory) -> tuple[Desired, SetDiff]:
    desired = expand(inventory)
    return desired, diff_variants(desired, inventory)


@given(worlds(), st.integers(0, 2**32))
def test_order_changes_nothing(inventory: Inventory, seed: int) -> None:
    assert repr(both(shuffled(inventory, seed))) == repr(both(inventory))


@given(worlds())
def test_a_set_is_all_or_nothing_and_whoever_stalls_is_told_why(inventory: Inventory) -> None:
    desired = expand(inventory)

    named = {problem.subject for problem in desired.problems}
    for owner in desired.stalled:
        name = ObjectName(owner.namespace, owner.name)
        if owner.kind != "PackageVariant":
            assert all(variant.set_key != name for variant in desired.variants)
        assert f"{owner.kind} {name}" in named
        assert desired.conditions[owner][0].status == "True"
    asked = {set_key(pvs.key) for pvs in inventory.sets} | {variant_key(pv.key) for pv in inventory.variants}
    valid = {variant_key(variant.key) for variant in desired.variants}
    assert asked - valid == {owner for owner in desired.conditions if owner in asked}


@given(worlds())
def test_no_two_variants_share_a_name_or_a_downstream(inventory: Inventory) -> None:
    desired = expand(inventory)

    downstreams = [
        (v.spec.downstream.repo, v.spec.downstream.package) for v in desired.variants if v.spec.downstream
    ]
    assert max(Counter(downstreams).values(), default=0) <= 1
    assert max(Counter(v.key for v in desired.variants).values(), default=0) <= 1


@given(worlds())
def test_one_set_does_not_change_what_another_one_gets(inventory: Inventory) -> None:
    """Isolation: without collisions, a set that stalls takes nobody along."""
    desired = expand(inventory)
    if any(p.reason in {Reason.DUPLICATE_DOWNSTREAM, Reason.AMBIGUOUS_IDENTIFIER} for p in desired.problems):
        return

    for pvs in inventory.sets:
        alone = expand(replace(inventory, sets=(pvs,), variants=()))
        assert alone.variants == tuple(v for v in desired.variants if v.set_key == pvs.key)


@given(worlds())
def test_the_diff_names_every_variant_exactly_once(inventory: Inventory) -> None:
    desired, diff = both(inventory)

    changes = (*diff.create, *diff.update, *diff.delete, *diff.transfer, *diff.keep)
    assert sorted(c.key for c in changes) == sorted(
        {v.key for v in desired.variants} | inventory.records.keys()
    )


@given(worlds())
def test_what_belongs_to_a_stalled_owner_is_kept(inventory: Inventory) -> None:
    desired, diff = both(inventory)

    for change in (*diff.delete, *diff.transfer):
        assert change.record is not None
        owner = ObjectName(change.key.namespace, change.record.set_name)
        assert set_key(owner) not in desired.stalled
        assert variant_key(change.key) not in desired.stalled


@given(worlds())
def test_an_incomplete_listing_deletes_nothing_of_an_object_selector(inventory: Inventory) -> None:
    if inventory.snapshot.complete:
        return
    selecting = {
        pvs.key for pvs in inventory.sets if any(t.object_selector for t in pvs.manifest.spec.targets or ())
    }

    _, diff = both(inventory)

    owners = {ObjectName(c.key.namespace, c.record.set_name) for c in diff.delete if c.record}
    assert not owners & selecting


@given(worlds())
def test_deletions_above_the_share_are_refused(inventory: Inventory) -> None:
    guard, owned = inventory.policy.deletions, len(inventory.records)
    consented = {
        pvs.key
        for pvs in inventory.sets
        if (pvs.manifest.metadata.annotations or {}).get("reconciler.dev/allow-deletes")
    }

    _, diff = both(inventory)

    counted = [
        c.record
        for c in diff.delete
        if c.record
        and c.record.deletion_policy == "delete"
        and ObjectName(c.key.namespace, c.record.set_name) not in consented
    ]
    if owned >= guard.minimum:
        assert len(counted) <= guard.share * owned


@given(worlds())
def test_after_applying_everything_there_is_nothing_left(inventory: Inventory) -> None:
    applied = replace(inventory, records=record_all(inventory), policy=Policy())

    _, diff = both(applied)

    assert (diff.create, diff.update, diff.delete, diff.transfer) == ((), (), (), ())
    assert {c.reason for c in diff.keep} <= {Reason.UP_TO_DATE, Reason.PAUSED}
