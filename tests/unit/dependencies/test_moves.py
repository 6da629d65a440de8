"""What moves in a fleet, and the reason that a reviewer reads beside each pin."""

import pytest

from reconciler.dependencies.lock.convert import lock_solution
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockOp, LockUpdate, next_lock
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.update.changes import _same, object_version_changes, version_changes
from tests.support.dependency_manifests import install, needs, package, world_of
from tests.support.text import assert_lines

SHOP = install("shop", "web.io", "") + package("web.io", "1.0.0", needs("db.io", ">=1.0.0"))
OLD = SHOP + package("db.io", "1.0.0")


def locked(text: str) -> ClusterLock:
    world = world_of(text)
    resolution = lock_solution(world, resolve_cluster(world))
    return ClusterLock(next_lock("any", input_digest="", resolution=resolution), resolution)


def moved(before: str, after: str, clusters: tuple[str, ...] = ("dev",)) -> str:
    old, new = locked(before) if before else None, locked(after) if after else None
    decision = LockUpdate(tuple(ClusterUpdate(cluster, old, new) for cluster in clusters))
    return "\n".join(f"{move.op} {move} in {', '.join(move.clusters)}" for move in version_changes(decision))


def test_what_is_new_says_who_asks_for_it() -> None:
    assert_lines(
        moved("", OLD),
        """
        add carvel:db.io@namespace/prod 1.0.0: carvel:web.io@install/prod/shop asks for >=1.0.0 in dev
        add carvel:web.io@install/prod/shop 1.0.0: a manifest asks for it in dev
        """,
    )


def test_what_goes_is_needed_by_nobody() -> None:
    gone = install("shop", "web.io", "") + package("web.io", "1.0.0")

    assert_lines(
        moved(OLD, gone), "remove carvel:db.io@namespace/prod 1.0.0: nothing requires it any more in dev"
    )


def test_equal_moves_of_several_clusters_are_told_once() -> None:
    newer = OLD + package("db.io", "1.1.0")

    assert_lines(
        moved(OLD, newer, ("dev", "prod")),
        "change carvel:db.io@namespace/prod 1.0.0 -> 1.1.0: the version that fits best now in dev, prod",
    )


def test_who_forces_a_move_is_named_with_the_range() -> None:
    second = install("blog", "blog.io", "") + package("blog.io", "1.0.0", needs("db.io", ">=1.1.0"))

    found = moved(OLD, OLD + second + package("db.io", "1.1.0"))

    assert "1.0.0 -> 1.1.0: carvel:blog.io@install/prod/blog asks for >=1.1.0 in dev" in found


def test_a_manifest_that_asks_for_another_version_is_the_reason() -> None:
    newer = OLD + package("web.io", "2.0.0", needs("db.io", ">=1.0.0"))

    assert "1.0.0 -> 2.0.0: its manifest asks for it" in moved(OLD, newer)


API = "provides: [{apiVersion: db.io/v1, kind: Database}]"


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        ("{gvk: {apiVersion: db.io/v1, kind: Database}}", "asks for the API db.io/v1/Database"),
        (needs("db.io"), "asks for it"),
        (needs("db.io", "<2.0.0"), "asks for <2.0.0"),
    ],
)
def test_added_package_names_what_its_parent_requires(requirement: str, text: str) -> None:
    also = needs("db.io") if "gvk" in requirement else ""
    own = (requirement, also) if also else (requirement,)
    web = install("shop", "web.io", "") + package("web.io", "1.0.0", *own)

    found = moved("", web + package("db.io", "1.0.0", API))

    assert f"add carvel:db.io@namespace/prod 1.0.0: carvel:web.io@install/prod/shop {text}" in found


def test_moved_package_names_an_api_that_a_parent_requires_since() -> None:
    before = SHOP + package("db.io", "1.0.0")
    certs = "{gvk: {apiVersion: db.io/v1, kind: Database}}"
    after = install("shop", "web.io", "") + package("web.io", "2.0.0", needs("db.io", ">=1.0.0"), certs)

    found = moved(before, after + package("db.io", "1.0.0") + package("db.io", "1.1.0", API))

    text = "carvel:web.io@install/prod/shop asks for the API db.io/v1/Database"
    assert f"change carvel:db.io@namespace/prod 1.0.0 -> 1.1.0: {text}" in found


def test_nothing_moves_where_nothing_changed() -> None:
    assert moved(OLD, OLD) == ""
    assert LockOp.ADD in moved("", OLD)


def test_what_objects_have_is_compared_with_what_they_shall_have() -> None:
    resolution = locked(OLD + package("db.io", "1.1.0")).resolution
    packages = {f"{one.instance.name}.yaml": one for one in resolution.packages}
    there = {"db.io.yaml": "1.0.0", "gone.yaml": "3.0.0", "web.io.yaml": "1.0.0"}
    wanted = {"db.io.yaml": "1.1.0", "web.io.yaml": "1.0.0"}

    told = [
        f"{move.op} {move}" for move in object_version_changes(there, wanted, packages, resolution, "dev")
    ]

    assert told == [
        "change carvel:db.io@namespace/prod 1.0.0 -> 1.1.0: the version that fits best now",
        "remove gone.yaml 3.0.0: nothing requires it any more",
    ]


@pytest.mark.parametrize(
    ("constraints", "version", "same"),
    [("1.0.0", "1.0.0", True), ("1.0.0", "1.0.1", False), ("main", "1.0.0", True)],
)
def test_requirement_that_is_no_version_excludes_nothing(constraints: str, version: str, same: bool) -> None:
    assert _same(constraints, version) is same
