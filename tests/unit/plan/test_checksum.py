"""The checksum of a plan: equal if and only if applying does the same, wherever the repositories stand."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import REPOSITORY, GitRepository, Repository, RepositorySpec
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockUpdate, next_lock
from reconciler.dependencies.model.instances import Instance, Resolution, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.inventory.inventory import (
    Commit,
    Control,
    Inventory,
    PullRequest,
    RepositoryView,
    ReviewedLock,
    Source,
)
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.plan.build import plan_checksum
from reconciler.plan.changes import Approval, Change, ClosePull, MoveRef, Op, Plan
from reconciler.policy import Policy
from reconciler.records.state import UpstreamLock, lock_bytes, lock_path
from tests.support.plan_values import a_change, a_write
from tests.support.values import replace

EDGE = ObjectName("default", "edge")
WEB = PackageKey("/home/somebody/edge", "web")
A, B, C = (Oid(digit * 40) for digit in "abc")

DRAFT = a_write(ref="refs/heads/drafts/web/w", expect=A, onto=B, tree=C, message="Create web\n", time=1)


def change(package: PackageKey = WEB, **more: Any) -> Change:
    return a_change(package=package, repository=EDGE, op=Op.UPDATE, reason=Reason.UPSTREAM_CHANGED, **more)


def inventory(directory: str = "/home/somebody", address: str = "../edge.git", **more: Any) -> Inventory:
    manifest = Repository(
        api_version=REPOSITORY,
        kind="Repository",
        metadata=ObjectMeta(name="edge", namespace="default"),
        spec=RepositorySpec(git=GitRepository(repo=address)),
    )
    view = RepositoryView(
        EDGE, f"{directory}/edge", address, "main", "", manifest, Source(Location("edge.yaml", 1))
    )
    control = Control(f"{directory}/control", "control", Commit(A, 1))
    return Inventory(**{"policy": Policy(), "control": control, "repositories": {EDGE: view}, **more})


def checksum(*changes: Change, world: Inventory | None = None, **more: Any) -> str:
    return plan_checksum(Plan(changes, **more), world or inventory(), LockUpdate())


EMPTY = checksum()


def test_the_directory_of_a_local_repository_does_not_count_but_its_address_does() -> None:
    here, there = inventory(), inventory("/tmp/clone")
    moved = change(WEB._replace(url="/tmp/clone/edge"), writes=(DRAFT,))
    elsewhere = inventory(address="../other.git")

    assert checksum(moved, world=there) == checksum(change(writes=(DRAFT,)), world=here)
    assert checksum(change(writes=(DRAFT,)), world=elsewhere) != checksum(change(writes=(DRAFT,)))


def test_a_decided_lock_counts_and_one_that_stands_does_not() -> None:
    lock = UpstreamLock(
        namespace="default", name="web", repository="blueprints", package="web", selector={}, commit=A, tree=B
    )
    files = {"locks": {lock_path(lock): lock_bytes(lock)}, "record_owners": {lock_path(lock): WEB}}
    standing = inventory(locks={lock.key: lock})

    assert checksum(**files) != EMPTY
    assert checksum(**files, world=standing) == EMPTY
    assert checksum(record_owners=files["record_owners"], world=standing) != EMPTY
    assert checksum(**files, other_files=frozenset({lock_path(lock)})) == EMPTY


def test_a_lock_of_a_cluster_counts_by_what_it_decides_and_where_it_goes() -> None:
    def of(*versions: str | None, **world: Any) -> str:
        before, after = (locked(version) for version in versions)
        update = LockUpdate((ClusterUpdate("dev", before, after),))
        return plan_checksum(Plan(), inventory(**world), update)

    sums = [of(None, "1"), of(None, "2"), of("1", None), of("1", "1")]

    assert len({*sums, EMPTY}) == 4
    assert sums[-1] == EMPTY
    assert of(None, "1", reviewed=ReviewedLock()) == EMPTY


def locked(version: str | None) -> ClusterLock | None:
    if version is None:
        return None
    instance = Instance(ecosystem=Ecosystem.CARVEL, name="db", slot=Slot(SlotKind.CLUSTER))
    resolution = Resolution(packages=(Resolved(instance=instance, dialect="carvel", version=version),))
    return ClusterLock(next_lock("dev", input_digest="i", resolution=resolution), resolution)


oids = st.sampled_from([A, B, C])
drafts = st.builds(
    lambda path, onto, tree, time: a_write(
        ref=f"refs/heads/drafts/{path}/w", onto=onto, path=path, tree=tree, message=path, time=time
    ),
    st.sampled_from(["web", "db"]),
    oids,
    oids,
    st.integers(0, 1),
)
moves = st.builds(MoveRef, st.sampled_from(["refs/heads/a", "refs/heads/b"]), oids, st.none() | oids)
pulls = st.builds(
    PullRequest,
    head=st.sampled_from(["a", "b"]),
    base=st.just("main"),
    title=st.sampled_from(["Create web", "Update web"]),
    body=st.sampled_from(["", "text"]),
    draft=st.booleans(),
    labels=st.sampled_from([(), ("team",)]),
)
changes = st.builds(
    change,
    writes=st.lists(drafts | moves, max_size=2).map(tuple),
    pull=st.none() | pulls,
    close=st.lists(st.builds(ClosePull, st.integers(1, 2), st.just("a"), st.just("")), max_size=1).map(tuple),
    approve=st.none() | st.builds(Approval, st.integers(1, 2), st.just("a"), oids),
    message=st.sampled_from(["", "why"]),
)
plans = st.lists(changes, max_size=3)


def effects(drawn: list[Change]) -> set[tuple[str, str]]:
    """Return what applying does, written down in another way than the checksum does it."""
    done = set()
    for each in drawn:
        done |= {("write", repr(write)) for write in each.writes}
        done |= {("close", repr(close)) for close in each.close}
        done |= {(kind, repr(value)) for kind, value in (("pull", each.pull), ("ok", each.approve)) if value}
    return done


def explained(drawn: list[Change]) -> list[Change]:
    """Return changes that do the same for another reason."""
    return [replace(each, op=Op.EDIT, reason=Reason.CONTENT_CHANGED, message="other") for each in drawn]


pairs = plans.flatmap(lambda drawn: st.tuples(st.just(drawn), plans | st.permutations(drawn).map(explained)))


@given(pairs)
def test_checksums_are_equal_if_and_only_if_the_effects_are(pair: tuple[list[Change], list[Change]]) -> None:
    one, other = pair

    assert (checksum(*one) == checksum(*other)) == (effects(one) == effects(other))
