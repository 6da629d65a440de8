"""Carvel packages of namespaces: an install sees those of its own namespace and the global ones."""

from typing import Any

from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import FleetClusters, collect_cluster_inputs
from reconciler.dependencies.catalog.index import IndexContents, find_missing
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.solve.verify import verify
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.inventory.snapshot import Snapshot, SnapshotObject

GLOBAL = "kapp-controller-packaging-global"
DATA, PACKAGING = "data.packaging.carvel.dev/v1alpha1", "packaging.carvel.dev/v1alpha1"


def package(namespace: str, name: str, version: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": f"{name}.{version}", "namespace": namespace}
    named = {"refName": name, "version": version, **spec}
    return {"apiVersion": DATA, "kind": "Package", "metadata": metadata, "spec": named}


def install(namespace: str, name: str) -> dict[str, Any]:
    reference = {"refName": name, "versionSelection": {"constraints": ">=1.0.0"}}
    spec = {"serviceAccountName": "sa", "packageRef": reference}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": PACKAGING, "kind": "PackageInstall", "metadata": metadata, "spec": spec}


def closed(namespace: str) -> dict[str, Any]:
    metadata = {"name": namespace, "annotations": {"kapp-controller.carvel.dev/exclude-global-packages": ""}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def world(there: list[dict[str, Any]], *manifests: dict[str, Any]) -> ClusterInputs:
    objects: dict[tuple[str, str], tuple[SnapshotObject, ...]] = {}
    for body in there:
        meta, key = body["metadata"], (body["apiVersion"], body["kind"])
        notes = meta.get("annotations", {})
        where = Location("snapshot/all.yaml")
        one = SnapshotObject(*key, meta.get("namespace", ""), meta["name"], {}, notes, body, where)
        objects[key] = (*objects.get(key, ()), one)
    snapshot = Snapshot(present=True, objects=objects, cluster="dev")
    documents = [
        SourcedDocument(body, Source(Location(f"manifests/clusters/dev/{number}.yaml", 1)))
        for number, body in enumerate(manifests)
    ]
    fleet = FleetClusters({"dev": ""}, snapshot, packaging_namespace=GLOBAL)
    found = collect_cluster_inputs(documents, (), IndexContents(), fleet)
    assert found.problems == ()
    return found.worlds[0]


def solved(inputs: ClusterInputs) -> dict[str, str]:
    solution = resolve_cluster(inputs)
    assert verify(inputs, solution) == ()
    return {str(one.instance): str(one.candidate.version) for one in solution.resolved.values()}


NEEDS_DB = {"dependencies": [{"package": {"refName": "db.io", "version": ">=1.0.0"}}]}
APP = package(GLOBAL, "app.io", "1.0.0", **NEEDS_DB)
DBS = [package(GLOBAL, "db.io", "1.0.0"), package("b", "db.io", "9.0.0")]


def test_namespace_without_the_global_packages_has_its_own_alone() -> None:
    open_, shut = (
        world(
            [APP, package("a", "app.io", "0.1.0"), *DBS, *more], install("b", "db.io"), install("a", "db.io")
        )
        for more in ([], [closed("a")])
    )

    assert solved(open_)["carvel:db.io@install/a/db.io"] == "1.0.0"
    assert [name for name in solved(shut) if "/a/" in name] == []
    assert solved(shut)["carvel:db.io@install/b/db.io"] == "9.0.0"
    assert [(str(lack), lack.is_known) for lack in find_missing([(shut.installs, shut.catalogue)])] == [
        ("carvel:db.io >=1.0.0", True)
    ]


def test_what_a_cluster_has_once_comes_from_the_shared_namespace() -> None:
    once = {"installationType": "onePerCluster"}
    there = [APP, package(GLOBAL, "db.io", "1.0.0", **once), package("a", "db.io", "9.0.0", **once)]

    assert solved(world(there, install("a", "app.io")))["carvel:db.io@cluster"] == "1.0.0"
