"""Revisions that a cluster shows: the first lock goes on from them."""

from typing import Any

from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs, observed_revisions
from reconciler.dependencies.lock.format import read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.instances import LockedRevision
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from tests.support.package_life import Life
from tests.support.values import replace


def shown(
    name: str, number: Any, state: str = "Inactive", image: str = "x.io/aws:v1.0.0", package: str = "aws"
) -> SnapshotObject:
    return SnapshotObject(
        api_version="pkg.crossplane.io/v1",
        kind="ProviderRevision",
        namespace="",
        name=name,
        labels={"pkg.crossplane.io/package": package} if package else {},
        annotations={},
        content={"spec": {"desiredState": state, "revision": number, "image": image}},
        location=Location("snapshot/revisions.yaml", 1),
    )


def observed(*objects: SnapshotObject) -> tuple[LockedRevision, ...]:
    key = ("pkg.crossplane.io", "ProviderRevision")
    return observed_revisions(replace(Snapshot(), objects={key: objects}))


def told(revisions: tuple[LockedRevision, ...]) -> list[str]:
    return [f"{one.revision} {one.name} {one.desired_state}" for one in revisions]


def test_the_first_lock_goes_on_from_what_the_cluster_shows_and_later_ones_do_not() -> None:
    life = Life()
    life.publish("aws", 1, frozenset({"Bucket"}))
    life.publish("aws", 2, frozenset({"Bucket"}))
    life.ask("aws", 2)
    there = observed(shown("aws-f00ba4", 7, "Active"), shown("gcp-1", 3, "Active", package="gcp"))
    world = replace(life.world(), observed=there)

    first = update_locks(FleetInputs((world,)), read_locks({}))
    life.files = dict(first.files)
    assert told(life.revisions("aws"))[0] == "7 aws-f00ba4 Inactive"
    assert [(one.revision, one.image) for one in life.revisions("aws")][1] == (8, "x.io/aws:v2.0.0")
    assert life.revisions("gcp") == ()

    moved = replace(world, observed=observed(shown("aws-f00ba4", 70, "Active")))
    assert update_locks(FleetInputs((moved,)), read_locks(life.files)).changed is False


def test_the_same_content_is_the_same_revision_under_its_upstream_name() -> None:
    life = Life()
    life.publish("aws", 1, frozenset({"Bucket"}))
    life.ask("aws", 1)
    world = replace(life.world(), observed=observed(shown("aws-f00ba4", 7, "Active")))

    life.files = dict(update_locks(FleetInputs((world,)), read_locks({})).files)

    assert told(life.revisions("aws")) == ["7 aws-f00ba4 Active"]
    assert life.owners() == {"Bucket.x.io": "aws-f00ba4"}
