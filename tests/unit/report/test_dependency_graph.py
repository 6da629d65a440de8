"""The graph of a fleet's locks: manifests, packages, what is outside, and the ways to a package."""

from typing import Any

import pytest

from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockUpdate, next_lock
from reconciler.dependencies.model.instances import (
    Instance,
    MetNeed,
    OwnershipEntry,
    Resolution,
    Resolved,
    Slot,
    SlotKind,
)
from reconciler.dependencies.model.packages import Ecosystem, PackageId
from reconciler.report.locks import Edge, GraphNode, Group, dependency_graph, highlight, text_tree


def instance(name: str, *path: str, namespace: str = "") -> Instance:
    kind = "install" if path else "cluster"
    return Instance(ecosystem="carvel", name=name, slot=Slot(SlotKind(kind), namespace=namespace, path=path))


def need(to: str = "", **fields: Any) -> MetNeed:
    resolved = instance(to) if to else None
    values = {"signature": to, "need": "package", "id": f"carvel:{to}", "via": "candidate", **fields}
    return MetNeed(resolved=resolved, **values)


WEB = instance("corp/web.io", "web", namespace="prod")
ROOT = Resolved(
    instance=WEB,
    dialect="carvel",
    kind="PackageInstall",
    name="shop",
    version="1.0.0",
    by_user=True,
    dependencies=(
        need("db.io", constraints=">=1"),
        need("log.io"),
        need(need="api", id="certs.io/v1/Issuer", detail="api:certs.io/v1/Issuer"),
        need(need="interface", id="mysql", detail="binding:onsite/beast"),
        need(need="package", id="none"),
    ),
)
DB = Resolved(
    instance=instance("db.io"),
    dialect="carvel",
    version="2.0.0",
    requested_by=(WEB,),
    unavailable=True,
    dependencies=(need("log.io", constraints="1.x"),),
)
LOG = Resolved(instance=instance("log.io"), dialect="carvel", version="3.0.0")
OLD = Resolved(instance=instance("old.io"), dialect="carvel", version="4.0.0")
RESOLUTION = Resolution(
    packages=(ROOT, DB, LOG, OLD),
    unused=(instance("old.io"),),
    custom_resource_definitions={
        "a.io": OwnershipEntry(package=instance("db.io"), controller="x"),
        "b.io": OwnershipEntry(package=instance("log.io")),
        "d.io": OwnershipEntry(package=instance("gone.io"), retained=True),
    },
    compositions={"c": OwnershipEntry(package=instance("db.io"), retained=True)},
)
KEYS = {name: str(instance(f"{name}.io")) for name in ("db", "log", "old")} | {"web": str(WEB)}
MANIFEST = "manifest PackageInstall prod/shop"


def carvel(name: str) -> PackageId:
    return PackageId(Ecosystem.CARVEL, name)


def update(cluster: str, resolution: Resolution | None) -> ClusterUpdate:
    if resolution is None:
        return ClusterUpdate(cluster, None, None)
    lock = next_lock(cluster, input_digest="", resolution=resolution)
    return ClusterUpdate(cluster, None, ClusterLock(lock, resolution))


def graph_of(*scopes: ClusterUpdate, cluster: str = "") -> tuple[Group, ...]:
    return dependency_graph(LockUpdate(scopes), cluster=cluster)


def test_group_has_manifests_packages_and_what_is_outside() -> None:
    (group,) = graph_of(update("dev", RESOLUTION))

    assert group == Group(
        "dev",
        (
            GraphNode(MANIFEST, "PackageInstall prod/shop", is_root=True),
            GraphNode(KEYS["web"], "corp/web.io 1.0.0", package=carvel("corp/web.io")),
            GraphNode(
                KEYS["db"],
                "db.io 2.0.0",
                notes=("the composition c stays without a controller", "no longer published"),
                owns=("a.io",),
                package=carvel("db.io"),
            ),
            GraphNode(
                KEYS["log"],
                "log.io 3.0.0",
                notes=("b.io is not there yet",),
                shared=True,
                package=carvel("log.io"),
            ),
            GraphNode(KEYS["old"], "old.io 4.0.0", unused=True, package=carvel("old.io")),
            GraphNode("api:certs.io/v1/Issuer", "API that the cluster serves"),
            GraphNode("binding:onsite/beast", "onsite/beast, which is installed already"),
            GraphNode(
                str(instance("gone.io")),
                "gone.io, which is removed",
                notes=("d.io goes with it",),
                package=carvel("gone.io"),
            ),
        ),
        (
            Edge(KEYS["web"], "api:certs.io/v1/Issuer", "certs.io/v1/Issuer"),
            Edge(KEYS["web"], "binding:onsite/beast", "mysql"),
            Edge(KEYS["web"], KEYS["db"], ">=1"),
            Edge(KEYS["web"], KEYS["log"]),
            Edge(KEYS["db"], KEYS["log"], "1.x"),
            Edge(MANIFEST, KEYS["web"]),
        ),
    )


def test_clusters_with_equal_locks_are_one_group_and_each_can_be_drawn_alone() -> None:
    scopes = (update("b", RESOLUTION), update("c", Resolution()), update("a", RESOLUTION), update("d", None))

    assert [group.title for group in graph_of(*scopes)] == ["a, b", "c"]
    assert [group.title for group in graph_of(*scopes, cluster="b")] == ["b"]
    assert graph_of(*scopes, cluster="z") == ()


@pytest.mark.parametrize(
    ("package", "path"),
    [
        ("carvel:log.io@cluster", ("web", "log")),
        ("carvel:log.io", ("web", "log")),
        ("log.io", ("web", "log")),
        ("db.io", ("web", "db")),
        ("web.io", ("web",)),
        ("corp/web.io", ("web",)),
        ("old.io", ("old",)),
        ("io", ()),
        ("none", ()),
    ],
)
def test_package_is_named_in_several_ways_and_has_the_shortest_path(
    package: str, path: tuple[str, ...]
) -> None:
    groups = highlight(graph_of(update("dev", RESOLUTION), update("empty", Resolution())), package)

    keys = tuple(KEYS[name] for name in path)
    root = () if path == ("old",) else (MANIFEST,)
    assert [group.path for group in groups] == ([(*root, *keys)] if path else [])


def test_cluster_without_a_locked_package_is_told_so() -> None:
    groups = graph_of(update("empty", Resolution()))

    assert text_tree(groups) == ["empty", "  no package is locked"]
