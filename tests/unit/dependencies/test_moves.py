"""What moves in a fleet, and the reason that a reviewer reads beside each pin."""

import pytest

from reconciler.dependencies.lock.changes import version_changes
from reconciler.dependencies.lock.format import (
    ClusterLock,
    ClusterUpdate,
    LockUpdate,
    lock_solution,
    next_lock,
)
from reconciler.dependencies.solve.resolve import resolve_cluster
from tests.support.dependency_manifests import install, needs, package, world_of

SHOP = install("shop", "web.io", "") + package("web.io", "1.0.0", needs("db.io", ">=1.0.0"))


def locked(text: str) -> ClusterLock:
    world = world_of(text)
    resolution = lock_solution(world, resolve_cluster(world))
    return ClusterLock(next_lock("any", input_digest="", resolution=resolution), resolution)


def moved(before: str, after: str, clusters: tuple[str, ...] = ("dev",)) -> str:
    old, new = locked(before) if before else None, locked(after) if after else None
    decision = LockUpdate(tuple(ClusterUpdate(cluster, old, new) for cluster in clusters))
    return "\n".join(f"{move.op} {move} in {', '.join(move.clusters)}" for move in version_changes(decision))


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
