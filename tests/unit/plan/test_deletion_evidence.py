"""Deletion evidence: what keeps a recorded variant that no manifest asks for any more (law 4, D3, D17)."""

from functools import cache
from typing import Any

import pytest

from reconciler.api.porch import GROUP, REPOSITORY, PackageVariantSet
from reconciler.base.reasons import Reason
from reconciler.expand import Desired, DesiredVariant
from reconciler.expand.variants import owner_key, set_key
from reconciler.inventory.inventory import Commit, Inventory, RepositoryView, Sourced
from reconciler.inventory.snapshot import Snapshot
from reconciler.inventory.standing import Position, Removal, Standing
from reconciler.names.ids import GroupKind, NamedObject, ObjectKey, ObjectName, Oid, PackageKey
from reconciler.plan.set_diff import DeletionEvidence, claimed_packages, explain_absence, last_expansions
from reconciler.policy import Policy, SnapshotPolicy
from reconciler.records.state import PackageVariantRecord
from tests.support import plan_values
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.sets import (
    COMMIT,
    blueprints,
    cluster,
    package_set,
    repository,
    select,
    snapshot,
    variant,
    world,
)
from tests.support.values import replace

MAX_AGE = 3600
BY_DEPENDENTS = ("dependents, released", "dependents, held", "dependents, undecided")
OF_OBJECTS = ("set of objects", "set of objects of one cluster")
OF_REPOSITORIES = ("set of repositories", "set of Repository objects")
GONE = ("gone, Repositories listed", "gone, Repositories listed in part")
STALE = ("older than the control repository", "without its age, older than the control repository")
FRESH = ("fresh", "at its maximum age", "older than a downstream repository")
CLAIMANTS = ("a variant that names its package", "one in a namespace without its Repository")
TABLE: DecisionTable[Reason | None] = DecisionTable(
    {
        "suspended": ("no", "yes"),
        "stalled": ("nothing", "the variant", "its set", *CLAIMANTS),
        "manifests": ("read", "a path is unreadable", "its file is broken", "another file is broken"),
        "made by": ("manifest", *BY_DEPENDENTS, "set that is gone", "set that names repositories",
            "paused set of objects", *OF_OBJECTS, *OF_REPOSITORIES),
        "snapshot": (*FRESH, *STALE, "in part", "unreadable", "absent"),
        "repository": ("registered", *GONE, "gone and stalled"),
    },
    [
        ({"suspended": "yes"}, Reason.PAUSED, "the configuration suspends every change"),
        ({"stalled": "the variant"}, Reason.OWNER_STALLED, "the variant itself is not understood"),
        ({"stalled": "its set"}, Reason.OWNER_STALLED, "its set is not understood"),
        ({"stalled": CLAIMANTS}, Reason.OWNER_STALLED,
            "a variant under a new name or in a namespace by mistake may be about to take its package over"),
        ({"manifests": "a path is unreadable"}, Reason.MANIFEST_UNREADABLE, "its manifest may be there"),
        ({"manifests": "its file is broken"}, Reason.MANIFEST_UNREADABLE, "its file may declare it"),
        ({"made by": "dependents, held"}, Reason.STILL_NEEDED, "packages on main still need it"),
        ({"made by": "dependents, undecided"}, Reason.DEPENDENTS_UNKNOWN, "dependents may still need it"),
        ({"made by": "paused set of objects"}, Reason.PAUSED, "its set is paused"),
        ({"made by": OF_OBJECTS, "snapshot": ("in part", "unreadable", "absent")}, Reason.SNAPSHOT_INCOMPLETE,
            "its object may exist and not be listed"),
        ({"made by": OF_OBJECTS, "snapshot": STALE}, Reason.SNAPSHOT_STALE, "its object may exist by now"),
        ({"made by": OF_REPOSITORIES, "repository": "gone and stalled"}, Reason.OWNER_STALLED,
            "its Repository is not understood"),
        ({"made by": OF_REPOSITORIES, "repository": GONE, "manifests": "another file is broken"},
            Reason.MANIFEST_UNREADABLE, "the broken file may hold its Repository"),
        ({"made by": OF_REPOSITORIES, "repository": GONE, "snapshot": "unreadable"},
            Reason.SNAPSHOT_INCOMPLETE, "its Repository may be in the file of the snapshot that is broken"),
        ({"made by": OF_REPOSITORIES, "repository": "gone, Repositories listed in part",
            "snapshot": (*FRESH, *STALE, "in part")}, Reason.SNAPSHOT_INCOMPLETE,
            "its Repository may exist in the cluster and not be listed"),
        ({}, None, "everything was looked at, and nothing asks for it"),
    ],
    {
        "only a variant of a set has a set": {"made by": ("manifest", *BY_DEPENDENTS), "stalled": "its set"},
    },
)  # fmt: skip
GONE_KEY = ObjectName("default", "fleet-edge-c0")
CLUSTERS = GroupKind("example.dev", "Cluster")
REPOSITORIES = GroupKind(GROUP, "Repository")


@cache
def made_by_set(made_by: str) -> Sourced[PackageVariantSet]:
    annotations: dict[str, str] = {}
    target: dict[str, Any] = select(region="eu")
    if made_by == "set that names repositories":
        target = {"repositories": [{"name": "west"}]}
    elif made_by == "set of repositories":
        target = {"repositorySelector": {}}
    elif made_by == "set of Repository objects":
        target = {"objectSelector": {"apiVersion": REPOSITORY, "kind": "Repository"}}
    elif made_by == "paused set of objects":
        annotations = {"reconciler.dev/paused": "true"}
    elif made_by == "set of objects of one cluster":
        annotations = {"reconciler.dev/clusters": "prod"}
    return package_set(targets=[target], annotations=annotations)


def a_snapshot(case: Case) -> Snapshot:
    kind = case["snapshot"]
    listed = {(CLUSTERS, "default")} if kind != "in part" else set()
    if case["repository"] == "gone, Repositories listed":
        listed.add((REPOSITORIES, "default"))
    taken = None if kind.startswith("without its age") else COMMIT.time
    main = snapshot(cluster("c1"), taken=taken, time=COMMIT.time, unreadable=kind == "unreadable")
    main = replace(main, complete=frozenset(listed))
    if kind == "absent":
        main = Snapshot()
    if case["made by"] == "set of objects of one cluster":
        # Whether the main snapshot is complete says nothing about the cluster that the set names.
        return replace(snapshot(cluster("c1")), clusters={"prod": replace(main, cluster="prod")})
    return main


@cache
def views(kind: str, where: str) -> dict[ObjectName, RepositoryView]:
    late = COMMIT.time + MAX_AGE + 1 if kind == "older than a downstream repository" else COMMIT.time
    west = repository("west", head=Commit(COMMIT.oid, late))
    return {view.key: view for view in (west, *([repository("edge")] if where == "registered" else []))}


@cache
def blank() -> Inventory:
    renamed = variant("renamed", downstream={"repo": "edge", "package": "c0"})
    return world(
        renamed,
        replace(renamed, key=ObjectName("defalt", "renamed")),
        policy=Policy(snapshot=SnapshotPolicy(max_age_s=MAX_AGE)),
    )


def an_inventory(case: Case) -> Inventory:
    empty, kind = blank(), case["snapshot"]
    stalled = {
        "the variant": ObjectKey(GROUP, "PackageVariant", *GONE_KEY),
        "its set": ObjectKey(GROUP, "PackageVariantSet", "default", "fleet"),
        CLAIMANTS[0]: ObjectKey(GROUP, "PackageVariant", "default", "renamed"),
        CLAIMANTS[1]: ObjectKey(GROUP, "PackageVariant", "defalt", "renamed"),
    }
    owners = {stalled[case["stalled"]]} if case["stalled"] in stalled else set()
    if case["repository"] == "gone and stalled":
        owners.add(ObjectKey(GROUP, "Repository", "default", "edge"))
    broken = {"its file is broken": {"sets.yaml"}, "another file is broken": {"other.yaml"}}
    age = {"at its maximum age": MAX_AGE}.get(kind, 0)
    age = MAX_AGE + 1 if kind in STALE else age
    is_of_set = case["made by"].startswith(("set", "paused")) and "gone" not in case["made by"]
    return replace(
        empty,
        policy=replace(empty.policy, suspend=case["suspended"] == "yes"),
        control=replace(
            empty.control,
            commit=Commit(COMMIT.oid, COMMIT.time + age),
            readable=case["manifests"] != "a path is unreadable",
            broken=frozenset(broken.get(case["manifests"], ())),
        ),
        sets=(made_by_set(case["made by"]),) if is_of_set else (),
        stalled=frozenset(owners),
        repositories=views(kind, case["repository"]),
        snapshot=a_snapshot(case),
    )


def a_record(made_by: str) -> PackageVariantRecord:
    return plan_values.a_record(
        namespace=GONE_KEY.namespace,
        name=GONE_KEY.name,
        manifest="sets.yaml",
        set_name="fleet" if "set" in made_by else "",
        requested_by=("default/web",) if made_by in BY_DEPENDENTS else (),
        url="host/edge",
        path="c0",
        spec={"downstream": {"repo": "edge", "package": "c0"}},
    )


def find_retention(case: Case) -> Reason | None:
    made_by = case["made by"]
    desired = Desired(
        released=frozenset({GONE_KEY} if made_by == "dependents, released" else ()),
        still_needed={GONE_KEY: "needed"} if made_by == "dependents, held" else {},
    )
    retention = DeletionEvidence(desired, an_inventory(case)).find_retention(a_record(made_by))
    return retention.reason if retention else None


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_undesired_variant_is_kept_unless_everything_was_looked_at(row: Row[Reason | None]) -> None:
    assert TABLE.mistakes(row, find_retention) == []


@pytest.mark.parametrize(
    ("made_by", "position", "reason"),
    [
        ("manifest", Position.CURRENT, Reason.REMOVAL_UNPROVEN),
        ("dependents, released", Position.CURRENT, None),
        ("dependents, released", Position.BEHIND, Reason.CHECKOUT_OUTDATED),
    ],
)
def test_removal_that_no_commit_proves_keeps_what_a_manifest_asked_for(made_by, position, reason) -> None:
    unproven = {ObjectKey(GROUP, "PackageVariant", *GONE_KEY): "No commit removed it"}
    control = replace(blank().control, unproven=unproven, standing=Standing(position))
    inventory = replace(blank(), control=control, repositories=views("fresh", "registered"))

    retention = DeletionEvidence(Desired(released=frozenset({GONE_KEY})), inventory).find_retention(
        a_record(made_by)
    )

    assert (retention.reason if retention else None) == reason


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "It may still be required: default/web required it"),
        ({"still_needed": {GONE_KEY: "web needs it"}}, "web needs it"),
        ({"waiting": {GONE_KEY: "its lock waits"}, "still_needed": {GONE_KEY: "web"}}, "its lock waits"),
    ],
)
def test_what_dependents_may_need_says_why_it_stays(fields: dict[str, Any], message: str) -> None:
    inventory = replace(blank(), repositories=views("fresh", "registered"))

    retention = DeletionEvidence(Desired(**fields), inventory).find_retention(a_record(BY_DEPENDENTS[0]))

    assert retention is not None
    assert retention.message == message


def test_set_that_was_removed_is_expanded_as_git_had_it_last() -> None:
    def expanded(last: PackageVariantSet | None) -> list[str]:
        removal = Removal("sets.yaml", Oid("a" * 40), last=last)
        control = replace(blank().control, removed={set_key(ObjectName("default", "fleet")): removal})
        upstream = blueprints()
        there = {**views("fresh", "registered"), upstream.key: upstream}
        inventory = replace(blank(), control=control, repositories=there)
        expansions = last_expansions([a_record("manifest"), a_record("set that is gone")], inventory)
        return [variant.spec.downstream.repo for _, made in expansions.values() for variant in made.variants]

    assert expanded(None) == []
    assert expanded(made_by_set("set that names repositories").manifest) == ["west"]
    assert last_expansions([a_record("set that is gone")], blank()) == {}


def test_message_of_an_old_snapshot_has_both_times_and_names_the_commit() -> None:
    control = replace(blank().control, commit=Commit(Oid("c0ffee" + "0" * 34), 4_102_444_800))
    inventory = replace(
        blank(),
        control=control,
        sets=(made_by_set("set of objects"),),
        snapshot=replace(
            snapshot(cluster("c1"), taken=COMMIT.time), complete=frozenset({(CLUSTERS, "default")})
        ),
    )

    retention = DeletionEvidence(Desired(), inventory).find_retention(a_record("set of objects"))

    assert retention is not None
    assert retention.message == (
        "The snapshot is from 1970-01-12 13:46 UTC, more than snapshot.maxAge before commit c0ffee00 of "
        "the control repository, which is dated 2100-01-01 00:00 UTC. Import a newer one with "
        "`reconciler snapshot import`"
    )


def test_claims_of_stalled_variants_leave_out_repositories_that_are_not_registered() -> None:
    here = variant("here", downstream={"repo": "edge", "package": "web"})
    elsewhere = variant("elsewhere", downstream={"repo": "nowhere", "package": "web"})
    keys = [ObjectKey(GROUP, "PackageVariant", *manifest.key) for manifest in (here, elsewhere)]

    claims = claimed_packages(frozenset(keys), world(here, elsewhere))

    assert claims == {PackageKey("host/edge", "web"): here.key}
    assert claimed_packages(frozenset(), world(here)) == {}


@pytest.mark.parametrize(("is_new", "reason"), [(True, Reason.OWNER_STALLED), (False, None)])
def test_variant_that_was_there_before_may_not_be_one_under_a_new_name(is_new, reason) -> None:
    claimant = ObjectName("defalt", "renamed")
    records = {} if is_new else {claimant: plan_values.a_record(namespace="defalt", name="renamed")}
    stalled = frozenset({ObjectKey(GROUP, "PackageVariant", *claimant)})
    inventory = replace(blank(), stalled=stalled, records=records)

    retention = DeletionEvidence(Desired(), inventory).find_retention(a_record("manifest"))

    assert (retention and retention.reason) == reason


# Explanations

OF_SET = "PackageVariantSet default/fleet"
EXPLANATIONS: DecisionTable[str] = DecisionTable(
    {
        "made by": ("manifest", "set", "set that is gone", "dependents"),
        "target": (
            "none",
            "an object",
            "an object that is gone",
            "a Repository",
            "a Repository that is gone",
        ),
        "repository": ("registered", "gone"),
        "file": ("there", "removed"),
    },
    [
        ({"made by": "dependents"}, "Not needed any more by default/web", "its dependents are gone"),
        ({"made by": "manifest", "file": "removed"},
            "sets.yaml, which declared PackageVariant default/fleet-edge-c0, was removed in commit abc",
            "a commit removed its manifest"),
        ({"made by": "manifest"}, "sets.yaml does not declare PackageVariant default/fleet-edge-c0 any more",
            "its file declares it no more"),
        ({"made by": "set that is gone", "file": "removed"},
            "sets.yaml, which declared PackageVariantSet default/fleet, was removed in commit abc",
            "a commit removed its set"),
        ({"made by": "set that is gone"},
            "sets.yaml does not declare PackageVariantSet default/fleet any more",
            "its file declares the set no more"),
        ({"target": "an object"},
            "PackageVariantSet default/fleet does not select Cluster default/c1 any more",
            "the object is there and not selected"),
        ({"target": "a Repository"},
            "PackageVariantSet default/fleet does not select Repository default/west any more",
            "the Repository is there and not selected"),
        ({"target": "an object that is gone"},
            f"Cluster default/c9, which {OF_SET} selected, is not in the snapshot any more",
            "the object left the snapshot"),
        ({"target": "a Repository that is gone"},
            f"Repository default/old, which {OF_SET} selected, is not registered any more",
            "the Repository is not registered"),
        ({}, "PackageVariantSet default/fleet has no target for edge/c0 any more",
            "the set names its package no more; the place itself says whether its Repository is gone"),
    ],
)  # fmt: skip
TARGETS = {
    "an object": "Cluster default/c1",
    "an object that is gone": "Cluster default/c9",
    "a Repository": "Repository default/west",
    "a Repository that is gone": "Repository default/old",
}


def explanation(case: Case, *made_now: DesiredVariant) -> str:
    made_by = "set that names repositories" if case["made by"] == "set" else case["made by"]
    made_by = "dependents, released" if made_by == "dependents" else made_by
    upstream, downstream = {"repo": "blueprints", "package": "web"}, {"repo": "edge", "package": "c0"}
    spec = {"upstream": upstream, "downstream": downstream}
    record = replace(a_record(made_by), target=TARGETS.get(case["target"], ""), repository="edge", spec=spec)
    inventory = blank()
    removed = {owner_key(record): Removal(record.manifest, "abc")} if case["file"] == "removed" else {}
    inventory = replace(
        inventory,
        sets=(made_by_set(made_by),) if case["made by"] == "set" else (),
        control=replace(inventory.control, removed=removed),
        repositories=views("fresh", case["repository"]),
        snapshot=snapshot(cluster("c1")),
    )
    return explain_absence(record, Desired(made_now), inventory)


def made_now(name: str, place: str, *, by_set: str = "", target: str = "none") -> DesiredVariant:
    repo, package = place.split("/")
    upstream = {"repo": "blueprints", "package": "web"}
    made = plan_values.a_desired(name, upstream=upstream, downstream={"repo": repo, "package": package})
    owner = ObjectName("default", by_set) if by_set else None
    return replace(made, set_key=owner, target=NamedObject.parse(TARGETS.get(target, "")))


FOLLOWS = "of the same upstream package"
DOES_NOT_SELECT = "PackageVariantSet default/fleet does not select"


@pytest.mark.parametrize(
    ("case", "variants", "cause"),
    [
        ({"target": "a Repository"}, [made_now("new", "west/web-new", by_set="fleet", target="a Repository")],
            f"{OF_SET} makes west/web-new of Repository default/west now, not edge/c0"),
        ({"target": "an object"},
            [made_now(n, f"{n}/c0", by_set="fleet", target="an object") for n in ("ap2", "ap1")],
            f"{OF_SET} makes ap1/c0, ap2/c0 of Cluster default/c1 now, not edge/c0"),
        ({"target": "none"}, [made_now("new", "edge/web-new", by_set="fleet")],
            f"{OF_SET} has no target for edge/c0 any more; it makes edge/web-new there"),
        ({"target": "none"}, [made_now("new", "west/web-new", by_set="fleet")],
            f"{OF_SET} has no target for edge/c0 any more"),
        ({"target": "an object"}, [made_now("new", "west/web", by_set="other", target="an object")],
            (f"{DOES_NOT_SELECT} Cluster default/c1 any more; "
            f"PackageVariantSet default/other makes west/web {FOLLOWS}")),
        ({"target": "a Repository"}, [made_now("new", "edge/web-new")],
            (f"{DOES_NOT_SELECT} Repository default/west any more; "
            f"PackageVariant default/new makes edge/web-new {FOLLOWS}")),
        ({"made by": "manifest", "file": "removed"},
            [made_now("new", "edge/web-new", by_set="other"), made_now("neighbour", "edge/web-2")],
            "sets.yaml, which declared PackageVariant default/fleet-edge-c0, was removed in commit abc"),
        ({"made by": "set that is gone", "file": "removed"}, [made_now("new", "edge/web-new")],
            ("sets.yaml, which declared PackageVariantSet default/fleet, was removed in commit abc; "
            f"PackageVariant default/new makes edge/web-new {FOLLOWS}")),
    ],
)  # fmt: skip
def test_deletion_names_what_is_made_instead(case, variants, cause) -> None:
    usual = {"made by": "set", "target": "none", "repository": "registered", "file": "there"}

    assert explanation({**usual, **case}, *variants) == cause


@pytest.mark.parametrize("row", EXPLANATIONS.rows, ids=str)
def test_deletion_names_what_is_gone(row: Row[str]) -> None:
    assert EXPLANATIONS.mistakes(row, explanation) == []
